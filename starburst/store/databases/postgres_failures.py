"""Translates errors of PostgreSQL: busy, disk full, away, without rights, damaged.

Codes: https://www.postgresql.org/docs/current/errcodes-appendix.html. An attempt to connect has no code, only
the server's words.
"""

from __future__ import annotations

import psycopg
from psycopg import errors

from starburst.store.errors import (
    BusyError,
    DamagedError,
    DiskFullError,
    LostError,
    StoreError,
    UnusableError,
)

#: Words of a server that refuses a connection for good: asking again does not help.
REFUSED = {
    "password authentication failed": "check the user and the password in the store's URL",
    "no password supplied": "put the password into the store's URL, or into a file that passfile= names",
    "authentication failed": "check the user in the store's URL, and pg_hba.conf of the server",
    "no pg_hba.conf entry": "let this machine in, in pg_hba.conf of the server",
    "permission denied for database": "GRANT CONNECT on it to the user of the store's URL",
    "could not translate host name": "check the host in the store's URL",
    "does not support SSL": "ask for no TLS in the store's URL (sslmode), or give the server a certificate",
    "certificate verify failed": "check sslrootcert= in the store's URL",
    "invalid connection option": "take it out of the store's URL",
    "invalid sslmode value": "mend it in the store's URL",
}
WAIT = "it is asked again until it answers"


def trouble(error: BaseException, *, lost: bool = False) -> StoreError | None:
    """The store error for an error of the driver; None for other errors, such as of a statement.

    `lost`: the connection is closed.
    """
    if not isinstance(error, psycopg.Error):
        return error if isinstance(error, StoreError) else None
    said = " ".join(str(error).split())
    if lost:
        return LostError(f"the store: the connection to PostgreSQL was lost ({said}); ask again")
    return _of_code(error, said) or (_of_connecting(said) if _is_connecting(error) else None)


def _is_connecting(error: psycopg.Error) -> bool:
    return isinstance(error, psycopg.OperationalError) and error.sqlstate is None


def _of_connecting(said: str) -> StoreError:
    for words, mend in REFUSED.items():
        if words in said:
            return StoreError(f"the store: PostgreSQL refuses ({said}); {mend}")
    if "database" in said and "does not exist" in said:
        return StoreError(f"the store: {said}; create it with createdb, or mend the store's URL")
    if "role" in said and "does not exist" in said:
        return StoreError(f"the store: {said}; create it with createuser, or mend the store's URL")
    return UnusableError(f"the store: PostgreSQL does not answer ({said}); start it, {WAIT}")


def _of_code(error: psycopg.Error, said: str) -> StoreError | None:
    if isinstance(error, errors.LockNotAvailable):
        return BusyError("the store: another process is writing to it; wait for that to end, and ask again")
    if isinstance(error, (errors.SerializationFailure, errors.DeadlockDetected, errors.QueryCanceled)):
        return BusyError(f"the store: PostgreSQL ended the transaction ({said}); ask again")
    if isinstance(error, errors.DiskFull):
        return DiskFullError(f"the store: the disk of PostgreSQL is full ({said}); free some room there")
    if isinstance(error, (errors.DataCorrupted, errors.IndexCorrupted)):
        return DamagedError(f"the store: is damaged ({said}); restore a backup of the database")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return UnusableError(
            "the store: this PostgreSQL takes no writes, it may be a standby; name the primary, or several "
            "hosts and target_session_attrs=read-write, in the store's URL"
        )
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreError(
            f"the store: the user of its URL lacks a right ({said}); make that user the owner of the "
            "database, or GRANT ALL ON SCHEMA public to it"
        )
    # 08: connection; 53: resources; 57P: the server stops or starts; 58: its system
    if (error.sqlstate or "")[:2] in ("08", "53", "57", "58"):
        return UnusableError(f"the store: PostgreSQL cannot work now ({said}); {WAIT}")
    return None
