"""Whether a scheduler runs and which one leads, for commands, the API and the doctor."""

from __future__ import annotations

from starburst.app.config.home import Home
from starburst.app.daemon.home_lock import LockHolder
from starburst.app.leadership.lease import TERMS
from starburst.store.leader import LeaderRecord, leader_record
from starburst.store.store import Store


def scheduler_of(home: Home, store: Store) -> LockHolder | None:
    """The status of the scheduler of a home or, if none runs on this machine, of the store's leader; None if
    none runs.
    """
    said = home.scheduler()
    if said is None and leader_of(store) is not None:
        return LockHolder()
    return said


def leader_of(store: Store) -> LeaderRecord | None:
    """The leader of several replicas; None if none leads, or if a single scheduler has the store."""
    record = leader_record(store)
    if record is None or not record.renews or not record.holder:
        return None
    return record if record.age_s <= TERMS.duration_s else None


def is_shared(store: Store) -> bool:
    """Whether the last leader was one of several replicas."""
    record = leader_record(store)
    return record is not None and record.renews
