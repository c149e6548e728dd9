"""What must be so during and after a run, judged by what really happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from starburst.core.model.events import HoldRequested, ReleaseRequested, RunStarted
from starburst.domain.job import Phase
from starburst.domain.money import Money
from starburst.kube import names
from starburst.kube.resources import JOBS
from starburst.store.listings import queries
from starburst.store.store import Step, Store
from tests.clouds.sky.fake_vm import Task
from tests.clusters.kubernetes.world import gpus_of
from tests.storm.bills import Bills
from tests.storm.starvation import Starvation

if TYPE_CHECKING:
    from tests.storm.run import Storm
    from tests.storm.users import Asked

ENDS = ("succeeded", "failed", "cancelled")
WAITS = (Phase.QUEUED, Phase.BLOCKED)
#: Decisions for which something must have gone wrong.
TROUBLE = ("lost", "not-started", "launch-failed", "unreachable", "unfit", "fenced", "stalled")
#: Losses that a job may have (`policy.max_losses`).
MAX_LOSSES = 6
#: Seconds of a machine's lease, by the config of a run.
LEASE_S = 1200.0
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


class Verdict:
    """What was wrong, a line each."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        self.wrong: list[str] = []
        #: How each job ended, as stored.
        self.ends: dict[str, str] = {}
        #: How often a run of each job was lost.
        self.losses: Counter[str] = Counter()
        #: Decisions that were stored, by subject.
        self.decisions: Counter[str] = Counter()
        #: How often what was looked at.
        self.checked: Counter[str] = Counter()
        #: The phase of each job, as stored.
        self.phases: dict[str, Phase] = {}
        self.starvation = Starvation()
        self.bills = Bills(storm, self)
        #: When the store was put back, and machines and applied jobs that are younger than what it has now.
        self.put_back_at = 0.0
        self.put_backs: list[float] = []
        self.unbilled: set[str] = set()
        self.applied_since: set[str] = set()

    # During the run.

    def stored(self, step: Step) -> None:
        """A step is durable."""
        now, storm = self._storm.loop.time(), self._storm
        self.checked["steps"] += 1
        self.bills.windows.stepped(step.now, now)
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
            self.losses[decision.subject] += decision.kind == "lost"
            if decision.kind == "ready":
                self.bills.up.add(decision.subject)
            if decision.kind == "launched":
                storm.cloud.offered[decision.subject] = Money(int(decision.numbers["rate"]))
                self.bills.at_launch(decision.subject, str(decision.numbers["jobs"]).split(", "), now)
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

    def meanwhile(self) -> None:
        """Now and then."""
        storm = self._storm
        self.bills.meanwhile()
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
        self.wrong += storm.loop.unheard[:3]
        self.wrong += storm.process.failures[:3] + storm.process.never_done[:3]
        self.wrong += storm.marks.broken[:5] + storm.cluster.broken[:5]
        with Store.open(storm.process.home.database) as store:
            self._jobs(store)
            self._arrays()
            self.bills.at_the_end(store)
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
        self._left_behind()
        rented = [vm.id for vm in storm.cloud.alive()]
        if rented:
            self.wrong.append(f"still rented: {rented[:5]}")
        for vm in storm.cloud.strangers:
            if vm.ended_at is not None or vm.stopped_at is not None:
                self.wrong.append(f"{vm.cluster}: ended, though it is another's")

    def _left_behind(self) -> None:
        """What is over leaves no Job that could make pods, and no cluster in SkyPilot's list."""
        storm = self._storm
        for job in storm.cluster.all(JOBS):
            labels, spec = job["metadata"].get("labels") or {}, job["spec"]
            over = labels.get(names.JOB) in self.ends and not (job.get("status") or {}).get("conditions")
            if over and not spec.get("suspend"):
                self.wrong.append(f"{job['metadata']['name']}: a Job that goes on, and its job is over")
        mine = {vm.cluster for vm in storm.cloud.ours}
        if known := sorted(mine & storm.cloud.clusters_known.keys()):
            self.wrong.append(f"SkyPilot still lists {known[:3]}")
        if storm.cloud.overbooked and not self.put_back_at:
            self.wrong.append(f"told to begin without room on their machines: {storm.cloud.overbooked[:3]}")

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
                    name
                    for name, task in vm.tasks.items()
                    if (task.exit or {}).get("ended_by") == "lease" and not self._was_led_by_none(task)
                ]
                self.wrong += [f"{name}: ended for the lease of {vm.id}" for name in late]

    def _was_led_by_none(self, task: Task) -> bool:
        """Whether two leaders in turn were stopped while a lease passed: twice the long terms of the lead."""
        assert task.exit is not None
        ended_at = task.exit["ended_at"]
        struck = self._storm.weather.struck
        stops = [at for at, name, _ in struck if name.startswith("leader-stopped") and at < ended_at]
        return len([at for at in stops if at > ended_at - LEASE_S]) > 1

    def _told(self, store: Store) -> None:
        """What the log says has come to the broker, in order, and its states are the last ones."""
        storm = self._storm
        stored = {row.seq for row in queries.decisions(store)}
        if any(name.startswith("broker-") for name in storm.weather.on):
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
                beside = {m.job for m in there if not self._is_forgotten(m.began_at, mark.began_at)}
                if len(beside | {mark.job}) > at_once:
                    self.wrong.append(f"{array}: {len(beside | {mark.job})} of {at_once} run at a time")

    def _is_forgotten(self, began_at: float, now: float) -> bool:
        """Whether the store was put back between these times."""
        return any(began_at < at <= now for at in self.put_backs)

    def _of_job(self, name: str, asked: Asked, phase: str) -> Iterator[str]:
        storm = self._storm
        marks = [mark for mark in storm.marks.all if mark.job == name]
        failed = {mark.attempt for mark in marks if mark.code == 1}
        whole = storm.marks.succeeded(name, asked.tasks, asked.least, counts_on=asked.applied)
        if phase == "succeeded" and not whole:
            yield "succeeded by the store, and no attempt of it did"
        fails = any(mark.code for mark in marks) or self.losses[name] > MAX_LOSSES
        # A store that was put back knows nothing of a cancellation since; its object there has failed.
        fails = fails or (asked.cancelled and asked.applied and bool(self.put_backs))
        if phase == "failed" and not fails:
            yield "failed, and no run of it did"
        if phase == "failed" and asked.code == 0 and not storm.weather.on:
            yield "failed, though its command does not and nothing goes wrong"
        before = None if asked.after_ok is None else self.ends.get(asked.after_ok)
        if phase == "cancelled" and not asked.cancelled and before in (None, "succeeded"):
            yield "cancelled, and no user wished for that"
        if asked.code and not storm.weather.on and len(failed) > asked.retries + 1:
            yield f"its command failed {len(failed)} times, with {asked.retries} retries"
        begins = [min(m.began_at for m in marks if m.attempt == n) for n in {mark.attempt for mark in marks}]
        # A gang that began before its store was put back may have tasks that begin later.
        first = min((at for at in begins if at > self.put_back_at), default=None)
        if first is not None and before in ("failed", "cancelled"):
            yield f"began, though {asked.after_ok}, on whose success it depends, {before}"
        for other in filter(None, (asked.after_ok, asked.after_any)):
            if first is not None and first < storm.marks.over.get(other, first):
                yield f"began before the end of {other}, which it comes after"
