"""The runs on rented machines: what is to run where, and how it went. Notes are the truth, exchanges keep
them so.

A run is noted before anything is asked of a machine, so `start` and `stop` never wait for one. An exchange
with a machine (`exchange`) brings what it does not know yet and takes back how its tasks stand and what
they wrote. A task is dead when its machine says so or the cloud no longer has the machine; silence is
neither.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from starburst.clouds.sky.access.answers import TaskState, tended
from starburst.clouds.sky.access.ports import Contact, LocalError, SkyError, UnsafeError
from starburst.clouds.sky.journal import Notes, RankNote, RunNote, drop_run, load_runs, save_run
from starburst.clouds.sky.machines.naming import run_name
from starburst.clouds.sky.runs.checkpoints import HOME_S, LAST_PAUSE_S, STOPPED_S, Berth, Carrier
from starburst.clouds.sky.runs.endings import Endings
from starburst.clouds.sky.runs.logs import MAX_LOG, Logs
from starburst.clouds.sky.runs.noting import noted
from starburst.clouds.sky.runs.progress import Hearing
from starburst.clouds.sky.runs.queues import RETRY_S, Queues
from starburst.clouds.sky.runs.runner import Runner, Submission
from starburst.clouds.sky.runs.runtime_values import Admit, LateValues, Source, admit_all
from starburst.clouds.sky.runs.storage import NO_STORES
from starburst.core.model.events import RunEnd, RunEnded, RunStarted
from starburst.runs.attempt_dir import log_path
from starburst.runs.files import directory_name
from starburst.runs.outcome import verdict
from starburst.runs.ports import Report, Run
from starburst.runs.tasks import TaskSet
from translator.carried import CloudStorage

log = structlog.get_logger()

#: Wall seconds for which a run that is over is remembered, in case nobody stored its end.
KEPT_S = 86_400.0


@dataclass(frozen=True, slots=True)
class News:
    """What an exchange brought beside reports."""

    #: There is more output than came.
    more: bool
    #: The machine's lease has passed: it is on its way out.
    lapsed: bool
    #: Its keeper stands in SkyPilot's queue; its own switch runs.
    kept: bool
    armed: bool
    #: Why nobody knows how some task stands, though the machine answered; "" if all is known.
    trouble: str
    #: Why the machine takes no work; "" if it does.
    unfit: str


class SkyRuns:
    """All runs of one controller on rented machines.

    `checkpoints` is the controller's directory of them, by job; they are brought to the machines of a run and
    back when it ends. With `bucket` they lie in one that every machine mounts instead. `stores` are mapped to
    volumes; `admit` is asked before anything of a cluster goes along.
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
        max_log: int = MAX_LOG,
        bucket: bool = False,
        source: Source | None = None,
        stores: Mapping[str, CloudStorage] = NO_STORES,
        admit: Admit = admit_all,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._notes = notes
        self._contact = contact
        self._takes = takes
        self._report = report
        self._tasks = tasks
        self._logs = Logs(logs, max_log)
        self._carrier = Carrier(contact, checkpoints, takes=takes, berth=berth, wall=wall)
        self._bucket = bucket
        self._late = LateValues(source, tasks, self._give_up)
        self._hearing = Hearing(report, wall)
        self._stores = stores
        self._admit = admit
        self._wall = wall
        self._runs = load_runs(notes, wall())
        self._queues = Queues(runner, tasks, wall)
        self._endings = Endings()
        for note in [note for note in self._runs.values() if note.end and note.ended_at < wall() - KEPT_S]:
            drop_run(notes, self._runs.pop(note.key))

    # --- what is asked -----------------------------------------------------------------------------------

    def start(self, run: Run) -> list[str]:
        """Note a run, or find it noted; the machines that should hear of it."""
        note = self._runs.get((run.job.id, run.attempt))
        if note is None:
            note, refused = noted(
                run, self._takes, self._admit, self._late.manifest, self._stores, bucket=self._bucket
            )
            if refused is None:
                save_run(self._notes, note)
            else:
                self._settle(note, refused)
            self._runs[note.key] = note
        self._tell(note)
        return [rank.where for rank in note.ranks if not rank.over]

    def stop(self, job_id: str, attempt: int, grace_s: float) -> list[str]:
        """Note that a run is to end; the machines that should hear of it. It cannot start after this."""
        note = self._runs.get((job_id, attempt))
        asked = {"end": RunEnd.STOPPED.value, "message": "", "grace_s": grace_s, "at": self._wall()}
        if note is None:
            note = self._runs[job_id, attempt] = RunNote(job_id, attempt, [], stop=asked)
            self._settle(note, RunEnded(job_id, attempt, RunEnd.STOPPED, message="stopped before it began"))
        elif note.end is None:
            self._stop(note, asked)
        self._tell(note)
        return [rank.where for rank in note.ranks if not rank.over]

    def _stop(self, note: RunNote, asked: dict[str, Any]) -> None:
        """A stop of what is to end already can only shorten its grace; it outranks bringing things home."""
        if note.stop is not None:
            asked = {**note.stop, "grace_s": min(note.stop["grace_s"], asked["grace_s"])}
        if note.home_by is not None:
            note.home_by = min(note.home_by, self._wall() + asked["grace_s"])
        note.stop = asked
        save_run(self._notes, note)

    def list_all(self) -> frozenset[tuple[str, int]]:
        """Report how every run stands, and which there are."""
        for note in list(self._runs.values()):
            self._tell(note)
            self._go_on(note)
        return frozenset(self._runs)

    def machine_gone(self, instance_id: str) -> None:
        """The cloud no longer has a machine: what ran there is dead."""
        self._hearing.gone(instance_id)
        self._queues.gone(instance_id)
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
            "specs": self._specs(instance_id, mine, berth),
            "stops": {
                name: grace for name, pair in mine.items() if (grace := RunNote.grace(*pair)) is not None
            },
            "look": {name: self._logs.seen(self._log(*pair)) for name, pair in mine.items()},
            "hear": self._hearing.ask(instance_id, mine),
        }
        answer = tended(await self._contact.call(berth.cluster, berth.access, "tend", ask), mine)
        self._late.heard(instance_id, answer.address, answer.host)
        trouble = next((f"{name}: {why}" for name, why in answer.broken.items()), "")
        for name, state in answer.tasks.items():
            try:
                trouble = self._take_in(*mine[name], state, ask["look"][name]) or trouble
            except OSError:  # of ours
                raise
            except Exception:
                log.exception("run-not-updated", run=name, instance=instance_id)
        self._submit(instance_id, berth, answer.tasks, mine)
        unfit = self._take_back(instance_id)
        more = any(state.more and state.log for state in answer.tasks.values())
        return News(more, answer.lapsed, answer.kept, answer.armed, trouble, unfit)

    def silent(self, instance_id: str) -> None:
        """A machine was not to be had."""
        self._queues.fitness(instance_id).silent()

    def _submit(
        self,
        instance_id: str,
        berth: Berth,
        states: Mapping[str, TaskState],
        mine: Mapping[str, tuple[RunNote, RankNote]],
    ) -> None:
        """Put what has not begun into the machine's queue."""
        waiting = []
        for name, state in states.items():
            note, rank = mine[name]
            if state.began or rank.over or note.grace(rank) is not None:
                continue
            if state.trouble:
                self._queues.refused(instance_id, self._name(note, rank), state.trouble)
            if state.known:
                waiting.append(self._submission(note, rank, berth))
        self._queues.submit(instance_id, berth, waiting)

    def _take_back(self, instance_id: str) -> str:
        """If a machine takes no work, what has not begun there ends, so that it can start elsewhere; why."""
        why = self._queues.fitness(instance_id).unfit
        for note, rank in list(self._on(instance_id)) if why else ():
            if not rank.started:
                self._give_up(note, f"{instance_id} takes no work: {why}", RunEnd.NOT_STARTED)
        return why

    def _specs(
        self, instance_id: str, mine: dict[str, tuple[RunNote, RankNote]], berth: Berth
    ) -> dict[str, Any]:
        """What the machine is to run, of tasks that need no checkpoints or have them there."""
        specs = {}
        for name, (note, rank) in mine.items():
            if rank.started or note.grace(rank) is not None:
                continue
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
        name = self._name(note, rank)
        try:
            await self._carrier.supply(note.job, berth, there)
            self._queues.fitness(rank.where).took(name)
            rank.supplied = True
            save_run(self._notes, note)
        except UnsafeError as error:
            self._give_up(note, str(error), RunEnd.REFUSED)
        except (SkyError, OSError) as error:  # the next exchange tries again
            log.warning("checkpoints-not-there", cluster=berth.cluster, job=note.job, error=str(error))
            if not isinstance(error, (LocalError, OSError)):
                why = f"checkpoints cannot be brought there: {error}"
                self._queues.refused(rank.where, name, why)
            await asyncio.sleep(RETRY_S)

    def _take_in(self, note: RunNote, rank: RankNote, state: TaskState, seen: int | None) -> str:
        """What a machine says of a task; what is wrong with that, or ""."""
        name, grace_s = self._name(note, rank), note.grace(rank)
        if seen is not None:
            self._logs.write(self._log(note, rank), seen, state.log)
        if rank.started and not (state.known or state.began):
            self._give_up(note, "its files are gone from its machine", RunEnd.LOST)
        if grace_s is not None:
            self._endings.told(name, self._wall())
        self._update(note, rank, state)
        self._hearing.heard(note, rank, state.report)
        overdue = not rank.over and self._endings.is_overdue(name, state, grace_s, self._wall())
        return f"{name} does not end, though it was told to" if overdue else ""

    def _update(self, note: RunNote, rank: RankNote, state: TaskState) -> None:
        before = (rank.started, rank.over, rank.known)
        rank.started = rank.started or state.started
        if note.late is not None:
            rank.known = state.known
            self._look_up(note)
        # Its queue is done with it and it never began: it cannot begin any more. Nor can what is told to stop
        # and is not known: nobody brings it there now.
        dropped = self._queues.is_done_with(self._name(note, rank)) and not state.began
        never = note.grace(rank) is not None and not state.known and not state.began
        name = self._name(note, rank)
        if self._endings.is_through(name, state, self._wall()) or dropped or never:
            rank.over, rank.exit = True, state.exit
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

    def _give_up(self, note: RunNote, why: str, end: RunEnd = RunEnd.REFUSED) -> None:
        """Nothing of a run starts any more: what it asks for is not to be had."""
        if note.stop is None and note.end is None:
            self._stop(note, {"end": end.value, "message": why, "grace_s": 0.0, "at": self._wall()})

    # --- ends --------------------------------------------------------------------------------------------

    def _go_on(self, note: RunNote) -> None:
        """After a change of a task: the others of a gang end with one that failed, and at last the run."""
        if note.end is not None:
            return
        if any(rank.over and not rank.went_well for rank in note.ranks):
            for rank in note.ranks:
                if not rank.over and rank.told is None:
                    rank.told = float(rank.spec.get("grace_s", 0.0))
        if all(rank.over for rank in note.ranks):
            if note.home_by is None:
                note.home_by = self._wall() + (HOME_S if note.stop is None else STOPPED_S)
                save_run(self._notes, note)
            self._tasks.ensure(("finish", note.key), partial(self._finish, note))

    async def _finish(self, note: RunNote) -> None:
        """Take the checkpoints home, then let the end be known: the next attempt starts from them."""
        lost = ""
        if note.checkpoint and not self._bucket:
            for rank in reversed(note.ranks):  # so that those of rank 0 come last and stay
                lost = await self._bring_home(note, rank) or lost
        end = verdict(note.key, [rank.exit for rank in note.ranks], note.stop)
        if lost:
            end = replace(end, message=f"{end.message}; {lost}" if end.message else lost)
        while note.end is None:
            try:
                self._settle(note, end)
            except OSError as error:  # a full disk: nothing is told before it is noted
                note.end = None
                log.error("end-not-noted", job=note.job, error=str(error))
                await asyncio.sleep(LAST_PAUSE_S)
        self._report(end)

    async def _bring_home(self, note: RunNote, rank: RankNote) -> str:
        """The checkpoints of a task; what to say of them if they are lost."""
        try:
            why = await self._carrier.bring_home(note, rank)
        except Exception as error:  # the end is told whatever becomes of them
            log.exception("checkpoint-not-home", job=note.job)
            why = str(error)
        if not why:
            return ""
        log.error("checkpoint-lost", job=note.job, attempt=note.attempt, instance=rank.where, error=why)
        lost = f"checkpoint lost: {why}; the one from before is kept"
        self._logs.add(self._log(note, rank), lost)
        return lost

    def _settle(self, note: RunNote, end: RunEnded) -> None:
        note.end = {"end": end.end.value, "exit_code": end.exit_code, "message": end.message}
        note.ended_at = self._wall()
        note.late = None
        self._late.drop(note)
        self._hearing.drop(note)
        for rank in note.ranks:
            rank.spec = {}
            self._queues.forget(self._name(note, rank))
            self._endings.forget(self._name(note, rank))
        save_run(self._notes, note)

    # --- what a run is to the machines -------------------------------------------------------------------

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
        return log_path(self._logs.root, note.job, note.attempt, note.number(rank))
