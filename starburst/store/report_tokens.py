"""Tokens by which a run says how far it is, and can do nothing else: made of a key and the job's id.

They stand where others may read them, in the environment of a pod, and so are worth nothing beyond that. None
is kept. The key is a fact of the store, which only its owner reads; with another key all of them have ended.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64encode

from starburst.store.store import Store
from starburst.store.tokens import PREFIX

#: Begins every one of them, so that it is known for what it is.
REPORT_PREFIX = f"{PREFIX}report_"
FACT = "report-key"


def report_key(store: Store) -> str | None:
    """The key of this store; None if none was made yet."""
    key: str | None = store.fact(FACT)
    return key


def make_report_key(store: Store) -> str:
    """The key of this store, made by whoever comes first: one scheduler has a home."""
    key = report_key(store)
    if key is None:
        key = secrets.token_hex(32)
        store.set_fact(FACT, key)
    return key


def report_token(key: str, job_id: str) -> str:
    """What the runs of a job are given."""
    digest = hmac.digest(bytes.fromhex(key), job_id.encode(errors="replace"), "sha256")
    return REPORT_PREFIX + urlsafe_b64encode(digest).decode().rstrip("=")


def is_report_token(key: str, job_id: str, secret: str) -> bool:
    """Whether it is this job's."""
    told = secret.encode(errors="replace")
    return hmac.compare_digest(report_token(key, job_id).encode(), told)
