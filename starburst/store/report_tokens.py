"""Report tokens: each authorises progress reports on one job and nothing else.

A token is an HMAC of the job's id under a secret key of the store, so no token is stored. Tokens are
readable in the environment of a pod. A new key invalidates all of them.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64encode

from starburst.store.store import Store
from starburst.store.tokens import PREFIX

#: Prefix by which a report token is recognised.
REPORT_PREFIX = f"{PREFIX}report_"
FACT = "report-key"


def report_key(store: Store) -> str | None:
    """The key of this store; None if none exists yet."""
    key: str | None = store.fact(FACT)
    return key


def make_report_key(store: Store) -> str:
    """The key of this store, created on first use; only one scheduler runs on a home."""
    key = report_key(store)
    if key is None:
        key = secrets.token_hex(32)
        store.set_fact(FACT, key)
    return key


def report_token(key: str, job_id: str) -> str:
    """The token for the runs of a job."""
    digest = hmac.digest(bytes.fromhex(key), job_id.encode(errors="replace"), "sha256")
    return REPORT_PREFIX + urlsafe_b64encode(digest).decode().rstrip("=")


def is_report_token(key: str, job_id: str, secret: str) -> bool:
    """Whether `secret` is the token of this job; in constant time."""
    told = secret.encode(errors="replace")
    return hmac.compare_digest(report_token(key, job_id).encode(), told)
