"""The row that says which of several schedulers on a store leads, and the fence before its commits.

Each leadership has a number, its epoch. A commit of the leader reads the row in its own transaction and fails
unless the epoch is still its own. Writers take turns, so that what is read there holds until the commit: what
takes the lead finds a state that no older epoch can change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Double, insert, literal_column, select, update

from starburst.store.engine import end_silent_writer
from starburst.store.errors import FencedError
from starburst.store.schema import leader
from starburst.store.store import Store
from starburst.store.transactions import ask_within

#: Key of the only row.
ONLY = 1
#: The time of the store's own machine, epoch seconds, in the SQL of each dialect.
CLOCKS = {
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "CAST(EXTRACT(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)",
}


@dataclass(frozen=True, slots=True)
class LeaderClaim:
    """What a process says of itself when it takes the lead."""

    #: Of this process alone, for people to read: host, pid and a random part.
    holder: str
    #: URL of its API; "" if it has none.
    address: str = ""
    #: Identity of the home whose lock it holds; "" if it holds none.
    home: str = ""
    #: It renews the row as long as it leads. If not, only its home's lock says whether it lives.
    renews: bool = True


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """The row."""

    #: See `LeaderClaim`; "" if nobody leads.
    holder: str
    address: str
    home: str
    renews: bool
    epoch: int
    #: Number of changes: as long as it grows, the holder lives.
    beat: int
    #: The epoch that was asked to end; 0 for none.
    drain: int
    #: Seconds since the last change by the store's clock; for people only.
    age_s: float


def leader_record(store: Store) -> LeaderRecord | None:
    """The row; None in a store on which no scheduler ever ran."""
    return _record(store.ask(_row(store.dialect), {}))


def take(store: Store, seen: LeaderRecord | None, claim: LeaderClaim) -> int | None:
    """Lead from now on, unless the row has changed since it was `seen`; the new epoch, None if it has."""
    with store.write() as conn:
        now = _clock(conn.dialect.name)
        values = {
            "holder": claim.holder,
            "address": claim.address,
            "home": claim.home,
            "renews": int(claim.renews),
            "drain": 0,
        }
        found = conn.execute(select(leader.c.epoch, leader.c.beat)).first()
        if found is None:
            if seen is not None:
                return None
            conn.execute(insert(leader).values(id=ONLY, epoch=1, beat=1, changed_at=now, **values))
            return 1
        if seen is None or (found.epoch, found.beat) != (seen.epoch, seen.beat):
            return None
        epoch = int(found.epoch) + 1
        conn.execute(update(leader).values(epoch=epoch, beat=found.beat + 1, changed_at=now, **values))
        return epoch


def make_way(store: Store) -> None:
    """End the write transaction of a client that is silent, such as a leader that was stopped or cut off."""
    with store.read() as conn:
        end_silent_writer(conn)


def renew(store: Store, epoch: int, home: str) -> LeaderRecord:
    """Renew the row of this epoch; what it says after that.

    Raises:
        FencedError: another process leads.
    """
    with store.write() as conn:
        ask_within(conn, _renewal(conn.dialect.name), {"held": epoch, "home": home})
        record = _read(conn)
        if record is None or record.epoch != epoch:
            raise _fenced(record)
        return record


def release(store: Store, epoch: int) -> None:
    """Give the lead of this epoch back; does nothing if another process leads."""
    with store.write() as conn:
        given_back = {"holder": "", "address": "", "home": "", "beat": leader.c.beat + 1}
        conn.execute(
            update(leader)
            .where(leader.c.epoch == epoch)
            .values(**given_back, changed_at=_clock(conn.dialect.name))
        )


def ask_drain(store: Store, epoch: int) -> None:
    """Ask the leader of this epoch to give the lead back."""
    with store.write() as conn:
        conn.execute(update(leader).where(leader.c.epoch == epoch).values(drain=epoch))


def epoch_fence(epoch: int) -> Callable[[Connection], None]:
    """A check, for write transactions, that this epoch still leads.

    It raises FencedError if another process leads.
    """

    def check(conn: Connection) -> None:
        rows = ask_within(conn, "SELECT epoch FROM leader", {})
        if not rows or rows[0][0] != epoch:
            raise _fenced(_read(conn))

    return check


def _fenced(record: LeaderRecord | None) -> FencedError:
    if record is None:
        return FencedError("the store has no leader's row any more: it was replaced while starburst ran")
    who = record.holder or "no other process"
    return FencedError(f"{who} leads now (epoch {record.epoch}); nothing more is written")


def _read(conn: Connection) -> LeaderRecord | None:
    return _record(ask_within(conn, _row(conn.dialect.name), {}))


def _record(rows: Sequence[Sequence[Any]]) -> LeaderRecord | None:
    if not rows:
        return None
    holder, address, home, renews, epoch, beat, drain, age_s = rows[0]
    return LeaderRecord(holder, address, home, bool(renews), epoch, beat, drain, max(0.0, age_s))


def _row(dialect: str) -> str:
    """Reads the row with its age; in plain SQL, as replicas look and renew all the time."""
    columns = "holder, address, home, renews, epoch, beat, drain"
    return f"SELECT {columns}, {CLOCKS[dialect]} - changed_at FROM leader"


def _renewal(dialect: str) -> str:
    """Renews the row of the epoch `held`, whose leader has the home `home`."""
    changed = f"beat = beat + 1, changed_at = {CLOCKS[dialect]}, home = :home"
    return f"UPDATE leader SET {changed} WHERE epoch = :held"


def _clock(dialect: str) -> ColumnElement[float]:
    return literal_column(CLOCKS[dialect], Double)
