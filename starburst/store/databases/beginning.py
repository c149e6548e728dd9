"""Tells a database, when a transaction begins, whether that writes.

It is told through the information on the connection: options of a connection are told to a listener of
SQLAlchemy only, and with a listener each statement takes SQLAlchemy a third longer.
"""

from __future__ import annotations

from typing import Any, Literal

from sqlalchemy import Connection, RootTransaction

#: "unnamed": it writes, and nobody will ask whether it took effect.
Writes = bool | Literal["unnamed"]


def begin(conn: Connection, writes: Writes) -> RootTransaction:
    """Begin a transaction; one that writes takes the write lock at its start."""
    if writes:
        conn.info["writes"] = writes
    return conn.begin()


def writes(info: dict[Any, Any]) -> Writes:
    """What `begin` was told, from the information on the connection; of another transaction False."""
    told: Writes = info.pop("writes", False)
    return told
