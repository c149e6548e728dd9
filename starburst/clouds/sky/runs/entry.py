"""The journal entries of runs: one per attempt of a job, with one part per task (rank)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import structlog
from pydantic import TypeAdapter

from starburst.clouds.sky.journal import Journal, body_of, fields_of
from starburst.clouds.sky.machines.naming import run_name
from starburst.core.model.events import RunEnd, RunEnded
from starburst.runs.files import directory_name
from starburst.runs.outcome import verdict
from starburst.runs.supervisor.exits import Exit, exit_of

log = structlog.get_logger()

#: Wall seconds for which an ended run is remembered, in case the scheduler did not store its end.
KEPT_S = 86_400.0


@dataclass(slots=True)
class RankEntry:
    """One task of a run: its machine, and what is known of it. Field names are stored."""

    where: str
    #: What the machine is to run (a `TaskSpec` of `agent/protocol.py`); emptied once the run is over.
    spec: dict[str, Any] = field(default_factory=dict)
    started: bool = False
    #: None of its processes is alive, and its output is here.
    over: bool = False
    #: How it ended, by its supervisor; None if the supervisor was killed too, or never ran.
    exit: Exit | None = None
    #: When it ended by its machine, on this side's clock, wall seconds; None if unknown.
    ended_at: float | None = None
    #: Grace in seconds with which it was told to end because another task of its gang failed.
    told: float | None = None
    #: The job's checkpoints are on its machine.
    supplied: bool = False
    #: For runs with values from the cluster: the machine has the task's spec.
    known: bool = False
    #: The node of its machine, if that has several.
    node: int = 0

    @property
    def succeeded(self) -> bool:
        """Whether it ended with success."""
        return self.exit is not None and self.exit.went_well


@dataclass(slots=True)
class RunEntry:
    """One attempt of a job. Field names are stored."""

    job: str
    attempt: int
    ranks: list[RankEntry]
    checkpoint: bool = False
    #: Ranks whose success is that of the run; [] is all of them.
    deciding: list[int] = field(default_factory=list)
    #: The first stop that was requested, as `outcome.verdict` takes it: end, message, grace_s, and at (wall
    #: seconds). A later stop can only shorten the grace.
    stop: dict[str, Any] | None = None
    end: dict[str, Any] | None = None
    ended_at: float = 0.0
    #: The manifest, if it takes values from the cluster; the values are not stored (`runtime_values.py`).
    late: str | None = None
    #: Deadline for bringing checkpoints home, wall seconds; None until all tasks are over.
    home_by: float | None = None

    @property
    def key(self) -> tuple[str, int]:
        """The job's id and the attempt's number."""
        return self.job, self.attempt

    @property
    def started(self) -> bool:
        """Whether every task has started."""
        return bool(self.ranks) and all(rank.started for rank in self.ranks)

    def number(self, rank: RankEntry) -> int:
        """The index of a task in its gang."""
        return next(number for number, one in enumerate(self.ranks) if one is rank)

    def grace(self, rank: RankEntry) -> float | None:
        """Grace in seconds with which a task is to end; None if it may go on."""
        return rank.told if self.stop is None else float(self.stop["grace_s"])

    def ended(self) -> RunEnded | None:
        """The event of its end, once that is decided."""
        if self.end is None:
            return None
        end, code = RunEnd(self.end["end"]), self.end["exit_code"]
        return RunEnded(*self.key, end, code, self.end["message"], ended_at=self.end.get("at"))

    def name(self, rank: RankEntry) -> str:
        """The name of a task in a machine's queue."""
        return run_name(self.job, self.attempt, self.number(rank))

    def directory(self, rank: RankEntry) -> str:
        """The directory of a task below the machine's runs, by which exchanges name it."""
        return f"{directory_name(self.job)}/{self.attempt}/{self.number(rank)}"


def save_run(journal: Journal, entry: RunEntry) -> None:
    """Write the entry of a run."""
    key = _key(entry)
    journal.put(key, {"key": key, **fields_of(entry)})


def drop_run(journal: Journal, entry: RunEntry) -> None:
    """Remove the entry of a run."""
    journal.drop(_key(entry))


def load_runs(journal: Journal, now: float) -> dict[tuple[str, int], RunEntry]:
    """The entries of all runs that are not over or ended recently; `now` is in wall seconds.

    An entry that cannot be read affects its own run only, which is stopped or counted as lost. Drops entries
    of runs that ended long ago.
    """
    names = [key.split("/") for key in journal.all_keys("run/")]
    keys = [("/".join(job), int(attempt)) for _, *job, attempt in names if attempt.isdigit()]
    runs = {(job, attempt): _load_run(journal, job, attempt, now) for job, attempt in keys}
    for entry in [entry for entry in runs.values() if entry.end and entry.ended_at < now - KEPT_S]:
        drop_run(journal, entry)
        del runs[entry.key]
    return runs


def _load_run(journal: Journal, job: str, attempt: int, now: float) -> RunEntry:
    body = None
    try:
        body = body_of(journal, f"run/{job}/{attempt}")
        entry = _read_run(body)
        if entry.key != (job, attempt):
            raise ValueError("it is of another run")
        return entry
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        log.error("note-cannot-be-read", job=job, attempt=attempt, error=str(error))
        entry = _replacement(job, attempt, body, now)
        save_run(journal, entry)
        return entry


def _read_run(body: dict[str, Any]) -> RunEntry:
    """A run by its stored fields; an exit that cannot be read is None.

    Raises:
        ValueError, TypeError, KeyError, AttributeError, RecursionError: the fields are not those of a run.
    """
    exits = [exit_of(rank["exit"]) for rank in body["ranks"]]
    bare = [{**rank, "exit": None} for rank in body["ranks"]]
    entry = _adapter().validate_json(json.dumps({**body, "ranks": bare}), strict=True)
    for rank, exit_ in zip(entry.ranks, exits, strict=True):
        rank.exit = exit_
    if entry.stop is not None:
        verdict(entry.key, [None], entry.stop)
    entry.ended()
    return entry


@cache
def _adapter() -> TypeAdapter[RunEntry]:
    """Made once: making it takes longer than reading a hundred entries."""
    return TypeAdapter(RunEntry)


def _replacement(job: str, attempt: int, body: Any, now: float) -> RunEntry:
    """For an unreadable entry: the run is stopped on its machines, or lost if they are not known either."""
    why = "its note cannot be read"
    try:
        places = [str(rank["where"]) for rank in body["ranks"]]
    except (TypeError, KeyError):
        places = []
    if places:
        stop = {"end": RunEnd.LOST.value, "message": why, "grace_s": 0.0, "at": now}
        return RunEntry(job, attempt, [RankEntry(place) for place in places], stop=stop)
    end = {"end": RunEnd.LOST.value, "exit_code": None, "message": why}
    return RunEntry(job, attempt, [], end=end, ended_at=now)


def _key(entry: RunEntry) -> str:
    return f"run/{entry.job}/{entry.attempt}"
