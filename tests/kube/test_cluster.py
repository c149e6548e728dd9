"""The adapter and the Job controller of a real server agree; Chakra and kubelets are played (see `Hands`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from starburst.core.model.events import ReleaseRequested, RunStarted
from starburst.domain.job import Phase
from starburst.kube import names
from starburst.kube.api import STRATEGIC, Api
from starburst.kube.errors import ApiError
from starburst.kube.features import detect
from starburst.kube.resources import EVENTS, JOBS, NAMESPACES, NODES, PODS, Object
from tests.clusters.kubernetes.scene import NS, FakeDesk, Scene, a_job, a_pod
from tests.kube.chakra_lab import make_namespace, make_node
from tests.kube.lab import Lab
from tests.kube_unit import server_ways

NODE = "for-cluster-tests"
#: Wall seconds, which pass here.
PATIENCE_S = 20.0


class Hands:
    """What Chakra and the kubelets would do in one namespace: the API is all that they touch."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._since: dict[str, float] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            jobs = {job["metadata"]["uid"]: job for job in await self._api.list(JOBS, NS)}
            for pod in await self._api.list(PODS, NS):
                with suppress(ApiError):  # it changed under our hands
                    await self._keep(pod, jobs)
            await asyncio.sleep(0.1)

    async def _keep(self, pod: Object, jobs: dict[str, Object]) -> None:
        metadata, phase = pod["metadata"], pod["status"]["phase"]
        name, now = metadata["name"], asyncio.get_running_loop().time()
        *_, seconds, code = pod["spec"]["containers"][0]["command"]
        if "deletionTimestamp" in metadata:
            await self._api.delete(PODS, NS, name, uid=metadata["uid"], grace_s=0)
        elif not pod["spec"].get("nodeName"):
            owner = jobs.get(next((owner["uid"] for owner in metadata.get("ownerReferences", ())), ""))
            if any(
                (item["metadata"].get("annotations") or {}).get(names.NODES) for item in (pod, owner or pod)
            ):
                binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": NODE}}
                await self._api.create(PODS, NS, binding, sub="binding")
        elif phase == "Pending":
            self._since[metadata["uid"]] = now
            await self.put(name, "Running")
        elif phase == "Running" and now - self._since[metadata["uid"]] > float(seconds):
            await self.put(name, "Failed" if int(code) else "Succeeded", int(code))

    async def put(self, pod: str, phase: str, code: int | None = None) -> None:
        """As the kubelet tells of a pod."""
        ended = {"exitCode": code, "reason": "Error" if code else "Completed"}
        state: Object = {"running": {}} if code is None else {"terminated": ended}
        told = {"name": "main", "state": state, "ready": False, "restartCount": 0, "image": "", "imageID": ""}
        status = {"phase": phase, "containerStatuses": [told]}
        await self._api.patch(PODS, NS, pod, {"status": status}, sub="status", kind=STRATEGIC)


class Real(Scene):
    """A scene whose world is a real server."""

    def __init__(self, lab: Lab, api: Api, logs: Path) -> None:
        self.lab, self.api, self.hands = lab, api, Hands(api)
        super().__init__(None, FakeDesk(), logs)  # type: ignore[arg-type]

    async def _connect(self) -> Api:
        return await Api.connect(self.lab.kubeconfig)

    async def eventually(self, true: Callable[[], Awaitable[Any]], what: str) -> None:
        """Wait for something that the server has to be asked for."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + PATIENCE_S
        while not await true():
            assert loop.time() < give_up, f"{what}: it never came: {self.reports}"
            await asyncio.sleep(0.1)

    async def job(self, name: str = "train") -> Object:
        return await self.api.get(JOBS, NS, name)

    async def true_conditions(self, name: str = "train", resource: Any = JOBS) -> set[str]:
        status = (await self.api.get(resource, NS, name)).get("status") or {}
        return {each["type"] for each in status.get("conditions") or () if each["status"] == "True"}

    async def pods_now(self) -> list[Object]:
        return await self.api.list(PODS, NS)

    async def alive(self) -> int:
        return sum(pod["status"]["phase"] in ("Pending", "Running") for pod in await self.pods_now())

    async def running_now(self) -> int:
        return sum(pod["status"]["phase"] == "Running" for pod in await self.pods_now())

    async def taken(self, item: Object) -> str:
        """Apply an object; the id of its job once the core took it up."""
        resource, name = (JOBS if item["kind"] == "Job" else PODS), item["metadata"]["name"]
        await self.api.create(resource, NS, item)

        async def marked() -> bool:
            metadata = (await self.api.get(resource, NS, name))["metadata"]
            return names.ADOPTED in (metadata.get("annotations") or {})

        await self.eventually(marked, "adopted")
        job_id: str = (await self.api.get(resource, NS, name))["metadata"]["labels"][names.JOB]
        self.take_up(job_id)
        return job_id


def play(lab: Lab, logs: Path, act: Callable[[Real], Awaitable[None]]) -> None:
    """One act, in a namespace that is empty before and after it."""

    async def main() -> None:
        async with await Api.connect(lab.kubeconfig) as api:
            if await api.find(NAMESPACES, "", NS) is None:
                await make_namespace(api, NS)
            if await api.find(NODES, "", NODE) is None:
                await make_node(api, NODE)
            scene = Real(lab, api, logs)
            playing = asyncio.create_task(scene.hands.run())
            try:
                await scene.watch()
                await asyncio.wait_for(act(scene), 3 * PATIENCE_S)
            finally:
                await scene.die()
                for resource in (JOBS, PODS):
                    for item in await api.list(resource, NS):
                        await api.delete(resource, NS, item["metadata"]["name"], propagation="Foreground")
                await scene.eventually(lambda: nothing_left(api), "an empty namespace")
                playing.cancel()
                with suppress(asyncio.CancelledError):
                    await playing

    asyncio.run(main())


async def nothing_left(api: Api) -> bool:
    return not await api.list(JOBS, NS) and not await api.list(PODS, NS)


def test_runs_are_jobs_that_complete_fail_and_are_refused(api_server: Lab, tmp_path: Path) -> None:
    async def act(scene: Real) -> None:
        scene.submit("good", args=("0.5", "0"))
        scene.submit("bad", args=("0.5", "3"))
        scene.submit("wrong", restartPolicy="x", template={"spec": {"containers": []}})
        for job_id in ("good", "bad", "wrong"):
            run = await scene.start(job_id, NODE)
            if job_id == "good":
                await scene.cluster.start(run)
        await scene.until(lambda: len(scene.ends) == 3, PATIENCE_S)
        assert sorted(scene.ends) == [("bad", 1, "exited"), ("good", 1, "exited"), ("wrong", 1, "refused")]
        codes = {end.job_id: end.exit_code for end in scene.reports if hasattr(end, "exit_code")}
        assert (codes["good"], codes["bad"]) == (0, 3)
        assert RunStarted("good", 1) in scene.reports
        assert "Complete" in await scene.true_conditions("good-1")
        assert "Failed" in await scene.true_conditions("bad-1")
        assert len(await scene.api.list(JOBS, NS)) == 2

    play(api_server, tmp_path, act)


def test_a_stop_takes_job_and_pods_away_and_a_restart_finds_what_runs(
    api_server: Lab, tmp_path: Path
) -> None:
    async def act(scene: Real) -> None:
        scene.submit(args=("600", "0"))
        await scene.start("a", NODE)
        await scene.until(lambda: RunStarted("a", 1) in scene.reports, PATIENCE_S)
        await scene.restart()
        assert ("a", 1) in scene.synced[-1].known
        assert scene.ends == []
        await scene.cluster.stop("a", 1, 5.0)
        await scene.until(lambda: scene.ends, PATIENCE_S)
        assert (scene.ends, scene.cancels) == ([("a", 1, "stopped")], [])
        assert await nothing_left(scene.api)

    play(api_server, tmp_path, act)


def test_the_job_controller_ends_the_rest_of_a_gang_that_lost_a_pod(api_server: Lab, tmp_path: Path) -> None:
    async def act(scene: Real) -> None:
        scene.submit(args=("600", "0"), tasks=2)
        await scene.start("a", NODE, NODE)
        await scene.until(lambda: RunStarted("a", 1) in scene.reports, PATIENCE_S)
        first = (await scene.pods_now())[0]["metadata"]["name"]
        await scene.hands.put(first, "Failed", 7)
        await scene.until(lambda: scene.ends, PATIENCE_S)
        assert scene.ends == [("a", 1, "exited")]
        assert scene.reports[-1].exit_code == 7  # type: ignore[union-attr]
        assert await scene.alive() == 0

    play(api_server, tmp_path, act)


def test_a_drained_pod_is_made_again_or_displaces_its_run_but_never_fails_it(
    api_server: Lab, tmp_path: Path
) -> None:
    async def act(scene: Real) -> None:
        scene.submit(args=("600", "0"))
        await scene.start("a", NODE)
        await scene.until(lambda: RunStarted("a", 1) in scene.reports, PATIENCE_S)
        (pod,) = await scene.pods_now()
        await scene.api.delete(PODS, NS, pod["metadata"]["name"], grace_s=5)

        async def came_of_it() -> bool:
            again = [
                each for each in await scene.pods_now() if each["metadata"]["uid"] != pod["metadata"]["uid"]
            ]
            return bool(again or scene.ends)

        await scene.eventually(came_of_it, "another pod, or an end")
        assert {how for _, _, how in scene.ends} <= {"displaced"}

    play(api_server, tmp_path, act)


@pytest.mark.parametrize("ran_before", [False, True], ids=["held", "running"])
def test_a_withdrawn_job_does_not_fail_and_stays_complete_when_its_end_is_written(
    api_server: Lab, tmp_path: Path, ran_before: bool
) -> None:
    async def act(scene: Real) -> None:
        job_id = await scene.taken(a_job(args=("600", "0"), activeDeadlineSeconds=3600))
        assert "activeDeadlineSeconds" not in (await scene.job())["spec"]
        if ran_before:
            await scene.start(job_id, NODE)
            await scene.until(lambda: RunStarted(job_id, 1) in scene.reports, PATIENCE_S)
            assert (await scene.job())["spec"]["activeDeadlineSeconds"] >= 3600
            await scene.cluster.stop(job_id, 1, 5.0)
            await scene.until(lambda: scene.ends, PATIENCE_S)
            assert scene.ends == [(job_id, 1, "stopped")]
        scene.away(job_id)
        await scene.eventually(lambda: is_withdrawn(scene), "withdrawn")
        assert (await scene.job())["status"].get("failed", 0) == 0
        scene.away(job_id, Phase.RUNNING)
        await scene.eventually(lambda: has(scene, "starburst.io/Offloaded"), "shown as offloaded")
        assert not {"Failed", "Complete"} & await scene.true_conditions()
        scene.end(job_id, Phase.SUCCEEDED, 0, "finished")
        await scene.eventually(lambda: has(scene, "Complete"), "complete")
        for number in range(3):  # have the Job controller look at it again
            change = {"metadata": {"labels": {"x": str(number)}}}
            await scene.api.patch(JOBS, NS, "train", change)
            await asyncio.sleep(0.3)
        job = await scene.job()
        marks = job["metadata"]["annotations"]
        assert "Complete" in await scene.true_conditions()
        assert job["status"]["completionTime"]
        assert (marks[names.EXIT_CODE], marks[names.LOGS]) == ("0", f"starburst logs {job_id}")
        assert (await scene.alive(), scene.cancels) == (0, [])

    play(api_server, tmp_path, act)


async def is_withdrawn(scene: Real) -> bool:
    """As this server does it."""
    none_wanted = server_ways.is_withdrawn(await scene.job(), await detect(scene.api))
    return none_wanted and not await scene.pods_now()


async def has(scene: Real, condition: str, name: str = "train", resource: Any = JOBS) -> bool:
    return condition in await scene.true_conditions(name, resource)


def test_an_adopted_job_comes_home_completes_and_its_user_sees_how_it_stood(
    api_server: Lab, tmp_path: Path
) -> None:
    async def act(scene: Real) -> None:
        job_id = await scene.taken(a_job(args=("0.5", "0"), tasks=2))
        await scene.eventually(lambda: has(scene, "starburst.io/Queued"), "shown as queued")
        scene.away(job_id)
        await scene.eventually(lambda: is_withdrawn(scene), "withdrawn")
        scene.away(job_id, Phase.RUNNING)
        await scene.start(job_id, NODE, NODE)
        await scene.until(lambda: scene.ends, PATIENCE_S)
        assert scene.ends == [(job_id, 2, "exited")]
        scene.end(job_id, Phase.SUCCEEDED, 0)
        await scene.eventually(lambda: has(scene, "Complete"), "complete")
        assert (await scene.job())["status"]["succeeded"] == 2
        reasons = {event["reason"] for event in await scene.api.list(EVENTS, NS)}
        assert {"Queued", "Offloaded", "Placed"} <= reasons

    play(api_server, tmp_path, act)


def test_a_suspended_job_is_taken_in_as_held_and_let_go_when_it_is_resumed(
    api_server: Lab, tmp_path: Path
) -> None:
    async def act(scene: Real) -> None:
        if not (await detect(scene.api)).suspend:
            pytest.skip("this server has no suspended Jobs (1.22)")
        job_id = await scene.taken(a_job(args=("0.5", "0"), suspend=True))
        assert scene.desk.submissions[job_id].job.hold
        record = scene.desk.records[job_id]
        record.phase = Phase.HELD
        await scene.api.patch(JOBS, NS, "train", {"spec": {"suspend": False}})
        await scene.until(lambda: ReleaseRequested(job_id) in scene.reports, PATIENCE_S)
        record.phase = Phase.QUEUED
        scene.told(record)
        await scene.start(job_id, NODE)
        await scene.until(lambda: scene.ends, PATIENCE_S)
        assert scene.ends == [(job_id, 1, "exited")]

    play(api_server, tmp_path, act)


def test_a_job_deleted_as_kubectl_does_is_cancelled(api_server: Lab, tmp_path: Path) -> None:
    async def act(scene: Real) -> None:
        job_id = await scene.taken(a_job(args=("600", "0")))
        await scene.start(job_id, NODE)
        await scene.until(lambda: RunStarted(job_id, 1) in scene.reports, PATIENCE_S)
        await scene.api.delete(JOBS, NS, "train", propagation="Background")
        await scene.until(lambda: scene.cancels, PATIENCE_S)
        assert set(scene.cancels) == {job_id}
        await scene.cluster.stop(job_id, 1, 5.0)
        await scene.until(lambda: scene.ends, PATIENCE_S)
        assert {how for _, _, how in scene.ends} == {"stopped"}
        assert await scene.alive() == 0

    play(api_server, tmp_path, act)


def test_a_bare_pod_is_run_or_ended_in_its_status(api_server: Lab, tmp_path: Path) -> None:
    async def act(scene: Real) -> None:
        here = await scene.taken(a_pod("here", args=("0.5", "0")))
        away = await scene.taken(a_pod("away"))
        await scene.start(here, NODE)
        scene.away(away)
        scene.away(away, Phase.RUNNING)
        scene.end(away, Phase.SUCCEEDED, 0)
        await scene.until(lambda: scene.ends, PATIENCE_S)
        assert scene.ends == [(here, 1, "exited")]

        async def over() -> bool:
            pod = await scene.api.get(PODS, NS, "away")
            ended = pod["status"]["phase"] == "Succeeded"
            return ended and names.LOGS in (pod["metadata"].get("annotations") or {})

        await scene.eventually(over, "ended in its status")

    play(api_server, tmp_path, act)
