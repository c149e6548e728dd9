"""Tokens of the HTTP API: made once, kept as hashes, gone when revoked.

A token is 256 random bits, so one round of SHA-256 keeps it: nobody can try all of them, and there is no
dictionary of likely ones as there is of passwords, against which slow, salted hashes help. It must be fast,
too, as it is computed for every request.
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

#: Begins every token, so that one that has leaked into a file or a log can be found and known for what it is.
PREFIX = "starburst_"


class Role(str, Enum):
    """What a token's bearer may do; each may do what those before may."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    ADMIN = "admin"

    def covers(self, needed: Role) -> bool:
        """Whether it is as much as is needed."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret. Times are wall seconds."""

    name: str
    role: Role
    #: Sees and touches jobs of these queues only; None is all.
    queues: tuple[str, ...] | None
    created_at: float
    #: None is never.
    expires_at: float | None = None
    #: To the minute; None is never.
    last_used_at: float | None = None
    #: What its jobs may ask of a Kubernetes cluster, besides what everybody's may.
    grant: Submitter = ANYBODY

    @property
    def submitter(self) -> Submitter:
        """Its bearer, as jobs are handed in. An admin of some queues only does not rule over the cluster."""
        return replace(self.grant, admin=self.role is Role.ADMIN and self.queues is None)

    def holds(self, now_wall: float) -> bool:
        """Whether it has not expired."""
        return self.expires_at is None or now_wall < self.expires_at


def create(store: Store, token: Token) -> str:
    """Keep a token; the secret, which is nowhere else and cannot be shown again.

    Raises:
        StoreError: there is one of this name.
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
    """All tokens by name, expired ones too."""
    with store.read() as conn:
        return [_token(row) for row in conn.execute(select(tokens).order_by(tokens.c.name))]


def any_exist(store: Store) -> bool:
    """Whether there is any, expired or not."""
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
    """Note that a token was used, if the store takes notes now: who only reads needs no room on the disk."""
    with suppress(UnusableError), store.write() as conn:
        conn.execute(update(tokens).where(tokens.c.name == name).values(last_used_at=now_wall))


def revoke(store: Store, name: str) -> None:
    """Forget a token: its next request is refused.

    Raises:
        StoreError: there is none of this name.
    """
    with store.write() as conn:
        if not conn.execute(delete(tokens).where(tokens.c.name == name)).rowcount:
            raise StoreError(f"there is no token {name!r}; see: starburst token list")


def hashed(secret: str) -> str:
    """As it is kept."""
    return sha256(secret.encode(errors="replace")).hexdigest()


def _token(row: Row[Any]) -> Token:
    queues = None if row.queues is None else tuple(json.loads(row.queues))
    grant = ANYBODY if row.kubernetes is None else codec.decode(Submitter, row.kubernetes)
    return Token(row.name, Role(row.role), queues, row.created_at, row.expires_at, row.last_used_at, grant)
