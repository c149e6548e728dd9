"""Runs as local process groups: started, adopted after a crash, stopped, and followed to their end."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from starburst.aio import Debounce, TaskSet, Wake
from starburst.core.model.actions import Slot
from starburst.core.model.events import Event, Progress, RunEnd, RunEnded, RunStarted, SiteSynced
from starburst.domain.job import Site
from starburst.runs.accounts import NoAccountError, RunAs, RunAsSelf, TaskDirs
from starburst.runs.attempt_dir import AttemptDir, RankDir, attempts_under, ends_gang
from starburst.runs.files import directory_name
from starburst.runs.inherited_limits import OPEN_FILES, UMASK
from starburst.runs.outcome import last_end, verdict
from starburst.runs.peers import is_free_here, master_port, peer_variables
from starburst.runs.persistence import until_done
from starburst.runs.ports import Report, Run
from starburst.runs.supervisor.cgroups import group_of
from starburst.runs.supervisor.log_pump import MAX_LOG
from starburst.runs.supervisor.progress_report import VARIABLE

#: Seconds between looks at something that is about to happen.
RETRY_S = 0.02
#: Seconds after which a supervisor is looked at again, in case its end was not signalled.
LOOK_AGAIN_S = 30.0
#: Seconds for which ends of runs that are over are waited for before the other runs are listed.
OVER_S = 10.0
#: Seconds between looks at progress reports; and at least, however many hints come.
HEAR_S, NUDGE_S = 5.0, 2.0

NO_COMMAND = (
    "the job has no command, and the embedded cluster and cloud do not run images: they run the command on "
    "this host; set `command` of the job"
)

SELF = RunAsSelf()
#: The address of all tasks: they are processes of this machine.
HERE = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class RunHost:
    """A machine, or each of several that are rented as one, as its processes see it."""

    gpus: int
    #: The file with the machine's lease, after which its runs end by themselves. None: no lease.
    lease: Path | None = None


class ProcessRunner:
    """The runs of one site, in directories below `root`, which one runner at a time may use.

    All state is on disk. After a kill -9 a new runner finds each run alive (its supervisor holds the lock),
    ended (`exit.json`), never started (then it is started now) or lost (then what is left of it is killed
    first). An operation on one run that fails is retried for that run alone. `scheduler_time` of a time of
    this machine's clock, epoch seconds, is that time in scheduler seconds.
    """

    def __init__(
        self,
        root: Path,
        checkpoints: Path,
        site: Site,
        *,
        run_as: RunAs = SELF,
        max_log: int = MAX_LOG,
        scheduler_time: Callable[[float], float] = float,
    ) -> None:
        self.root = root.resolve()
        self._checkpoints = checkpoints.resolve()
        self._site = site
        self._run_as = run_as
        self._max_log = max_log
        self._scheduler_time = scheduler_time
        self._report: Report = unwatched
        self._followers = TaskSet()
        self._children: set[int] = set()
        self._held: dict[tuple[str, int], RunEnded | None] = {}
        self._hearing = Wake()
        self._nudges = Debounce(self._hearing.ring, NUDGE_S)

    @cached_property
    def _attempts(self) -> dict[tuple[str, int], AttemptDir]:
        return {attempt.key: attempt for attempt in attempts_under(self.root)}

    @cached_property
    def _live(self) -> dict[tuple[str, int], AttemptDir]:
        return {key: attempt for key, attempt in self._attempts.items() if attempt.end() is None}

    def start(self, run: Run, places: Mapping[str, RunHost], refused: str = "") -> None:
        """Start a run on these machines, or resume following it. `refused`: why it may not start, if so."""
        attempt = AttemptDir.of(self.root, run.job.id, run.attempt)
        if attempt.key not in self._attempts:
            refusal = self._refusal(run, places, refused)
            try:
                specs = [] if refusal is not None else self._specs(run, places)
            except NoAccountError as error:
                refusal = RunEnded(*attempt.key, RunEnd.REFUSED, message=str(error))
            if refusal is not None:
                attempt.claim_ended(refusal)
            else:
                attempt.claim(specs)
                self._live[attempt.key] = attempt
            self._attempts[attempt.key] = attempt
        self._resume(attempt)

    def stop(self, job_id: str, attempt_number: int, grace_s: float) -> None:
        """Begin to end a run; a run that never was cannot start after this."""
        attempt = AttemptDir.of(self.root, job_id, attempt_number)
        if attempt.key in self._live:
            attempt.ask_stop(grace_s, RunEnd.STOPPED, "", time.time())
        elif attempt.key not in self._attempts:
            attempt.claim_ended(RunEnded(*attempt.key, RunEnd.STOPPED, message="stopped before it began"))
            self._attempts[attempt.key] = attempt
        self._resume(attempt)

    def newest(self, job_id: str) -> int:
        """See `RunSite`."""
        return max((attempt for job, attempt in self._live if job == job_id), default=0)

    def nudge(self) -> None:
        """Look at progress reports now."""
        self._nudges.hint()

    async def evacuate(self, lease: Path, message: str, most_grace_s: float = 0.0) -> list[RunEnded]:
        """End the runs on a machine, each within its grace and `most_grace_s`; the lost are returned only."""
        here = _resolved(lease)
        live = list(self._live.items())
        ends = {key: attempt for key, attempt in live if here in await until_done(attempt.leases, key)}
        self._held.update(dict.fromkeys(ends))
        for key, attempt in ends.items():
            grace_s = min(most_grace_s, await until_done(attempt.grace_s, key))
            await until_done(partial(attempt.ask_stop, grace_s, RunEnd.LOST, message, time.time()), key)
        left = [attempt for key, attempt in ends.items() if key in self._live]  # some ended meanwhile
        await asyncio.gather(*map(self._follower, left))
        return [end for key in ends if (end := self._held.pop(key, None)) is not None]

    async def watch(self, report: Report) -> None:
        """Report every known run, SiteSynced, and then changes, until cancelled."""
        self._report = report
        try:
            live = await until_done(lambda: list(self._live.values()))
            over = [self._follower(attempt) for attempt in live if await until_done(attempt.over)]
            if over:
                await asyncio.wait(over, timeout=OVER_S)
            for attempt in list(self._attempts.values()):  # a shortage is waited for, and others start
                if await until_done(attempt.started):
                    report(RunStarted(*attempt.key))
                await until_done(partial(self._resume, attempt), attempt.key)
            report(SiteSynced(self._site, frozenset(self._attempts)))
            self._followers.ensure("progress", self._hear)
            await self._followers.until_failure()
        finally:
            self._report = unwatched
            await self._followers.cancel()

    # --- starting ----------------------------------------------------------------------------------------

    def _refusal(self, run: Run, places: Mapping[str, RunHost], refused: str) -> RunEnded | None:
        key = (run.job.id, run.attempt)
        if refused or not run.workload.command:
            return RunEnded(*key, RunEnd.REFUSED, message=refused or NO_COMMAND)
        for where, node in dict.fromkeys((slot.where, slot.node) for slot in run.slots):
            if where not in places:
                return RunEnded(*key, RunEnd.LOST, message=f"{where} takes no runs")
            here = [slot for slot in run.slots if (slot.where, slot.node) == (where, node)]
            needed = sum(slot.resources.gpus for slot in here)
            free = len(self._free_gpus(where, node, places[where]))
            if needed > free:
                return RunEnded(
                    *key, RunEnd.LOST, message=f"{where} has {free} free GPUs, {needed} are needed"
                )
        return None

    def _free_gpus(self, where: str, node: int, place: RunHost) -> list[int]:
        ranks = (rank.spec() for attempt in self._live.values() for rank in attempt.ranks())
        # Two machines can have one name if the store from which the first was rented was lost.
        here = where, node, _resolved(place.lease)
        taken = {
            gpu
            for spec in ranks
            if (spec["where"], spec.get("node", 0), spec["lease"]) == here
            for gpu in spec["gpus"]
        }
        return [gpu for gpu in range(place.gpus) if gpu not in taken]

    def _specs(self, run: Run, places: Mapping[str, RunHost]) -> list[dict[str, Any]]:
        """What each rank's supervisor is to run, with GPUs of its own."""
        used = {(slot.where, slot.node) for slot in run.slots}
        free = {at: self._free_gpus(*at, places[at[0]]) for at in used}
        port = master_port(run, is_free=is_free_here)
        specs = []
        for slot in sorted(run.slots, key=lambda slot: slot.rank):
            gpus = [free[slot.where, slot.node].pop(0) for _ in range(slot.resources.gpus)]
            directory = AttemptDir.of(self.root, run.job.id, run.attempt).path / str(slot.rank)
            dirs = self._dirs(run, directory)
            account = self._run_as.account(run, dirs)
            rank_dir, env = RankDir(directory), self._environment(run, slot, gpus, account.env, port)
            specs.append(
                {
                    "where": slot.where,
                    "node": slot.node,
                    "hosts": _hosts(run),
                    "gpus": gpus,
                    "command": list(run.workload.command),
                    "cwd": run.workload.working_dir or str(directory / "work"),
                    "env": env | {VARIABLE: str(rank_dir.report_path)} | rank_dir.hosts_variable(_hosts(run)),
                    "grace_s": run.job.grace_s,
                    "deciding": list(run.workload.deciding),
                    "time_limit_s": run.workload.time_limit_s,
                    "lease": _resolved(places[slot.where].lease),
                    "max_log": self._max_log,
                    "cgroup": group_of(directory),
                    "seclusion": account.seclusion,
                    "umask": UMASK,
                    "open_files": OPEN_FILES,
                }
            )
        return specs

    def _dirs(self, run: Run, directory: Path) -> TaskDirs:
        checkpoints = self._checkpoints / directory_name(run.job.id)
        checkpoints.mkdir(parents=True, exist_ok=True, mode=0o700)
        work, home, tmp = (directory / name for name in ("work", "home", "tmp"))
        return TaskDirs(work, home, RankDir(directory).report_path.parent, checkpoints, tmp)

    def _environment(
        self, run: Run, slot: Slot, gpus: list[int], account: Mapping[str, str], port: int
    ) -> dict[str, str]:
        """The task's variables; of the scheduler's own only those that find programs and decode text."""
        visible, rank = ",".join(map(str, gpus)), slot.rank
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            **({"TZ": os.environ["TZ"]} if "TZ" in os.environ else {}),
            **account,
            **peer_variables(run, rank, [HERE] * len(run.slots), port),
            **dict(run.workload.env),
            "CUDA_VISIBLE_DEVICES": visible,
            "NVIDIA_VISIBLE_DEVICES": visible,
            "STARBURST_JOB": run.job.id,
            "STARBURST_ATTEMPT": str(run.attempt),
            "STARBURST_SITE": self._site.value,
            "STARBURST_NODE": slot.where,
            "STARBURST_CHECKPOINT_DIR": str(self._checkpoints / directory_name(run.job.id)),
            "STARBURST_RANK": str(rank),
            "STARBURST_WORLD_SIZE": str(len(run.slots)),
            **run.indices(rank),
            "STARBURST_RUN": f"{run.job.id}/{run.attempt}/{rank}/{uuid4().hex}",
        }

    # --- following ---------------------------------------------------------------------------------------

    def _resume(self, attempt: AttemptDir) -> None:
        """Report the end of an attempt, or follow it to its end."""
        end = attempt.end()
        if end is not None:
            self._report(self._timed(end))
        else:
            self._follower(attempt)

    def _timed(self, end: RunEnded) -> RunEnded:
        """An end as it is reported: when, in scheduler seconds."""
        return end if end.ended_at is None else replace(end, ended_at=self._scheduler_time(end.ended_at))

    def _follower(self, attempt: AttemptDir) -> asyncio.Task[None]:
        return self._followers.ensure(attempt.key, lambda: self._follow(attempt))

    async def _follow(self, attempt: AttemptDir) -> None:
        """Take an attempt from whatever state it is in to its end, with retries."""
        end = self._timed(await until_done(partial(self._outcome, attempt), attempt.key))
        self._live.pop(attempt.key, None)
        if end.end is RunEnd.LOST and attempt.key in self._held:
            self._held[attempt.key] = end
        else:
            self._report(end)

    async def _outcome(self, attempt: AttemptDir) -> RunEnded:
        """Follow an attempt to its end and settle it. May be cancelled and begun again at any point."""
        ranks = attempt.ranks()
        for rank in ranks:
            await self._bring_up(attempt, rank)
        asked = attempt.stop_asked()
        if asked is not None:
            for rank in ranks:
                rank.ask_stop(asked["grace_s"])
        await asyncio.gather(*(_settled(rank) for rank in ranks))
        if attempt.started():
            self._report(RunStarted(*attempt.key))
        await asyncio.gather(*(self._follow_rank(rank, ranks) for rank in ranks))
        exits = [rank.exit() for rank in ranks]
        end = verdict(attempt.key, exits, attempt.stop_asked(), attempt.deciding())
        end = replace(end, ended_at=last_end(exits))
        attempt.settle(end)
        return end

    async def _hear(self) -> None:
        """Report progress of runs whenever it has changed."""
        heard: dict[tuple[str, int], Progress] = {}
        while True:
            await self._hearing.wait(HEAR_S)
            heard = {key: told for key, told in heard.items() if key in self._live}
            for key, attempt in list(self._live.items()):
                try:
                    progress = attempt.progress()
                except OSError:  # next time
                    continue
                if progress is not None and heard.get(key) != progress:
                    heard[key] = progress
                    self._report(progress)
                await asyncio.sleep(0)

    async def _bring_up(self, attempt: AttemptDir, rank: RankDir) -> None:
        """Start a task that was claimed and not started, as after a crash in between."""
        if rank.touched() or rank.alive():
            return
        if (rank.path / "lock").exists():  # a supervisor was coming up and is dead
            await _emptied(rank.kill_strays)
        if attempt.stop_asked() is None:
            pid = rank.spawn()
            if pid is not None:
                self._children.add(pid)

    async def _follow_rank(self, rank: RankDir, gang: list[RankDir]) -> None:
        """Wait until nothing of a task is alive; if it failed or decided the run, end its gang."""
        await _dead(rank)
        self._reap()
        exit_ = rank.exit()
        await _emptied(rank.kill_strays if exit_ is None else rank.kill_group)
        if ends_gang(rank, gang):
            for other in gang:
                if other is not rank and other.alive():
                    other.ask_stop(rank.spec()["grace_s"])

    def _reap(self) -> None:
        for pid in list(self._children):
            with suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            self._children.discard(pid)


def _hosts(run: Run) -> list[str]:
    """Addresses of the tasks of a gang, by rank; [] for a job of one task."""
    return [HERE] * len(run.slots) if run.is_gang else []


async def _settled(rank: RankDir) -> None:
    """Wait until a task was started, or its supervisor is gone."""
    while rank.shim_pid() is None and rank.alive():
        await asyncio.sleep(RETRY_S)


async def _dead(rank: RankDir) -> None:
    """Wait until a task's supervisor is gone, which ends its pidfd and its lock whatever its parent is."""
    while rank.alive():
        pid = rank.shim_pid()
        try:
            handle = os.pidfd_open(pid or 0)
        except OSError:  # no pidfd here, or it is ending
            await asyncio.sleep(RETRY_S)
            continue
        try:
            if rank.alive():  # so the number was the supervisor's, unless the job wrote it
                await _readable(handle)
        finally:
            os.close(handle)


async def _readable(fd: int) -> None:
    loop, ready = asyncio.get_running_loop(), Wake()
    loop.add_reader(fd, ready.ring)
    try:
        await ready.wait(LOOK_AGAIN_S)
    finally:
        loop.remove_reader(fd)


async def _emptied(kill: Callable[[], bool]) -> None:
    """Kill until nothing is left."""
    while kill():
        await asyncio.sleep(RETRY_S)


def _resolved(lease: Path | None) -> str | None:
    return None if lease is None else str(lease.resolve())


def unwatched(_event: Event) -> None:
    """The report while no watch is on: the next watch lists what happened."""
