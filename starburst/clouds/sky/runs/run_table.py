"""All runs on rented machines: what is to run where, and how it went.

The journal is the truth and exchanges keep it so: a run is journaled before anything is asked of a machine,
so `start` and `stop` return at once. A task is dead when its machine says so or when its cloud no longer has
the machine; silence is neither. A gang ends as a whole when one of its tasks fails. The end of a run is
reported after its checkpoints came home, or were found in their bucket, and its uploads are over, because the
next attempt starts from them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

import structlog

from starburst.clouds.sky.context import SkyContext
from starburst.clouds.sky.machines.machine import RentedMachine
from starburst.clouds.sky.runs.checkpoints import (
    HOME_S,
    LAST_PAUSE_S,
    STOPPED_S,
    CheckpointTransfer,
    is_in_bucket,
)
from starburst.clouds.sky.runs.deadlines import TaskDeadlines
from starburst.clouds.sky.runs.delays import DelayReports
from starburst.clouds.sky.runs.entry import KEPT_S, RankEntry, RunEntry, drop_run, load_runs, save_run
from starburst.clouds.sky.runs.logs import OVER, TaskLogs
from starburst.clouds.sky.runs.open_runs import OpenRuns
from starburst.clouds.sky.runs.prepare import prepare
from starburst.clouds.sky.runs.progress import ProgressCollector
from starburst.clouds.sky.runs.runtime_values import ValueReader
from starburst.core.model.events import RunEnd, RunEnded, RunStarted
from starburst.runs.attempt_dir import log_path
from starburst.runs.outcome import has_decided, verdict
from starburst.runs.peers import master_port
from starburst.runs.ports import Run

log = structlog.get_logger()

#: Saves the work of a task of a run; why it is lost, or "".
Save: TypeAlias = Callable[[RunEntry, RankEntry], Awaitable[str]]
#: The message of a save that failed.
NOT_HOME = "checkpoint lost: {why}; the one from before is kept"
NOT_UPLOADED = "not all that it wrote to its volumes may be in their bucket: {why}"
NOT_CONFIRMED = "not all that it wrote to its checkpoints may be in their bucket: {why}"


class Activity(str, Enum):
    """What goes on with the tasks of a machine."""

    CHANGING = "changing"  # one has not started, or is to end
    STEADY = "steady"
    NONE = "none"


class RunTable:
    """The runs of one controller, and what is remembered of their tasks in this process.

    `machines` are those that runs refer to, by id.
    """

    def __init__(self, context: SkyContext, machines: Mapping[str, RentedMachine]) -> None:
        clock = context.clock
        self._context = context
        self._machines = machines
        self._runs = load_runs(context.journal, clock.wall())
        self._open = OpenRuns()
        for entry in self._runs.values():
            if entry.end is None:
                self._open.add(entry)
        #: The others, the one that ended first in front.
        self._ended = deque(
            sorted((entry for entry in self._runs.values() if entry.end), key=attrgetter("ended_at"))
        )
        self.logs = TaskLogs(context.settings.logs, context.settings.max_log + OVER)
        self.checkpoints = CheckpointTransfer(context, machines)
        self.values = ValueReader(context.inputs.source, context.tasks, self.give_up)
        self.progress = ProgressCollector(context.report, clock.wall)
        self.delays = DelayReports(context.report, clock.wall)
        self.deadlines = TaskDeadlines()

    # --- what the scheduler asks for ---------------------------------------------------------------------

    def start(self, run: Run) -> list[str]:
        """Journal a run unless it is known; the machines that are to be told."""
        entry = self._runs.get((run.job.id, run.attempt))
        if entry is None:
            entry, refused = prepare(run, self._machines, self._context, master_port(run, self._open.ports))
            if refused is None:
                self.save(entry)
                self._open.add(entry)
            else:
                self._settle(entry, refused)
            self._runs[entry.key] = entry
        self._report(entry)
        self._forget_old()
        return [rank.where for rank in entry.ranks if not rank.over]

    def stop(self, job_id: str, attempt: int, grace_s: float) -> list[str]:
        """Journal that a run is to end; the machines that are to be told. It cannot start after this."""
        entry = self._runs.get((job_id, attempt))
        stop = self._stop(RunEnd.STOPPED, "", grace_s)
        if entry is None:
            entry = self._runs[job_id, attempt] = RunEntry(job_id, attempt, [], stop=stop)
            self._settle(entry, RunEnded(job_id, attempt, RunEnd.STOPPED, message="stopped before it began"))
        elif entry.end is None:
            self._request_stop(entry, stop)
        self._report(entry)
        return [rank.where for rank in entry.ranks if not rank.over]

    def _forget_old(self) -> None:
        """Forget the runs that a restart would forget, too."""
        before = self._context.clock.wall() - KEPT_S
        while self._ended and self._ended[0].ended_at < before:
            entry = self._ended[0]
            drop_run(self._context.journal, entry)
            self._ended.popleft()
            self._runs.pop(entry.key, None)

    def give_up(self, entry: RunEntry, why: str, end: RunEnd = RunEnd.REFUSED) -> None:
        """End a run that cannot go on, unless it is to end already; what a full disk does not note is not so.

        Whoever asked does again by the next exchange: after a restart nobody would know why it ended.
        """
        if entry.stop is None and entry.end is None:
            home_by = entry.home_by
            try:
                self._request_stop(entry, self._stop(end, why, 0.0))
            except OSError as error:
                entry.stop, entry.home_by = None, home_by
                log.error("end-not-noted", job=entry.job, why=why, error=str(error))

    def _stop(self, end: RunEnd, message: str, grace_s: float) -> dict[str, Any]:
        return {"end": end.value, "message": message, "grace_s": grace_s, "at": self._context.clock.wall()}

    def _request_stop(self, entry: RunEntry, stop: dict[str, Any]) -> None:
        """A later stop can only shorten the grace; a stop also bounds the time to bring checkpoints home."""
        if entry.stop is not None:
            stop = {**entry.stop, "grace_s": min(entry.stop["grace_s"], stop["grace_s"])}
        if entry.home_by is not None:
            entry.home_by = min(entry.home_by, self._context.clock.wall() + stop["grace_s"])
        entry.stop = stop
        self.save(entry)

    # --- what there is -----------------------------------------------------------------------------------

    def list_all(self) -> frozenset[tuple[str, int]]:
        """Report how every run stands; the keys of all of them."""
        for entry in list(self._runs.values()):
            self._report(entry)
            self.advance(entry)
        return frozenset(self._runs)

    def newest(self, job_id: str) -> int:
        """The last attempt of a job whose end is not journaled; 0 if there is none."""
        return self._open.newest(job_id)

    def tasks_on(self, instance_id: str) -> Iterator[tuple[RunEntry, RankEntry]]:
        """The tasks on a machine that may be alive."""
        return self._open.tasks_on(instance_id)

    def activity(self, instance_id: str) -> Activity:
        """What goes on with the tasks of a machine."""
        tasks = list(self.tasks_on(instance_id))
        if any(not rank.started or entry.grace(rank) is not None for entry, rank in tasks):
            return Activity.CHANGING
        return Activity.STEADY if tasks else Activity.NONE

    def has_runs_on(self, instance_id: str) -> bool:
        """Whether a run on a machine has not been reported to its end, checkpoints included."""
        return self._open.has_any_on(instance_id)

    def log_of(self, entry: RunEntry, rank: RankEntry) -> Path:
        """The file with a task's output on this side."""
        return log_path(self.logs.root, entry.job, entry.attempt, entry.number(rank))

    def save(self, entry: RunEntry) -> None:
        """Write a run to the journal."""
        save_run(self._context.journal, entry)

    def _report(self, entry: RunEntry) -> None:
        if entry.started:
            self._context.report(RunStarted(*entry.key))
        end = entry.ended()
        if end is not None:
            self._context.report(end)

    # --- what becomes of runs ----------------------------------------------------------------------------

    def machine_gone(self, instance_id: str, nodes: Collection[int] | None = None) -> None:
        """Count all tasks of a machine, or of some of several, as over: its cloud no longer has it."""
        if nodes is None:
            self.progress.gone(instance_id)
        for entry, rank in list(self.tasks_on(instance_id)):
            if nodes is not None and rank.node not in nodes:
                continue
            rank.over = True
            self.save(entry)
            if rank.exit is not None:
                with suppress(OSError):
                    self.logs.add(self.log_of(entry, rank), "the rest of its output went with its machine")
            self.advance(entry)

    def changed(self, entry: RunEntry, *, has_started: bool) -> None:
        """Journal and report a change of a task; `has_started`: the task has just started."""
        self.save(entry)
        if has_started and entry.started:
            self._context.report(RunStarted(*entry.key))
        self.advance(entry)

    def advance(self, entry: RunEntry) -> None:
        """Draw the consequences of a change: a task that failed, or the last that decides, ends its gang, and
        the last end ends the run.
        """
        if entry.end is not None:
            return
        decided = has_decided([rank.exit if rank.over else None for rank in entry.ranks], entry.deciding)
        if decided or any(rank.over and not rank.succeeded for rank in entry.ranks):
            for rank in entry.ranks:
                if not rank.over and rank.told is None:
                    rank.told = float(rank.spec.get("grace_s", 0.0))
        if all(rank.over for rank in entry.ranks):
            if entry.home_by is None:
                limit_s = HOME_S if entry.stop is None else STOPPED_S
                entry.home_by = self._context.clock.wall() + limit_s
                self.save(entry)
            self._context.tasks.ensure(("finish", entry.key), partial(self._finish, entry))

    async def _finish(self, entry: RunEntry) -> None:
        """Save the work, then report the end; it is reported only once it is journaled."""
        lost = await self._unconfirmed(entry)
        copies = entry.checkpoint and self._context.settings.bucket is None
        up = [rank for rank in entry.ranks if self.checkpoints.is_up(rank)] or entry.ranks
        for rank in reversed(entry.ranks):  # checkpoints of rank 0 come last and stay
            lost = await self._lost(entry, rank, self.checkpoints.upload, NOT_UPLOADED) or lost
            if copies and rank in up:  # those of a lost machine are no loss while others come home
                lost = await self._lost(entry, rank, self.checkpoints.bring_home, NOT_HOME) or lost
        end = verdict(entry.key, [rank.exit for rank in entry.ranks], entry.stop, entry.deciding)
        end = replace(end, ended_at=self._ended_at(entry))
        if lost:
            end = replace(end, message=f"{end.message}; {lost}" if end.message else lost)
        while entry.end is None:
            try:
                self._settle(entry, end)
            except OSError as error:  # the disk is full
                entry.end = None
                log.error("end-not-noted", job=entry.job, error=str(error))
                await asyncio.sleep(LAST_PAUSE_S)
        self._context.report(end)

    def _ended_at(self, entry: RunEntry) -> float | None:
        """When the last task of a run ended by its machine, scheduler seconds; None if unknown."""
        known = [rank.ended_at for rank in entry.ranks if rank.ended_at is not None]
        return self._context.clock.pace.scheduler_time(max(known)) if len(known) == len(entry.ranks) else None

    async def _unconfirmed(self, entry: RunEntry) -> str:
        """Wait until every machine of a run that is up has found its checkpoints in their bucket; as `_lost`.

        What was closed on a machine that is lost was uploaded.
        """
        if not entry.checkpoint:
            return ""
        written = {
            (rank.where, rank.node): rank
            for rank in reversed(entry.ranks)
            if rank.started and is_in_bucket(rank) and self.checkpoints.is_up(rank)
        }
        looks = (
            self._lost(entry, rank, self.checkpoints.confirm, NOT_CONFIRMED) for rank in written.values()
        )
        return next(filter(None, await asyncio.gather(*looks)), "")

    async def _lost(self, entry: RunEntry, rank: RankEntry, save: Save, told: str) -> str:
        """Save the work of a task; what to tell the user if it is lost, else ""."""
        try:
            why = await save(entry, rank)
        except Exception as error:  # the end is reported in any case
            log.exception("work-not-saved", job=entry.job)
            why = str(error)
        if not why:
            return ""
        log.error("work-lost", job=entry.job, attempt=entry.attempt, instance=rank.where, error=why)
        lost = told.format(why=why)
        self.logs.add(self.log_of(entry, rank), lost)
        return lost

    def _settle(self, entry: RunEntry, end: RunEnded) -> None:
        entry.end = {"end": end.end.value, "exit_code": end.exit_code, "message": end.message}
        entry.end |= {} if end.ended_at is None else {"at": end.ended_at}
        entry.ended_at = self._context.clock.wall()
        entry.late = None
        self.values.drop(entry)
        self.progress.drop(entry)
        self.delays.drop(entry)
        for rank in entry.ranks:
            rank.spec = {}
            self.deadlines.forget(entry.name(rank))
        self.save(entry)
        self._open.drop(entry)
        self._ended.append(entry)
