"""Tokens of the HTTP API, stored as hashes.

A token has 256 random bits, so one round of SHA-256 suffices: there is no dictionary to try, as there is
for passwords, against which slow, salted hashes protect. The hash is computed for each request and must be
fast.
"""

from __future__ import annotations

import json
import secrets
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import sha256
from typing import Any

from sqlalchemy import Row, delete, exists, insert, select, update
from sqlalchemy.exc import IntegrityError

from starburst.domain.job import ANYBODY, Submitter
from starburst.store import codec
from starburst.store.errors import StoreError, UnusableError
from starburst.store.schema import tokens
from starburst.store.store import Store

#: Prefix of every token, by which leaked tokens in files and logs are recognised.
PREFIX = "starburst_"


class Role(str, Enum):
    """The role of a token; each role includes the previous ones."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    ADMIN = "admin"

    def covers(self, needed: Role) -> bool:
        """Whether this role includes `needed`."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret. Times are wall seconds."""

    name: str
    role: Role
    #: Scope: jobs of these queues only; None is all queues.
    queues: tuple[str, ...] | None
    created_at: float
    #: None: never.
    expires_at: float | None = None
    #: Precise to a minute; None: never.
    last_used_at: float | None = None
    #: Rights of its jobs in a Kubernetes cluster beyond the default.
    grant: Submitter = ANYBODY

    @property
    def submitter(self) -> Submitter:
        """The submitter of its jobs. Only an admin without a scope is an admin of the cluster."""
        return replace(self.grant, admin=self.role is Role.ADMIN and self.queues is None)

    def holds(self, now_wall: float) -> bool:
        """Whether the token has not expired."""
        return self.expires_at is None or now_wall < self.expires_at


def create(store: Store, token: Token) -> str:
    """Store a token; its secret, which is not stored.

    Raises:
        StoreError: the name is taken.
    """
    secret = PREFIX + secrets.token_urlsafe(32)
    queues = None if token.queues is None else json.dumps(token.queues)
    row = {
        "name": token.name,
        "hash": hashed(secret),
        "role": token.role.value,
        "queues": queues,
        "kubernetes": None if token.grant == ANYBODY else codec.encode(token.grant),
        "created_at": token.created_at,
        "expires_at": token.expires_at,
    }
    try:
        with store.write() as conn:
            conn.execute(insert(tokens), row)
    except IntegrityError:
        raise StoreError(
            f"there is a token {token.name!r} already; revoke it or choose another name"
        ) from None
    return secret


def listed(store: Store) -> list[Token]:
    """All tokens by name, including expired ones."""
    with store.read() as conn:
        return [_token(row) for row in conn.execute(select(tokens).order_by(tokens.c.name))]


def any_exist(store: Store) -> bool:
    """Whether any token exists, expired or not."""
    with store.read() as conn:
        return bool(conn.scalar(select(exists().select_from(tokens))))


def find(store: Store, secret: str) -> Token | None:
    """The token with this secret, expired or not."""
    return find_hashed(store, hashed(secret))


def find_hashed(store: Store, hash_: str) -> Token | None:
    """The token whose secret has this hash, expired or not."""
    with store.read() as conn:
        row = conn.execute(select(tokens).where(tokens.c.hash == hash_)).first()
    return None if row is None else _token(row)


def used(store: Store, name: str, now_wall: float) -> None:
    """Note the use of a token; skipped while the store cannot be written, so that reading needs no disk
    space.
    """
    with suppress(UnusableError), store.write() as conn:
        conn.execute(update(tokens).where(tokens.c.name == name).values(last_used_at=now_wall))


def revoke(store: Store, name: str) -> None:
    """Delete a token: its next request is refused.

    Raises:
        StoreError: no token has this name.
    """
    with store.write() as conn:
        if not conn.execute(delete(tokens).where(tokens.c.name == name)).rowcount:
            raise StoreError(f"there is no token {name!r}; see: starburst token list")


def hashed(secret: str) -> str:
    """The stored form of a secret: SHA-256 in hex."""
    return sha256(secret.encode(errors="replace")).hexdigest()


def _token(row: Row[Any]) -> Token:
    queues = None if row.queues is None else tuple(json.loads(row.queues))
    grant = ANYBODY if row.kubernetes is None else codec.decode(Submitter, row.kubernetes)
    return Token(row.name, Role(row.role), queues, row.created_at, row.expires_at, row.last_used_at, grant)
