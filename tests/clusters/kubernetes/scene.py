"""The adapter in a living world, and a desk whose records a test writes by hand."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from kubernetes.aio.client import ApiClient, Configuration

from starburst.app.reading.requests import FoundObject, read
from starburst.clusters.kubernetes.cluster import KubernetesCluster
from starburst.clusters.kubernetes.options import ClusterOptions
from starburst.clusters.kubernetes.runs.stalls import StartLimits
from starburst.core.model.actions import Slot
from starburst.core.model.decisions import Decision
from starburst.core.model.events import CancelRequested, Event, NodesChanged, RunEnded, RunStarted, SiteSynced
from starburst.core.model.jobs import JobRecord
from starburst.core.state import Changes
from starburst.domain.job import ANYBODY, Adopted, Job, Phase, Site, Submission, Workload
from starburst.domain.resources import Resources
from starburst.kube import names
from starburst.kube.api import Api
from starburst.kube.resources import EVENTS, JOBS, PODS, Resource
from starburst.runs.ports import Run
from tests.clusters.kubernetes.world import PatientApi, World, run
from tests.kube_unit.store import Object, RefusedError
from translator.manifests.tenancy import Tenancy

ME, NS = "store-1", "team"
#: Wall seconds, virtual ones here.
BIND_LIMIT_S, START_LIMIT_S = 30.0, 300.0


class FakeDesk:
    """What the scheduler knows."""

    def __init__(self) -> None:
        self.submissions: dict[str, Submission] = {}
        self.records: dict[str, JobRecord] = {}
        #: Jobs that are rolled up, and what is left of those that had a record.
        self.over: set[str] = set()
        self.history: dict[str, JobRecord] = {}
        self.put_back = False
        #: Records asked for, one by one.
        self.asked: list[str] = []

    def submission(self, job_id: str) -> Submission | None:
        return self.submissions.get(job_id)

    def workload(self, job_id: str) -> Workload | None:
        found = self.submissions.get(job_id)
        return None if found is None else found.workload

    def record(self, job_id: str) -> JobRecord | None:
        self.asked.append(job_id)
        return self.records.get(job_id)

    def living(self, job_id: str) -> JobRecord | None:
        found = self.records.get(job_id)
        return None if found is None or found.phase.is_end else found

    def may_lack_runs(self) -> bool:
        return self.put_back

    def past(self, job_id: str) -> JobRecord | None:
        return self.history.get(job_id)

    def roll_up(self, job_id: str) -> None:
        self.history[job_id] = self.records.pop(job_id)
        del self.submissions[job_id]
        self.over.add(job_id)

    def knows(self, job_id: str) -> bool:
        return job_id in self.submissions or job_id in self.over

    def adopted(self) -> dict[str, Adopted]:
        return {
            job_id: submission.workload.adopted
            for job_id, submission in self.submissions.items()
            if submission.workload.adopted is not None
            and not (job_id in self.records and self.records[job_id].phase.is_end)
        }

    def adopted_workloads(self) -> dict[str, Workload]:
        return {job_id: self.submissions[job_id].workload for job_id in self.adopted()}

    def on_cluster(self) -> list[str]:
        return [each.id for each in self.records.values() if each.alive and each.site is Site.CLUSTER]

    def claiming(self) -> list[str]:
        return [
            each.id for each in self.records.values() if each.job.volume_affinity and not each.phase.is_end
        ]

    def submit(self, submissions: Sequence[Submission]) -> Mapping[str, str]:
        for submission in submissions:
            self.submissions.setdefault(submission.job.id, submission)
        return {}


class Scene:
    """A world, a desk, and a Starburst that can die and come back."""

    #: Of the config.
    queues: tuple[str, ...] = ()
    tenancy = Tenancy(NS)

    def __init__(self, world: World, desk: FakeDesk, logs: Path) -> None:
        self.world, self.desk, self._logs = world, desk, logs
        #: All that was ever reported.
        self.reports: list[Event] = []
        self._watching: asyncio.Task[None] | None = None
        self._began = 0.0
        self.reborn()

    # Starburst.

    def reborn(self) -> None:
        """A new process."""
        self.cluster = KubernetesCluster(
            self._connect,
            self.desk,
            ClusterOptions(
                controller=ME,
                tenancy=self.tenancy,
                limits=StartLimits(BIND_LIMIT_S, START_LIMIT_S),
                logs=self._logs,
                read=self._read,
                queues=self.queues,
                clock=self._clock,
            ),
        )

    def _clock(self) -> float:
        """Epoch seconds that pass as the loop's do."""
        loop = asyncio.get_running_loop()
        self._began = self._began or time.time() - loop.time()
        return self._began + loop.time()

    async def _read(self, body: str, job_id: str) -> Submission | str:
        answer = read(FoundObject(body, job_id))
        return "; ".join(answer.problems) if answer.problems else answer.submissions[0]

    async def _connect(self) -> Api:
        return PatientApi(ApiClient(Configuration(host=self.world.url)))

    async def watch(self) -> None:
        """Watch until it has synced."""
        self._watching = asyncio.create_task(self.cluster.watch(self._report))
        before = len(self.synced)
        await self.until(lambda: len(self.synced) > before)

    def start_watching(self) -> None:
        self._watching = asyncio.create_task(self.cluster.watch(self._report))

    async def die(self) -> None:
        """The process is killed; a new one is not watching yet."""
        if self._watching is None:  # to close its connections
            self._watching = asyncio.create_task(self.cluster.watch(lambda event: None))
            await asyncio.sleep(0.01)
        self._watching.cancel()
        with suppress(asyncio.CancelledError):
            await self._watching
        self._watching = None
        self.reborn()

    async def restart(self) -> None:
        await self.die()
        await self.watch()

    def _report(self, event: Event) -> None:
        self.reports.append(event)
        if isinstance(event, RunEnded):
            record = self.desk.records.get(event.job_id)
            if record is not None and record.alive and record.attempt == event.attempt:
                record.phase, record.slots = Phase.QUEUED, ()
        elif isinstance(event, RunStarted):
            record = self.desk.records.get(event.job_id)
            if record is not None and record.phase is Phase.STARTING:
                record.phase = Phase.RUNNING

    @property
    def synced(self) -> list[SiteSynced]:
        return [event for event in self.reports if isinstance(event, SiteSynced)]

    @property
    def ends(self) -> list[tuple[str, int, str]]:
        """Every end, in order: job, attempt, how."""
        return [(e.job_id, e.attempt, e.end.value) for e in self.reports if isinstance(e, RunEnded)]

    def reports_of(self, job_id: str) -> list[RunEnded]:
        """Every end of a job's runs."""
        return [e for e in self.reports if isinstance(e, RunEnded) and e.job_id == job_id]

    @property
    def cancels(self) -> list[str]:
        return [event.job_id for event in self.reports if isinstance(event, CancelRequested)]

    @property
    def nodes(self) -> NodesChanged:
        return [event for event in self.reports if isinstance(event, NodesChanged)][-1]

    # The scheduler.

    def submit(
        self,
        job_id: str = "a",
        *,
        args: tuple[str, str] = ("5", "0"),
        tasks: int = 1,
        namespace: str = NS,
        **spec: Any,
    ) -> JobRecord:
        """A job that came by `starburst submit`."""
        manifest = a_job("its-name", args=args, tasks=tasks, **spec)
        manifest["metadata"]["namespace"] = namespace
        del manifest["metadata"]["labels"]
        job = Job(job_id, "its-name", (Resources(1, 1000, 0),) * tasks, grace_s=20.0)
        submitter = replace(ANYBODY, namespaces=(namespace,)) if namespace != NS else ANYBODY
        self.desk.submit([Submission(job, Workload(manifest=json.dumps(manifest), submitter=submitter))])
        return self.take_up(job_id)

    def take_up(self, job_id: str) -> JobRecord:
        """The core hears of a job."""
        job = self.desk.submissions[job_id].job
        self.desk.records[job_id] = record = JobRecord(
            job, len(self.desk.records) + 1, 0.0, confined=job.confined
        )
        if job.hold:
            record.phase = Phase.HELD
        wait = {"need": "1 GPU", "wait_s": None, "rule": "test"}
        self.told(record, "waits", **wait)
        return record

    def told(self, record: JobRecord, kind: str = "", **numbers: object) -> None:
        """A step of the core touched this job."""
        changes = Changes()
        changes.jobs[record.id] = record
        if kind:
            changes.decisions.append(Decision(1, 0.0, record.id, "Test", kind, numbers))
        self.cluster.told(changes)

    def place(self, job_id: str, *nodes: str) -> Run:
        """The core gives a job a place; the run that is to be started."""
        record, submission = self.desk.records[job_id], self.desk.submissions[job_id]
        record.attempt += 1
        record.phase, record.site = Phase.STARTING, Site.CLUSTER
        record.slots = tuple(Slot(rank, node, Resources(1)) for rank, node in enumerate(nodes))
        self.told(record, "placed", where=nodes[0], need="1 GPU", waited_s=0.0, passed="")
        return Run(record.job, record.attempt, record.slots, submission.workload)

    async def start(self, job_id: str, *nodes: str) -> Run:
        placed = self.place(job_id, *nodes)
        await self.cluster.start(placed)
        return placed

    def away(self, job_id: str, phase: Phase = Phase.OFFLOADING) -> JobRecord:
        """The core sends a job to the cloud."""
        record = self.desk.records[job_id]
        record.phase, record.slots = phase, ()
        if phase is not Phase.OFFLOADING:
            record.site, record.attempt = Site.CLOUD, record.attempt + 1
        self.told(record, "offloaded", why="expired", need="1 GPU", waited_s=60.0, offers="x", rate=1)
        return record

    def end(self, job_id: str, phase: Phase, code: int | None = None, message: str = "its words") -> None:
        """The core says that a job is over."""
        record = self.desk.records[job_id]
        record.phase, record.exit_code, record.message, record.slots = phase, code, message, ()
        self.told(record)

    # The cluster.

    def jobs(self) -> list[str]:
        return [job["metadata"]["name"] for job in self.world.all(JOBS)]

    def pods(self) -> list[Object]:
        return list(self.world.all(PODS))

    def running(self) -> int:
        return sum(pod["status"]["phase"] == "Running" for pod in self.pods())

    def find(self, resource: Resource, name: str) -> Object | None:
        try:
            return self.world.get(resource, NS, name)
        except RefusedError:
            return None

    def the(self, resource: Resource, name: str) -> Object:
        return self.world.get(resource, NS, name)

    def marks(self, name: str, resource: Resource = JOBS) -> dict[str, str]:
        found: dict[str, str] = self.the(resource, name)["metadata"].get("annotations") or {}
        return found

    def conditions(self, name: str, resource: Resource = JOBS) -> list[str]:
        """Those that are true."""
        listed = (self.the(resource, name).get("status") or {}).get("conditions") or ()
        return sorted(each["type"] for each in listed if each["status"] == "True")

    def events(self, reason: str) -> list[Object]:
        return [event for event in self.world.all(EVENTS) if event["reason"] == reason]

    async def adopt(self, item: Object | None = None) -> str:
        """A user applies an object, and the core takes up its job: the id."""
        item = item or a_job()
        self.world.add(JOBS if item["kind"] == "Job" else PODS, item)
        resource = JOBS if item["kind"] == "Job" else PODS
        name = item["metadata"]["name"]
        await self.until(lambda: names.ADOPTED in self.marks(name, resource))
        job_id: str = self.the(resource, name)["metadata"]["labels"][names.JOB]
        self.take_up(job_id)
        return job_id

    async def until(self, true: Callable[[], Any], limit_s: float = 120.0) -> None:
        """Wait for a condition."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + limit_s
        while not true():
            assert loop.time() < give_up, f"it never came: {self.reports[-5:]}, {self.world.asked[-3:]}"
            await asyncio.sleep(0.1)

    async def mute_watches(self, *resources: Resource) -> None:
        """The watches, which begin after what they go on from was listed, hear nothing more."""
        for resource in resources:
            await self.until(partial(self.world.is_watched, resource))
        for resource in resources:
            self.world.mute_watches(resource)

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def a_job(name: str = "train", *, args: tuple[str, str] = ("5", "0"), tasks: int = 1, **spec: Any) -> Object:
    """A user's Job, as it would be applied."""
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["work", *args],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    gang = {"parallelism": tasks, "completions": tasks} if tasks > 1 else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NS, "labels": {names.QUEUE: "q"}},
        "spec": {
            "backoffLimit": 0,
            **gang,
            "template": {
                "spec": {"schedulerName": "chakra", "restartPolicy": "Never", "containers": [container]}
            },
            **spec,
        },
    }


def a_pod(name: str = "alone", *, args: tuple[str, str] = ("5", "0")) -> Object:
    """A user's bare Pod."""
    spec = a_job(args=args)["spec"]["template"]["spec"]
    metadata = {"name": name, "namespace": NS, "labels": {names.QUEUE: "q"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@asynccontextmanager
async def staged(logs: Path, *, minor: str = "20") -> AsyncIterator[Scene]:
    """Nodes n0 and n1, and a Starburst that does not watch yet."""
    async with World(minor) as world:
        for name in ("n0", "n1"):
            world.add_node(name)
        scene = Scene(world, FakeDesk(), logs)
        world.clock = scene._clock
        try:
            yield scene
        finally:
            world.heal()
            await scene.die()
        assert world.broken == []


def play(
    logs: Path, act: Callable[[Scene], Awaitable[None]], *, watching: bool = True, minor: str = "20"
) -> None:
    """One act in virtual time."""

    async def main() -> None:
        async with staged(logs, minor=minor) as scene:
            if watching:
                await scene.watch()
            await act(scene)

    whole: Coroutine[Any, Any, None] = main()
    run(whole)
