"""What users do: jobs of many kinds, and then other wishes, often at a bad moment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from starburst.app.errors import UserError
from starburst.app.jobs import submitting
from starburst.app.reading.sources import ManifestText
from starburst.clusters.kubernetes.runs.identity import adopted_id
from starburst.domain.job import OWNER, JobEdit, Phase
from starburst.kube import names
from starburst.kube.resources import JOBS
from starburst.store.errors import StoreError
from starburst.store.listings import queries
from starburst.store.listings.row_types import JobRow
from starburst.store.store import Store
from tests.storm.model.cluster import ModelCluster
from tests.storm.model.http import HttpClient, LostError

#: Where applied jobs lie, and their share.
NAMESPACE, APPLIED = "team", 0.2
#: Share of the other jobs that come over HTTP.
OVER_HTTP = 0.3
USERS, QUEUES = ("ada", "bob", "cid"), ("research", "vision", "batch")
#: What users ask for; phases in which a wish comes at a bad moment, and in which none does anything.
WISHES = ("cancel", "cancel", "hold", "hold", "release", "requeue", "edit")
UNDER_WAY, OVER = ("offloading", "starting", "stopping"), ("succeeded", "failed", "cancelled")


@dataclass(slots=True)
class Asked:
    """A job that was handed in and acknowledged."""

    id: str
    tasks: int
    code: int
    retries: int
    #: The tasks with which it can go on after a loss.
    least: int
    #: A user wished for its end.
    cancelled: bool = False
    after_ok: str | None = None
    after_any: str | None = None
    #: It lies in the cluster, and was not submitted.
    applied: bool = False
    #: The array it is of, and how many of its jobs may run at a time.
    array: str | None = None
    at_once: int | None = None
    #: Whose it is and in which queue, where nobody can change that; "" otherwise.
    user: str = ""
    queue: str = ""


class Users:
    """They submit for most of the time, and go on wishing until the end of it."""

    def __init__(self, seed: int, jobs: int, lasts_s: float, cluster: ModelCluster, largest: int) -> None:
        """`largest`: GPUs of the largest node; only what fits there is kept from the cloud."""
        self._cluster = cluster
        self._draw = Random(f"{seed}/users")
        self._jobs, self._lasts_s, self._largest = jobs, lasts_s, largest
        self.asked: dict[str, Asked] = {}
        #: Of each job the scheduler knows, as stored.
        self.phases: dict[str, Phase] = {}
        self.refused: list[str] = []
        self._count = 0
        self._store: Store | None = None
        #: What those who use HTTP talk to, and who does.
        self.http: HttpClient | None = None
        self._ways = Random(f"{seed}/ways")
        self._elastic = Random(f"{seed}/elastic")
        self.over_http = 0

    @property
    def stores(self) -> list[Store]:
        """The stores that they have open."""
        return [] if self._store is None else [self._store]

    async def submit(self, store: Store) -> None:
        """All the jobs, some of them in bursts."""
        self._store = store
        draw, pause_s = self._draw, self._lasts_s / self._jobs
        while self._count < self._jobs:
            await asyncio.sleep(draw.expovariate(1 / pause_s) if draw.random() < 0.6 else 0.0)
            await self._hand_in(store)

    async def meddle(self, store: Store) -> None:
        """Cancel, hold, release, requeue and edit, for ever; rather what is just on its way somewhere."""
        draw = self._draw
        while True:
            await asyncio.sleep(draw.expovariate(20 / self._lasts_s))
            pending = [name for name in self.asked if not self.asked[name].cancelled]
            live = [name for name in pending[-20:] if self.phases.get(name, "queued") not in OVER]
            live = [name for name in live if self.phases.get(name) in UNDER_WAY] or live
            if live and (rows := queries.jobs(store, ids=[draw.choice(live)])):
                self._wish(store, rows, draw.choice(WISHES))

    def _wish(self, store: Store, rows: list[JobRow], wish: str) -> None:
        draw, mine = self._draw, self.asked[rows[0].id]
        if wish == "cancel":
            mine.cancelled = True
            submitting.cancel(store, rows, now=draw.random() < 0.3, by="")
        elif wish == "hold":
            submitting.hold(store, rows, by="")
            if draw.random() < 0.5:  # and changes his mind at once
                submitting.release(store, rows, by="")
        elif wish == "release":
            submitting.release(store, rows, by="")
        elif wish == "requeue":
            submitting.requeue(store, rows, by="")
        else:
            change = JobEdit(
                max_wait_s=draw.choice((0.0, 600.0)), runtime_estimate_s=draw.choice((60.0, None))
            )
            submitting.edit(store, rows, change, admin=True)

    def regret(self, job_id: str) -> None:
        """A user cancels this job."""
        assert self._store is not None
        if job_id not in self.asked:  # whose submission over HTTP was not answered
            return
        if rows := queries.jobs(self._store, ids=[job_id]):
            self._wish(self._store, rows, "cancel")

    def wished_away(self, metadata: dict[str, Any]) -> None:
        """A user deleted this Job in the cluster."""
        job_id = metadata["labels"].get(names.JOB) or adopted_id(metadata["name"], metadata["uid"])
        if job_id in self.asked:
            self.asked[job_id].cancelled = True

    def let_go(self, store: Store) -> None:
        """Release whatever is held."""
        submitting.release(store, queries.jobs(store, ids=list(self.asked)), by="")

    async def _hand_in(self, store: Store) -> None:
        self._count += 1
        manifest, mine = self._manifest(self._count)
        if self._draw.random() < APPLIED and not self._cluster.is_away:
            self._apply(manifest, mine)
            return
        user = self._draw.choice(USERS)
        if self.http is not None and self._ways.random() < OVER_HTTP:
            keys, user = await self._post(self.http, manifest), ""
        else:
            keys = self._submit(store, manifest, user)
        for key in keys:
            marks = manifest["metadata"]["annotations"]
            after = (marks.get("starburst.io/after-ok"), marks.get("starburst.io/after-any"))
            one = self.asked[key["id"]] = Asked(key["id"], *mine, False, *after)
            one.user, one.queue = user, manifest["metadata"]["labels"]["starburst.io/queue"]
            if (span := marks.get("starburst.io/array")) is not None:
                one.array = f"array of job-{self._count}"
                one.at_once = int(span.partition("%")[2]) if "%" in span else None

    def _submit(self, store: Store, manifest: dict[str, Any], user: str) -> list[dict[str, Any]]:
        """As from the command line; the acknowledged jobs."""
        source = ManifestText(f"job-{self._count}.yaml", json.dumps(manifest))
        try:
            found = submitting.read_sources(store, [source], user, submitter=OWNER, seed=f"s{self._count}")
            return submitting.submit(store, found, allow_unsatisfiable=True)
        except (UserError, StoreError) as error:
            self.refused.append(str(error))
            return []

    async def _post(self, http: HttpClient, manifest: dict[str, Any]) -> list[dict[str, Any]]:
        """Over HTTP, again until an answer comes; jobs of which nobody heard run, too."""
        while True:
            try:
                status, answer = await http.post("/api/v1/jobs", manifest)
            except LostError:
                await asyncio.sleep(5.0)
                continue
            self.over_http += 1
            if status != 201:
                self.refused.append(f"{status}: {answer}")
            return answer if status == 201 else []

    def _apply(self, manifest: dict[str, Any], mine: tuple[int, int, int, int]) -> None:
        """As with kubectl; such a job comes after no other."""
        manifest["metadata"] |= {"namespace": NAMESPACE, "name": f"applied-{self._count}"}
        marks = manifest["metadata"]["annotations"]
        for name in ("starburst.io/after-ok", "starburst.io/after-any", "starburst.io/array"):
            marks.pop(name, None)
        manifest["spec"]["template"]["spec"]["schedulerName"] = names.CHAKRA
        made = self._cluster.add(JOBS, manifest)["metadata"]
        job_id = adopted_id(made["name"], made["uid"])
        self.asked[job_id] = Asked(job_id, *mine, applied=True)

    def _manifest(self, number: int) -> tuple[dict[str, Any], tuple[int, int, int, int]]:
        draw = self._draw
        gang = draw.random() < 0.2
        tasks, gpus = (
            (draw.choice((2, 3)), draw.choice((1, 2))) if gang else (1, draw.choice((0, 1, 1, 1, 2, 4)))
        )
        work_s = draw.choice((30, 300, 1200, 3600)) * draw.uniform(0.5, 2.0)
        code = 1 if draw.random() < (0.3 if gang else 0.1) else 0
        retries = draw.choice((0, 0, 1, 3)) if code else draw.choice((0, 2))
        marks = dict(self._annotations(work_s, tasks * gpus))
        least = 1 if gang and self._elastic.random() < 0.5 else tasks
        if least < tasks:
            marks["starburst.io/elastic"] = "true"
        if not gang and draw.random() < 0.08:
            marks["starburst.io/array"] = draw.choice(("0-1", "0-2%1", "0-3%2"))
        limits = {"cpu": str(draw.choice((1, 2, 4))), "memory": "4Gi"}
        if gpus:
            limits["nvidia.com/gpu"] = str(gpus)
        container = {
            "name": "main",
            "image": "busybox",
            "command": ["work", f"{work_s:.0f}", str(code)],
            "resources": {"limits": limits},
        }
        pod = {
            "containers": [container],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": draw.choice((5, 30, 120)),
        }
        spec: dict[str, Any] = {"backoffLimit": retries, "template": {"spec": pod}}
        if gang:
            spec |= {"completions": tasks, "parallelism": tasks, "completionMode": "Indexed"}
        queue = draw.choice(QUEUES)
        metadata = {
            "name": f"job-{number}",
            "labels": {"starburst.io/queue": queue},
            "annotations": marks,
        }
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
        return job, (tasks, code, retries, least)

    def _annotations(self, work_s: float, gpus: int) -> Iterator[tuple[str, str]]:
        draw = self._draw
        if draw.random() < 0.8:
            yield "starburst.io/runtime-estimate", f"{work_s * draw.choice((0.1, 1, 1, 1, 5)):.0f}s"
        if draw.random() < 0.6:
            yield "starburst.io/checkpoint", "true"
        cloud = draw.choice(("auto", "auto", "auto", "never", "only"))
        yield "starburst.io/cloud", "auto" if cloud == "never" and gpus > self._largest else cloud
        known = [name for name, asked in self.asked.items() if not asked.applied]
        if known and draw.random() < 0.12:
            kind = draw.choice(("after-ok", "after-any"))
            yield f"starburst.io/{kind}", draw.choice(known[-8:])
        if draw.random() < 0.15:
            yield "starburst.io/max-wait", draw.choice(("0s", "10m", "2h"))
