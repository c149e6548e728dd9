"""What must be so during and after a run, judged by what really happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from starburst.clouds.sky.machines.machine import COARSE_S, DOWN_S, SWITCH_S
from starburst.clouds.sky.machines.naming import Naming
from starburst.clouds.sky.machines.observer import WORD_S
from starburst.core.model.events import HoldRequested, ReleaseRequested, RunStarted
from starburst.domain.job import Phase
from starburst.domain.money import Money
from starburst.store.listings import queries
from starburst.store.schema import history
from starburst.store.store import Step, Store
from tests.clusters.kubernetes.world import gpus_of
from tests.storm.model.cloud import BEFORE_BOOT_S
from tests.storm.starvation import Starvation
from tests.storm.windows import Windows

if TYPE_CHECKING:
    from tests.storm.run import Storm
    from tests.storm.users import Asked

ENDS = ("succeeded", "failed", "cancelled")
WAITS = (Phase.QUEUED, Phase.BLOCKED)
#: Decisions for which something must have gone wrong.
TROUBLE = ("lost", "not-started", "launch-failed", "unreachable", "unfit", "fenced", "stalled")
#: Faults without which no machine's lease passes.
CUTS = (
    "killed",
    "crash",
    "all-dark",
    "ssh",
    "cut-off",
    "sky",
    "disk",
    "store",
    "fsync",
    "listing",
    "refuses",
    "api",
    "wait",
    "suspended",
)
#: By how much a machine's bill may be too long where nobody tells its end, seconds: its lease, the
#: idle minutes, and what its switch takes at most.
LATE_S = 1200 + 60 * 5 + SWITCH_S + DOWN_S + COARSE_S


class Verdict:
    """What was wrong, a line each."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        self.wrong: list[str] = []
        #: How each job ended, as stored.
        self.ends: dict[str, str] = {}
        #: Decisions that were stored, by subject.
        self.decisions: Counter[str] = Counter()
        #: Machines that came up.
        self.up: set[str] = set()
        #: How often what was looked at.
        self.checked: Counter[str] = Counter()
        #: The phase of each job, as stored.
        self.phases: dict[str, Phase] = {}
        self.starvation = Starvation()
        self.windows = Windows()
        #: When the store was put back, and machines and applied jobs that are younger than what it has now.
        self.put_back_at = 0.0
        self.unbilled: set[str] = set()
        self.applied_since: set[str] = set()

    # During the run.

    def stored(self, step: Step) -> None:
        """A step is durable."""
        now, storm = self._storm.loop.time(), self._storm
        self.checked["steps"] += 1
        self.windows.stepped(step.now, now)
        self.decisions.update(decision.subject for decision in step.changes.decisions)
        self._holds(step)
        self._begun(step)
        self._passed(step, now)
        for decision in step.changes.decisions:
            if not storm.weather.on and decision.kind in TROUBLE:
                self.wrong.append(f"{decision.subject}: though nothing goes wrong: {decision.reason}")
            grace_s = storm.process.config.policy.unreachable
            if decision.kind == "fenced" and decision.numbers["after_s"] < grace_s:  # type: ignore[operator]
                self.wrong.append(f"{decision.subject}: ended before its grace: {decision.reason}")
            self.checked["gangs on fewer machines"] += decision.kind == "shrinks"
            if decision.kind == "ready":
                self.up.add(decision.subject)
            if decision.kind == "launched":
                storm.cloud.offered[decision.subject] = Money(int(decision.numbers["rate"]))
                self._afforded(decision.subject, now)
            if decision.kind in ENDS:
                if decision.subject in self.ends:
                    self.wrong.append(f"{decision.subject}: ended twice: {decision.reason}")
                self.ends[decision.subject] = decision.kind
                self._storm.marks.over[decision.subject] = now

    def _holds(self, step: Step) -> None:
        """Who waits and is held is kept out of the queue, unless released at once."""
        before = dict(self.phases)
        self.phases |= {job_id: record.phase for job_id, record in step.changes.jobs.items()}
        wished = {e.job_id for e in step.events if isinstance(e, HoldRequested)}
        wished -= {e.job_id for e in step.events if isinstance(e, ReleaseRequested)}
        for job_id in sorted(wished):
            self.checked["holds"] += 1
            if before.get(job_id) in WAITS and self.phases[job_id] in WAITS:
                self.wrong.append(f"{job_id}: {self.phases[job_id].value} though it was held")

    def _passed(self, step: Step, now: float) -> None:
        """Who waits without end is passed no more often than may be, and then starts."""
        storm, most = self._storm, self._storm.process.config.policy.max_passes
        wrong = self.starvation.stepped(step, most, now, storm.cluster.away_until)
        self.wrong += [wrong] if wrong else []

    def _begun(self, step: Step) -> None:
        """What is reported as started has begun, by itself."""
        for event in step.events:
            if isinstance(event, RunStarted):
                self.checked["starts"] += 1
                self._storm.marks.settle()
                if not self._storm.marks.has_begun(event.job_id, event.attempt) and not self._was_over(
                    event.job_id
                ):
                    what = f"{event.job_id}: attempt {event.attempt} is reported as started"
                    self.wrong.append(f"{what}, and nothing of it ever began")

    def _was_over(self, job: str) -> bool:
        """Whether its Job is Complete: by earlier attempts, or since before the store was put back."""
        marks, asked = self._storm.marks, self._storm.users.asked.get(job)
        if asked and asked.applied and marks.succeeded(job, asked.tasks, asked.least, counts_on=True):
            return True
        return any(
            mark.job == job and mark.code == 0 and (mark.ended_at or 0.0) < self.put_back_at
            for mark in marks.all
        )

    def _afforded(self, machine: str, now: float) -> None:
        """Nothing is rented once the cloud's own bills reach a cap; what is not up is billed as listed."""
        cloud = self._storm.cloud
        for cap in self._storm.process.config.caps:
            if cap.queue is not None or cap.user is not None:
                continue
            began, spent = self.windows.began_at(cap.per, now), 0
            if began is None:
                continue
            self.checked["launches under a cap"] += 1
            for vm in cloud.ours:
                if not vm.cluster.endswith(tuple(self.unbilled)):
                    until = vm.stopped_at or vm.ended_at or now
                    seconds = max(0.0, until - max(began, vm.made_at))
                    rate = cloud.rate_of(vm, listed=not vm.cluster.endswith(tuple(self.up)))
                    spent += rate.for_seconds(seconds).micro_usd
            if spent > 1.02 * 1e6 * float(cap.usd):
                self.wrong.append(f"{machine}: rented at {spent / 1e6:.2f} of {cap.usd} USD per {cap.per}")

    def meanwhile(self) -> None:
        """Now and then."""
        storm = self._storm
        for name, gpus in storm.nodes.items():
            pods = [pod for pod in storm.cluster.pods_on(name) if pod["status"]["phase"] == "Running"]
            used = sum(map(gpus_of, pods))
            if used > gpus:
                self.wrong.append(f"{name}: {used} of {gpus} GPUs are in use")
        if not storm.weather.on:
            self.wrong += [
                f"{vm.id}: its switch is not set"
                for vm in storm.cloud.alive()
                if vm.switch_s is None and vm.made_at < storm.loop.time() - 1800
            ]
        for vm in self._storm.cloud.alive():
            used = sum(
                int(task.spec.get("gpus", 0))
                for task in vm.tasks.values()
                if task.exit is None and task.began_at
            )
            if used > vm.gpus:
                self.wrong.append(f"{vm.id}: {used} of {vm.gpus} GPUs are in use")

    # After it.

    def is_over(self, store: Store) -> bool:
        """Whether there is nothing left to do."""
        storm = self._storm
        rows = queries.jobs(store)
        stored = {row.id for row in rows} | dict(queries.ended(store, storm.users.asked)).keys()
        # Who deletes what he applied before anybody saw it has asked for nothing.
        asked = (
            one
            for one in storm.users.asked.values()
            if one.id in stored or not (one.cancelled or self._is_history(one.id))
        )
        # What came over HTTP, and whose answer was lost, nobody asks for.
        ended = all(one.id in self.ends for one in asked) and all(row.phase in ENDS for row in rows)
        return ended and not storm.cloud.alive() and not queries.instance_records(store)

    def remembered(self) -> None:
        """When all is over the core has forgotten all of it."""
        process = self._storm.process
        if process.controller is None or not process.is_up:
            return
        self.checked["memories"] += 1
        state = process.controller.scheduler.state
        for what, left in (("jobs", state.jobs), ("machines", state.fleet.instances)):
            if left and not state.resting:
                self.wrong.append(f"{len(left)} {what} are still in memory: {sorted(left)[:3]}")

    def unfinished(self, store: Store) -> None:
        """What there still is to do, in the scheduler's words."""
        asked = self._storm.users.asked.keys() - self.ends.keys()
        for row in queries.jobs(store, ids=sorted(asked)):
            said = queries.decisions(store, row.id, last=2)
            self.wrong.append(
                f"{row.id}: {row.phase}: {row.message}: {[decision.reason for decision in said]}"
            )
        for record in queries.instance_records(store):
            said = queries.decisions(store, record.id, last=2)
            self.wrong.append(f"{record.id}: {record.phase}: {[decision.reason for decision in said]}")

    def at_the_end(self) -> None:
        """Judge it all."""
        storm = self._storm
        storm.marks.settle()
        self.checked["runs of tasks"] += len(storm.marks.all)
        self.checked["submissions over HTTP"] += storm.users.over_http
        self.checked["jobs passed too often"] += len(self.starvation.protected)
        self.checked["actions"] += len(storm.process.carried_out)
        self.wrong += storm.process.failures[:3] + storm.process.never_done[:3]
        self.wrong += storm.marks.broken[:5] + storm.cluster.broken[:5]
        with Store.open(storm.process.home.database) as store:
            self._jobs(store)
            self._arrays()
            self._money(store)
            self._log(store)
            self._told(store)
            owed = [action.key for action in store.pending_actions()]
            if owed:
                self.wrong.append(f"owed at the end: {owed[:5]}")
        # What a backup has nothing of, and has a place on the cluster, runs to its end by itself.
        live = [
            each
            for each in storm.marks.open.values()
            if not self.put_back_at or each.job in storm.users.asked
        ]
        if live:
            self.wrong.append(f"still alive: {live[:3]}")
        rented = [vm.id for vm in storm.cloud.alive()]
        if rented:
            self.wrong.append(f"still rented: {rented[:5]}")
        for vm in storm.cloud.strangers:
            if vm.ended_at is not None or vm.stopped_at is not None:
                self.wrong.append(f"{vm.cluster}: ended, though it is another's")

    def _log(self, store: Store) -> None:
        """The log is what was decided, and a machine's lease passed only if something was cut."""
        logged = Counter(decision.subject for decision in queries.decisions(store))
        kept = {row.id for row in queries.jobs(store)}  # what is rolled up takes its decisions along
        self.checked["decisions"] += sum(self.decisions.values())
        for subject, made in self.decisions.items():
            there = logged[subject]
            if there > made or (there < made and subject in kept):
                self.wrong.append(f"{subject}: {made} decisions were made, {there} are in the log")
        weather = self._storm.weather
        if not any(name.startswith(CUTS) for name in weather.counts.keys() | weather.under_way):
            for vm in self._storm.cloud.ours:
                if vm.cluster.endswith(tuple(self.unbilled)):
                    continue  # the store was put back to before it was rented: nobody renews its lease
                late = [
                    name for name, task in vm.tasks.items() if (task.exit or {}).get("ended_by") == "lease"
                ]
                self.wrong += [f"{name}: ended for the lease of {vm.id}" for name in late]

    def _told(self, store: Store) -> None:
        """What the log says has come to the broker, in order, and its states are the last ones."""
        storm = self._storm
        stored = {row.seq for row in queries.decisions(store)}
        if storm.broker.arrived:
            self.checked["decisions at the broker"] += len(set(storm.broker.arrived))
            ended = {row.id: row.phase for row in queries.jobs(store) if row.phase in ENDS}
            self.wrong += list(storm.broker.wrong(stored, ended))[:5]

    def _jobs(self, store: Store) -> None:
        phases = {row.id: row.phase for row in queries.jobs(store)}
        phases |= queries.ended(store, self._storm.users.asked)
        self.checked["jobs"] += len(self._storm.users.asked)
        for name, asked in self._storm.users.asked.items():
            phase = phases.get(name)
            if phase is None and asked.applied and (asked.cancelled or self._is_history(name)):
                continue
            if phase is None:
                self.wrong.append(f"{name}: acknowledged, and not in the store")
            elif phase not in ENDS:
                self.wrong.append(f"{name}: {phase} at the end")
            else:
                self.wrong += [f"{name}: {what}" for what in self._of_job(name, asked, phase)]

    def _is_history(self, name: str) -> bool:
        """Whether an applied job was over when the scheduler came back with a store that has none of it."""
        last = {mark.rank: mark for mark in self._storm.marks.all if mark.job == name}
        return name in self.applied_since and bool(last) and all(it.code is not None for it in last.values())

    def _arrays(self) -> None:
        """Of an array no more jobs run at a time than may, by the marks of their tasks."""
        limits = {one.array: one.at_once for one in self._storm.users.asked.values() if one.at_once}
        self.checked["arrays"] += len(limits)
        for array, at_once in limits.items():
            mine = {one.id for one in self._storm.users.asked.values() if one.array == array}
            marks = [mark for mark in self._storm.marks.all if mark.job in mine]
            for mark in marks:
                there = [m for m in marks if m.began_at <= mark.began_at < (m.ended_at or m.began_at)]
                # Of runs that began since a backup the store that was put back to it knows nothing.
                beside = {m.job for m in there if not m.began_at < self.put_back_at <= mark.began_at}
                if len(beside | {mark.job}) > at_once:
                    self.wrong.append(f"{array}: {len(beside | {mark.job})} of {at_once} run at a time")

    def _of_job(self, name: str, asked: Asked, phase: str) -> Iterator[str]:
        storm = self._storm
        marks = [mark for mark in storm.marks.all if mark.job == name]
        failed = {mark.attempt for mark in marks if mark.code == 1}
        whole = storm.marks.succeeded(name, asked.tasks, asked.least, counts_on=asked.applied)
        if phase == "succeeded" and not whole:
            yield "succeeded by the store, and no attempt of it did"
        if phase == "failed" and asked.code == 0 and not storm.weather.on:
            yield "failed, though its command does not and nothing goes wrong"
        if phase == "cancelled" and not asked.cancelled and asked.after_ok is None:
            yield "cancelled, and no user wished for that"
        if asked.code and not storm.weather.on and len(failed) > asked.retries + 1:
            yield f"its command failed {len(failed)} times, with {asked.retries} retries"
        begins = [min(m.began_at for m in marks if m.attempt == n) for n in {mark.attempt for mark in marks}]
        # A gang that began before its store was put back may have tasks that begin later.
        first = min((at for at in begins if at > self.put_back_at), default=None)
        for other in filter(None, (asked.after_ok, asked.after_any)):
            if first is not None and first < storm.marks.over.get(other, first):
                yield f"began before the end of {other}, which it comes after"

    def _money(self, store: Store) -> None:
        storm = self._storm
        naming = Naming("starburst", str(store.fact("controller")))
        bills: dict[str, list[tuple[int, int]]] = {}
        for cluster in dict.fromkeys(vm.cluster for vm in storm.cloud.ours):
            # Where nobody told its price in time it counts as listed. That it was stopped before it ended
            # its cloud does not say afterwards: then the bill ends when that was noticed.
            least, most = (
                [storm.cloud.bill_of(cluster, listed=listed, stopped=stopped) for listed in (False, True)]
                for stopped in (True, False)
            )
            bills[naming.instance_id(cluster) or cluster] = [
                (first.micro_usd, last.micro_usd) for first, last in zip(least, most, strict=True)
            ]
        records = queries.instance_records(store, include_ended=True)
        books = {record.id: record.micro_usd for record in records if record.micro_usd}
        names = (bills.keys() - self.unbilled) | books.keys()
        self.checked["bills"] += len(names)
        for name in sorted(names):
            ours, theirs = books.get(name, 0), bills.get(name, [(0, 0)])
            if not any(least <= ours <= most for least, most in theirs) and not self._guessed(
                name, ours, theirs
            ):
                told = " or ".join(map(str, sorted({bill for range_ in theirs for bill in range_})))
                self.wrong.append(f"{name}: the cloud's bill is {told}, ours {ours} micro-dollars")
        self._paid(store, books)

    def _guessed(self, name: str, ours: int, theirs: Sequence[tuple[int, int]]) -> bool:
        """Whether a bill is within its bound where the cloud said nothing of a machine for `WORD_S`.

        It then goes from the machine's boot until SkyPilot took it down or its switch must have ended it.
        Of one that never came up, in a cloud that had never answered, it goes until that is settled.
        """
        cloud = self._storm.cloud
        vms = [vm for vm in cloud.ours if vm.labels and vm.cluster.endswith(name)]
        silent = [
            since
            for since, until in cloud.dark
            if until - since >= WORD_S and any(until > vm.made_at for vm in vms)
        ]
        if not silent:
            return False
        self.checked["bills without the cloud's word"] += 1
        had_answered = cloud.answered_at < min(silent)
        late_s = LATE_S if had_answered or name in self.up else LATE_S + WORD_S
        rate = cloud.rate_of(vms[0]) * len(vms)
        early, late = (rate.for_seconds(off_s).micro_usd + 1 for off_s in (BEFORE_BOOT_S, late_s))
        return min(least for least, _ in theirs) - early <= ours <= max(most for _, most in theirs) + late

    def _paid(self, store: Store, books: dict[str, int]) -> None:
        """Each bill was paid by jobs."""
        with store.read() as conn:
            past = conn.scalar(select(func.sum(history.c.cloud_micro_usd))) or 0
        paid = past + sum(row.cloud_micro_usd for row in queries.jobs(store))
        if paid != sum(books.values()):
            self.wrong.append(f"micro-dollars that no job paid: {sum(books.values()) - paid}")
