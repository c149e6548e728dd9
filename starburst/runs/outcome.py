"""The end of a run, from the exits of its tasks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from starburst.core.model.events import RunEnd, RunEnded
from starburst.runs.supervisor.exits import LEASE, LOSS, REFUSAL, STOP, TIME_LIMIT, Exit

#: Exit code of a run that ended with exit code 0 after its time limit; the same as of timeout(1).
OUT_OF_TIME = 124
#: Seconds after which a loss may be noted that made another task of a gang fail: it saves its state first.
NEAR_S = 300.0


def has_decided(exits: Sequence[Exit | None], deciding: Collection[int]) -> bool:
    """Whether the tasks whose success is that of the run have all succeeded; false if all tasks decide."""
    return bool(deciding) and all(rank < len(exits) and _has_succeeded(exits[rank]) for rank in deciding)


def verdict(
    key: tuple[str, int],
    exits: list[Exit | None],
    asked: dict[str, Any] | None,
    deciding: Collection[int] = (),
) -> RunEnded:
    """The end of a run whose tasks are all over; None among `exits` is a task whose supervisor was killed.

    If the tasks of the ranks `deciding` have succeeded the run has, whatever became of the others.

    A requested stop (`asked`, as of `AttemptDir.stop_asked`) decides, unless every task was over or one had
    failed before it. Otherwise the first task to fail decides, since its failure ended the others, unless
    one was lost with its machine around that time: the others then failed for want of a peer.
    """
    if has_decided(exits, deciding):
        return RunEnded(*key, RunEnd.EXITED, 0)
    own = [one for one in exits if one is not None and one.ended_by != STOP]
    bad = sorted((one for one in own if _is_bad(one)), key=lambda one: one.ended_at)
    if asked is not None and len(own) < len(exits) and not (bad and bad[0].ended_at < asked["at"]):
        codes = [one.exit_code for one in exits if one is not None and one.exit_code is not None]
        return RunEnded(*key, RunEnd(asked["end"]), max(codes, default=None), asked["message"])
    if None in exits:
        return RunEnded(*key, RunEnd.LOST, message="its supervisor was killed")
    if not bad and len(own) < len(exits):
        return RunEnded(*key, RunEnd.LOST, message="it was told to stop, and it is not known why")
    if not bad:
        return RunEnded(*key, RunEnd.EXITED, 0)
    first = next((one for one in bad if one.ended_by == LOSS and _is_soon(bad[0], one)), bad[0])
    if first.ended_by == REFUSAL:
        return RunEnded(*key, RunEnd.REFUSED, message=first.message)
    if first.ended_by in (LEASE, LOSS):
        return RunEnded(*key, RunEnd.LOST, message=first.message)
    end = RunEnd.OUT_OF_TIME if first.ended_by == TIME_LIMIT else RunEnd.EXITED
    return RunEnded(*key, end, first.exit_code or OUT_OF_TIME, first.message)


def _is_soon(first: Exit, other: Exit) -> bool:
    return other.ended_at - first.ended_at < NEAR_S


def last_end(exits: Sequence[Exit | None]) -> float | None:
    """When the last task of a run ended, epoch seconds of its machine's clock; None if one is not known."""
    known = [one.ended_at for one in exits if one is not None]
    return max(known, default=None) if len(known) == len(exits) else None


def _has_succeeded(one: Exit | None) -> bool:
    return one is not None and one.ended_by != STOP and not _is_bad(one)


def _is_bad(one: Exit) -> bool:
    return one.exit_code != 0 or one.ended_by in (TIME_LIMIT, LEASE, LOSS)
