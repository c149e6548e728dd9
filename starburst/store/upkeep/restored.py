"""What a store that was put back from a backup leaves out at each start of the scheduler."""

from __future__ import annotations

from sqlalchemy import delete

from starburst.core.model.actions import Action, PrepareRun, StartRun
from starburst.store.schema import actions
from starburst.store.store import Store

#: Fact of a store that was put back once.
FACT = "restored"
#: Actions by which a run begins, by their kind in the store.
STARTS = (StartRun.__name__, PrepareRun.__name__)


def note_restored(store: Store) -> None:
    """Note in a copy that takes a store's place that it may know less than the sites."""
    store.set_fact(FACT, True)
    _leave_out_starts(store)


def was_put_back(store: Store) -> bool:
    """Whether a store took another one's place once."""
    return store.fact(FACT) is not None


def owed_actions(store: Store) -> list[Action]:
    """The actions that a scheduler performs when it starts, in order.

    In a store that was put back they have no starts: a later run of the job may be alive, at a site that was
    not listed yet. The scheduler finds the runs that began all the same, and requeues the jobs of the others.
    """
    if was_put_back(store):
        _leave_out_starts(store)
    return store.pending_actions()


def _leave_out_starts(store: Store) -> None:
    with store.write() as conn:
        conn.execute(delete(actions).where(actions.c.done_at.is_(None), actions.c.kind.in_(STARTS)))
