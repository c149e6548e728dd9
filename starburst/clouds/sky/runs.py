"""The runs on rented machines: what is to run where, and how it went. Notes are the truth, exchanges keep
them so.

A run is noted before anything is asked of a machine, so `start` and `stop` never wait for one. An exchange
with a machine (`exchange`) brings what it does not know yet and takes back how its tasks stand and what
they wrote. A task is dead when its machine says so or the cloud no longer has the machine; silence is
neither.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from starburst.clouds.sky.docker import runs_in_container
from starburst.clouds.sky.late import LateValues, Source
from starburst.clouds.sky.naming import run_name
from starburst.clouds.sky.notes import Notes, RankNote, RunNote, drop_run, load_runs, save_run
from starburst.clouds.sky.port import Access, Contact, JobState, SkyError, UnreachableError
from starburst.clouds.sky.progress import Hearing
from starburst.clouds.sky.runner import Runner, Submission
from starburst.clouds.sky.spec import spec_of
from starburst.clouds.sky.storage import NO_STORES, volumes_of
from starburst.core.events import RunEnd, RunEnded, RunStarted
from starburst.runs.attempt_dir import Exit, log_path
from starburst.runs.files import directory_name
from starburst.runs.ports import Report, Run
from starburst.runs.tasks import TaskSet
from starburst.runs.verdict import verdict
from translator.late import UnresolvedError
from translator.stores import Store

log = structlog.get_logger()

#: Wall seconds: until a task that has not begun is looked for in its queue again; between tries of a
#: transfer; and how long a run that is over is remembered, in case nobody stored its end.
RESUBMIT_S, RETRY_S, KEPT_S = 30.0, 2.0, 86_400.0


@dataclass(frozen=True, slots=True)
class Berth:
    """A machine that takes runs."""

    cluster: str
    access: Access
    gpu_type: str


@dataclass(frozen=True, slots=True)
class News:
    """What an exchange brought beside reports."""

    #: There is more output than came.
    more: bool
    #: The machine's lease has passed: it is on its way out.
    lapsed: bool


@dataclass(slots=True)
class Queued:
    """A task that was put into a queue."""

    at: float
    state: JobState


class SkyRuns:
    """All runs of one controller on rented machines.

    `checkpoints` is the controller's directory of them, by job; they are brought to the machines of a run and
    back when it ends. With `bucket` they lie in one that every machine mounts instead. `stores` are mapped to
    volumes.
    """

    def __init__(
        self,
        notes: Notes,
        contact: Contact,
        runner: Runner,
        *,
        takes: Callable[[str], bool],
        berth: Callable[[str], Berth | None],
        report: Report,
        tasks: TaskSet,
        logs: Path,
        checkpoints: Path,
        bucket: bool = False,
        source: Source | None = None,
        stores: Mapping[str, Store] = NO_STORES,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._notes = notes
        self._contact = contact
        self._runner = runner
        self._takes = takes
        self._berth = berth
        self._report = report
        self._tasks = tasks
        self._logs = logs
        self._checkpoints = checkpoints
        self._bucket = bucket
        self._late = LateValues(source, tasks, self._give_up)
        self._hearing = Hearing(report, wall)
        self._stores = stores
        self._wall = wall
        self._runs = load_runs(notes)
        self._queued: dict[str, Queued] = {}
        for note in [note for note in self._runs.values() if note.end and note.ended_at < wall() - KEPT_S]:
            drop_run(notes, self._runs.pop(note.key))

    # --- what is asked -----------------------------------------------------------------------------------

    def start(self, run: Run) -> list[str]:
        """Note a run, or find it noted; the machines that should hear of it."""
        note = self._runs.get((run.job.id, run.attempt))
        if note is None:
            note = self._noted(run)
            self._runs[note.key] = note
            save_run(self._notes, note)
        self._tell(note)
        return [rank.where for rank in note.ranks if not rank.over]

    def stop(self, job_id: str, attempt: int, grace_s: float) -> list[str]:
        """Note that a run is to end; the machines that should hear of it. It cannot start after this."""
        note = self._runs.get((job_id, attempt))
        asked = {"end": RunEnd.STOPPED.value, "message": "", "grace_s": grace_s, "at": self._wall()}
        if note is None:
            note = self._runs[job_id, attempt] = RunNote(job_id, attempt, [], stop=asked)
            self._settle(note, RunEnded(job_id, attempt, RunEnd.STOPPED, message="stopped before it began"))
        elif note.end is None and (note.stop is None or grace_s < note.stop["grace_s"]):
            note.stop = asked if note.stop is None else {**note.stop, "grace_s": grace_s}
            save_run(self._notes, note)
        self._tell(note)
        return [rank.where for rank in note.ranks if not rank.over]

    def list_all(self) -> frozenset[tuple[str, int]]:
        """Report how every run stands, and which there are."""
        for note in list(self._runs.values()):
            self._tell(note)
            self._go_on(note)
        return frozenset(self._runs)

    def machine_gone(self, instance_id: str) -> None:
        """The cloud no longer has a machine: what ran there is dead."""
        self._hearing.gone(instance_id)
        for note, rank in list(self._on(instance_id)):
            rank.over = True
            save_run(self._notes, note)
            self._go_on(note)

    def pace(self, instance_id: str) -> str:
        """Whether a machine's tasks are "changing", "steady" or "none"."""
        ranks = list(self._on(instance_id))
        changing = any(
            not rank.started or note.stop is not None or rank.told is not None for note, rank in ranks
        )
        return "changing" if changing else "steady" if ranks else "none"

    def none_on(self, instance_id: str) -> bool:
        """Whether every run on a machine has been told to its end, and its checkpoints are home."""
        open_ = (note for note in self._runs.values() if note.end is None)
        return all(rank.where != instance_id for note in open_ for rank in note.ranks)

    def _on(self, instance_id: str) -> Iterator[tuple[RunNote, RankNote]]:
        """Tasks on a machine of which something may be alive."""
        for note in self._runs.values():
            if note.end is None:
                yield from (
                    (note, rank) for rank in note.ranks if rank.where == instance_id and not rank.over
                )

    def _tell(self, note: RunNote) -> None:
        if note.started:
            self._report(RunStarted(*note.key))
        end = note.ended()
        if end is not None:
            self._report(end)

    # --- exchanges ---------------------------------------------------------------------------------------

    async def exchange(self, instance_id: str, berth: Berth, lease_s: float | None) -> News:
        """Bring a machine up to date and hear how it stands.

        Raises:
            SkyError: it was not to be had.
        """
        mine = {self._dir(note, rank): (note, rank) for note, rank in self._on(instance_id)}
        ask: dict[str, Any] = {
            "lease_s": lease_s,
            "specs": self._specs(mine, berth),
            "stops": {
                name: grace for name, pair in mine.items() if (grace := RunNote.grace(*pair)) is not None
            },
            "look": {name: self._seen(note, rank) for name, (note, rank) in mine.items()},
            "hear": self._hearing.ask(instance_id, mine),
        }
        answer = await self._contact.call(berth.cluster, berth.access, "tend", ask)
        states = answer["ranks"]
        self._late.heard(instance_id, answer)
        for name, (note, rank) in mine.items():
            self._write_log(note, rank, ask["look"][name], base64.b64decode(states[name]["log"]))
            self._update(note, rank, states[name])
            self._hearing.heard(note, rank, states[name].get("report"))
        waiting = [
            self._submission(note, rank, berth)
            for name, (note, rank) in mine.items()
            if states[name]["known"] and not (states[name]["began"] or rank.over or name in ask["stops"])
        ]
        now = self._wall()
        due = [task for task in waiting if now - self._asked_at(task) >= RESUBMIT_S]
        if due:
            self._tasks.ensure(("submit", instance_id), partial(self._submit, berth, due))
        return News(any(states[name]["more"] for name in mine), answer["lapsed"])

    def _specs(self, mine: dict[str, tuple[RunNote, RankNote]], berth: Berth) -> dict[str, Any]:
        """What the machine is to run, of tasks that need no checkpoints or have them there."""
        specs = {}
        for name, (note, rank) in mine.items():
            if rank.supplied or not note.checkpoint or self._bucket:
                spec = rank.spec if note.late is None else None if rank.known else self._late.spec(note, rank)
                if spec is not None:
                    specs[name] = spec
            else:
                self._tasks.ensure(
                    ("supply", name), partial(self._supply, note, rank, berth, rank.spec["checkpoints"])
                )
        return specs

    async def _supply(self, note: RunNote, rank: RankNote, berth: Berth, there: str) -> None:
        """Bring the job's checkpoints to the machine; beside the exchanges, for they may be large."""
        here = self._checkpoints / directory_name(note.job)
        try:
            if here.is_dir() and any(here.iterdir()):
                await self._contact.send(berth.cluster, berth.access, here, there)
        except SkyError as error:  # the next exchange tries again
            log.warning("checkpoints-not-there", cluster=berth.cluster, job=note.job, error=str(error))
            await asyncio.sleep(RETRY_S)
            return
        rank.supplied = True
        save_run(self._notes, note)

    def _update(self, note: RunNote, rank: RankNote, state: dict[str, Any]) -> None:
        before = (rank.started, rank.over, rank.known)
        rank.started = rank.started or state["started"]
        if note.late is not None:
            rank.known = state["known"]
            self._look_up(note)
        # Its queue is done with it and it never began: it cannot begin any more.
        queued = self._queued.get(self._name(note, rank))
        dropped = queued is not None and queued.state is JobState.ENDED and not state["began"]
        if (state["over"] and not state["more"]) or dropped:
            rank.over, rank.exit = True, state["exit"]
        if before != (rank.started, rank.over, rank.known):
            save_run(self._notes, note)
            if rank.started and not before[0] and note.started:
                self._report(RunStarted(*note.key))
            self._go_on(note)

    def _look_up(self, note: RunNote) -> None:
        if all(rank.known or rank.over for rank in note.ranks):
            self._late.drop(note)
        else:
            self._late.want(note)

    def _give_up(self, note: RunNote, why: str) -> None:
        """Nothing of a run starts any more: what it asks for is not to be had."""
        if note.stop is None and note.end is None:
            note.stop = {"end": RunEnd.REFUSED.value, "message": why, "grace_s": 0.0, "at": self._wall()}
            save_run(self._notes, note)

    def _asked_at(self, task: Submission) -> float:
        """When a task was last put into its queue, or tried to be; wall seconds."""
        queued = self._queued.get(task.name)
        return -RESUBMIT_S if queued is None else queued.at

    async def _submit(self, berth: Berth, tasks: list[Submission]) -> None:
        """Beside the exchanges: a queue may be slow."""
        try:
            states = await self._runner.submit(berth.cluster, berth.access, tasks)
        except SkyError as error:  # the next exchange that is due tries again
            log.warning("not-submitted", cluster=berth.cluster, error=str(error))
            await asyncio.sleep(RETRY_S)
            return
        self._queued |= {name: Queued(self._wall(), state) for name, state in states.items()}

    # --- ends --------------------------------------------------------------------------------------------

    def _go_on(self, note: RunNote) -> None:
        """After a change of a task: the others of a gang end with one that failed, and at last the run."""
        if note.end is not None:
            return
        if any(rank.over and not rank.went_well for rank in note.ranks):
            for rank in note.ranks:
                if not rank.over and rank.told is None:
                    rank.told = float(rank.spec["grace_s"])
        if all(rank.over for rank in note.ranks):
            self._tasks.ensure(("finish", note.key), partial(self._finish, note))

    async def _finish(self, note: RunNote) -> None:
        """Take the checkpoints home, then let the end be known: the next attempt starts from them."""
        if note.checkpoint and not self._bucket:
            for rank in reversed(note.ranks):  # so that those of rank 0 come last and stay
                await self._bring_home(note, rank)
        exits = [None if rank.exit is None else Exit(**rank.exit) for rank in note.ranks]
        end = verdict(note.key, exits, note.stop)
        self._settle(note, end)
        self._report(end)

    async def _bring_home(self, note: RunNote, rank: RankNote) -> None:
        here = self._checkpoints / directory_name(note.job)
        while rank.started and self._takes(rank.where):
            berth = self._berth(rank.where)
            try:
                if berth is None:
                    raise UnreachableError("SkyPilot does not say how to log in")
                await self._contact.fetch(berth.cluster, berth.access, rank.spec["checkpoints"], here)
                return
            except SkyError as error:
                log.warning("checkpoints-not-home", job=note.job, instance=rank.where, error=str(error))
                await asyncio.sleep(RETRY_S)

    def _settle(self, note: RunNote, end: RunEnded) -> None:
        note.end = {"end": end.end.value, "exit_code": end.exit_code, "message": end.message}
        note.ended_at = self._wall()
        note.late = None
        self._late.drop(note)
        self._hearing.drop(note)
        for rank in note.ranks:
            rank.spec = {}
            self._queued.pop(self._name(note, rank), None)
        save_run(self._notes, note)

    # --- what a run is to the machines -------------------------------------------------------------------

    def _noted(self, run: Run) -> RunNote:
        job, workload = run.job, run.workload
        slots = sorted(run.slots, key=lambda slot: slot.rank)
        note = RunNote(job.id, run.attempt, [RankNote(slot.where) for slot in slots], job.checkpoint)
        absent = [slot.where for slot in slots if not self._takes(slot.where)]
        if not workload.command and not runs_in_container(workload):
            message = "the job has no command and no image to run; set `command` of the job"
            self._settle(note, RunEnded(*note.key, RunEnd.REFUSED, message=message))
        elif absent:
            self._settle(note, RunEnded(*note.key, RunEnd.LOST, message=f"{absent[0]} takes no runs"))
        else:
            self._fill_in(note, run)
        return note

    def _fill_in(self, note: RunNote, run: Run) -> None:
        try:
            note.late = self._late.manifest(run.workload)
            volumes = volumes_of(run.workload, self._stores)
        except UnresolvedError as error:
            self._settle(note, RunEnded(*note.key, RunEnd.REFUSED, message=str(error)))
            return
        for slot, rank in zip(sorted(run.slots, key=lambda slot: slot.rank), note.ranks, strict=True):
            rank.spec = spec_of(run, slot, volumes, bucket=self._bucket)

    def _submission(self, note: RunNote, rank: RankNote, berth: Berth) -> Submission:
        return Submission(
            self._name(note, rank), self._dir(note, rank), int(rank.spec["gpus"]), berth.gpu_type
        )

    @staticmethod
    def _name(note: RunNote, rank: RankNote) -> str:
        return run_name(note.job, note.attempt, note.number(rank))

    @staticmethod
    def _dir(note: RunNote, rank: RankNote) -> str:
        return f"{directory_name(note.job)}/{note.attempt}/{note.number(rank)}"

    def _log(self, note: RunNote, rank: RankNote) -> Path:
        return log_path(self._logs, note.job, note.attempt, note.number(rank))

    def _seen(self, note: RunNote, rank: RankNote) -> int:
        path = self._log(note, rank)
        return path.stat().st_size if path.exists() else 0

    def _write_log(self, note: RunNote, rank: RankNote, offset: int, text: bytes) -> None:
        path = self._log(note, rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            if file.tell() == offset:
                file.write(text)
