"""The store of one scheduler: its disk fails, and its process dies beside a commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from starburst.store.store import Step, Store

if TYPE_CHECKING:
    from tests.storm.process import SchedulerProcess

#: Beginnings of statements that write.
WRITES = ("INSERT", "UPDATE", "DELETE")
#: Errors of SQLite by fault.
DISK = {
    "disk-full": "database or disk is full",
    "disk-error": "disk I/O error",
    "store-locked": "database is locked",
}


class StormStore(Store):
    """The store of one process: its disk fails, and the process dies beside a commit."""

    process: SchedulerProcess
    _in_step = False

    def join(self, process: SchedulerProcess) -> None:
        """From now on this is the store of a process."""
        self.process = process
        dialect: Any = self._engine.dialect
        execute, commit = dialect.do_execute, dialect.do_commit
        execute_many = dialect.do_executemany

        def do_execute(cursor: Any, statement: str, *more: Any) -> None:
            if statement.startswith(WRITES):
                if process.disk_says:
                    raise sqlite3.OperationalError(process.disk_says)
                for name, said in DISK.items():
                    if process.weather.strikes(name):
                        raise sqlite3.OperationalError(said)
            execute(cursor, statement, *more)

        def do_executemany(cursor: Any, statement: str, *more: Any) -> None:
            if statement.startswith(WRITES) and process.disk_says:
                raise sqlite3.OperationalError(process.disk_says)
            execute_many(cursor, statement, *more)

        def do_commit(connection: Any) -> None:
            if process.weather.strikes("fsync-fails"):
                raise sqlite3.OperationalError("disk I/O error")
            commit(connection)
            if not self._in_step:  # after which its own faults come
                process.may_die("crash-after-write")

        dialect.do_execute, dialect.do_executemany, dialect.do_commit = do_execute, do_executemany, do_commit

    def commit(self, step: Step) -> None:
        """See `Store`."""
        self.process.may_die("crash-before-commit")
        self._in_step = True
        try:
            super().commit(step)
        finally:
            self._in_step = False
        self.process.committed(step)
        self.process.may_die("crash-after-commit")

    def actions_done(self, keys: Sequence[str], now: float) -> None:
        """See `Store`."""
        for key in keys:
            self.process.settled(key)
        self.process.may_die("crash-before-done", keys[0])
        super().actions_done(keys, now)
        self.process.may_die("crash-after-done", keys[0])
