"""What the fake API server is a model of: a real one, asked by the same code."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from starburst.kube import api as api_module
from starburst.kube.api import JSON_PATCH, STRATEGIC, Api
from starburst.kube.errors import ApiError
from starburst.kube.features import detect
from starburst.kube.objects import PodView, read_job, read_node, read_pod
from starburst.kube.recorder import ObjectReference, Recorder
from starburst.kube.resources import EVENTS, JOBS, NAMESPACES, NODES, PODS, Object
from tests.kube.lab import Lab
from tests.kube_unit.samples import Told, phase_of, reflecting
from tests.kube_unit.server_ways import cuts_lists

#: Wall seconds; a controller may take a while on a busy machine.
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Place:
    """A namespace of a test's own."""

    api: Api
    name: str

    def pod(self, name: str, **spec: Any) -> Object:
        """A pod that no kubelet will ever run."""
        main = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"starburst.io/job": "j"}},
            "spec": {"containers": [main], "schedulerName": "nobody", **spec},
        }

    async def add(self, name: str, **spec: Any) -> Object:
        """Made, as the server has it."""
        return await self.api.create(PODS, self.name, self.pod(name, **spec))


@asynccontextmanager
async def place(lab: Lab) -> AsyncIterator[Place]:
    """Empty, and ready for pods: its service account is there, where the server wants one."""
    async with await Api.connect(lab.kubeconfig) as api:
        name = f"kube-api-{secrets.token_hex(3)}"
        await api.create(NAMESPACES, "", {"metadata": {"name": name}})
        found = Place(api, name)

        async def ready() -> bool:
            try:
                await api.call("POST", PODS.path(name), query={"dryRun": "All"}, body=found.pod("probe"))
            except ApiError as error:
                if error.status in (403, 500):  # no account, or none of its tokens, is there yet
                    return False
                raise
            return True

        await until(ready)
        yield found
        await api.delete(NAMESPACES, "", name)


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not await true():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.05)


async def seen(true: Callable[[], Any]) -> None:
    async def look() -> bool:
        return bool(true())

    await until(look)


def test_what_the_version_promises_is_there(api_server: Lab) -> None:
    async def main() -> None:
        async with place(api_server) as it:
            features = await detect(it.api)
            spec = {"suspend": True, "template": {"spec": {**it.pod("x")["spec"], "restartPolicy": "Never"}}}
            job = {"metadata": {"name": "j"}, "spec": spec}
            kept = await it.api.call("POST", JOBS.path(it.name), query={"dryRun": "All"}, body=job)
            assert features.suspend == ("suspend" in kept["spec"])

    asyncio.run(main())


def test_pods_are_listed_by_pages_and_then_watched(api_server: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "PAGE", 3)

    async def main() -> None:
        async with place(api_server) as it:
            for i in range(7):
                await it.add(f"p{i}")
            names = [f"p{i}" for i in range(7)]
            pages = [items async for items, _ in it.api.pages(PODS, it.name)]
            assert [len(items) for items in pages] == [3, 3, 1]
            assert [item["metadata"]["name"] for items in pages for item in items] == names
            told = Told()
            async with reflecting(
                it.api, PODS, told, read_pod, selector="starburst.io/job=j", sleep=asyncio.sleep
            ):
                await seen(lambda: "synced" in told.all)
                known = {change[1].name for change in told.take() if change != "synced"}
                assert known >= set(names)
                await it.api.patch(
                    PODS, it.name, "p0", {"metadata": {"annotations": {"starburst.io/nodes": "n"}}}
                )
                await it.api.patch(PODS, it.name, "p1", {"metadata": {"labels": {"starburst.io/job": None}}})
                await it.api.delete(PODS, it.name, "p2")
                await it.add("p2")
                await seen(lambda: len(told.all) >= 5)
            changes = [(kind[0], kind[1].name, kind[-1].annotations) for kind in told.all]
            assert told.all[2][2].deleting
            assert changes == [
                ("~", "p0", {"starburst.io/nodes": "n"}),
                ("-", "p1", {}),
                ("~", "p2", {}),  # also without a node it is marked first
                ("-", "p2", {}),
                ("+", "p2", {}),
            ]

    asyncio.run(main())


def test_a_pod_is_bound_once_and_deleted_with_its_grace(api_server: Lab) -> None:
    async def main() -> None:
        async with place(api_server) as it:
            node = f"{it.name}-node"
            await it.api.create(
                NODES, "", {"metadata": {"name": node}, "status": {"allocatable": {"cpu": "3500m"}}}
            )
            view = read_node(await it.api.get(NODES, "", node))
            assert (view.allocatable, view.ready) == ({"cpu": 3500}, False)
            pod = await it.add("p", terminationGracePeriodSeconds=7)
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": "p", "annotations": {"starburst.io/rank": "0"}},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            }
            await it.api.create(PODS, it.name, binding, sub="binding")
            bound = read_pod(await it.api.get(PODS, it.name, "p"))
            assert (bound.node, bound.annotations) == (node, {"starburst.io/rank": "0"})
            with pytest.raises(ApiError) as conflict:
                await it.api.create(PODS, it.name, binding, sub="binding")
            assert conflict.value.status == 409
            assert not await it.api.delete(PODS, it.name, "p", uid="00000000-0000-0000-0000-000000000000")
            assert await it.api.delete(PODS, it.name, "p", uid=pod["metadata"]["uid"])
            marked = await it.api.get(PODS, it.name, "p")
            assert marked["metadata"]["deletionGracePeriodSeconds"] == 7
            assert read_pod(marked).deleting
            assert await it.api.delete(PODS, it.name, "p", grace_s=0)
            assert await it.api.find(PODS, it.name, "p") is None
            assert not await it.api.delete(PODS, it.name, "p")
            await it.api.delete(NODES, "", node)

    asyncio.run(main())


def test_patches_of_all_three_kinds_and_of_the_status(api_server: Lab) -> None:
    async def main() -> None:
        async with place(api_server) as it:
            await it.add("p")
            await it.api.patch(PODS, it.name, "p", {"metadata": {"labels": {"a": "1"}}})
            await it.api.patch(PODS, it.name, "p", {"metadata": {"labels": {"b": "2"}}}, kind=STRATEGIC)
            test = {"op": "test", "path": "/metadata/labels/a", "value": "1"}
            remove = {"op": "remove", "path": "/metadata/labels/a"}
            patched = await it.api.patch(PODS, it.name, "p", [test, remove], kind=JSON_PATCH)
            assert patched["metadata"]["labels"] == {"starburst.io/job": "j", "b": "2"}
            with pytest.raises(ApiError) as refused:
                await it.api.patch(PODS, it.name, "p", [test], kind=JSON_PATCH)
            assert refused.value.status == 422
            stale = {"metadata": {"resourceVersion": "1", "labels": {"c": "3"}}}
            with pytest.raises(ApiError) as conflict:
                await it.api.patch(PODS, it.name, "p", stale)
            assert (conflict.value.status, conflict.value.reason) == (409, "Conflict")
            end = {"name": "main", "image": "none", "imageID": "", "ready": False, "restartCount": 0}
            end["state"] = {"terminated": {"exitCode": 3, "reason": "Error"}}
            status = {"phase": "Failed", "containerStatuses": [end]}
            view = read_pod(await it.api.patch(PODS, it.name, "p", {"status": status}, sub="status"))
            assert (view.over, view.exit_code, view.reason) == (True, 3, "Error")

    asyncio.run(main())


def test_a_job_ends_as_its_conditions_say(api_server: Lab) -> None:
    if api_server.state is None:
        pytest.skip("needs the Job controller of the laboratory")

    async def main() -> None:
        async with place(api_server) as it:
            spec = {
                "backoffLimit": 0,
                "template": {"spec": {**it.pod("x")["spec"], "restartPolicy": "Never"}},
            }
            await it.api.create(JOBS, it.name, {"metadata": {"name": "j"}, "spec": spec})
            view = read_job(await it.api.get(JOBS, it.name, "j"))
            assert (view.scheduler, view.parallelism, view.end) == ("nobody", 1, "")

            async def has_pod() -> bool:
                return bool(await it.api.list(PODS, it.name))

            await until(has_pod)
            (pod,) = await it.api.list(PODS, it.name)
            owner = read_pod(pod).owner
            assert owner is not None
            assert (owner.kind, owner.name, owner.uid) == ("Job", "j", view.uid)
            await it.api.patch(
                PODS, it.name, pod["metadata"]["name"], {"status": {"phase": "Failed"}}, sub="status"
            )

            async def over() -> bool:
                return read_job(await it.api.get(JOBS, it.name, "j")).end == "Failed"

            await until(over)
            view = read_job(await it.api.get(JOBS, it.name, "j"))
            assert view.end_reason == "BackoffLimitExceeded"
            assert view.started_at == pytest.approx(time.time(), abs=300)

    asyncio.run(main())


def test_events_are_taken_and_repeats_counted(api_server: Lab) -> None:
    async def main() -> None:
        async with place(api_server) as it:
            pod = await it.add("p")
            regarding = ObjectReference("Pod", "v1", it.name, "p", pod["metadata"]["uid"])
            recorder = Recorder(it.api, "starburst")
            for _ in range(3):
                await recorder.event(regarding, "Warning", "FailedScheduling", "0/5 nodes are available")
            await Recorder(it.api, "starburst").event(
                regarding, "Warning", "FailedScheduling", "0/5 nodes are available"
            )
            await recorder.event(regarding, "Normal", "Placed", "x" * 5000)
            found = {event["reason"]: event for event in await it.api.list(EVENTS, it.name)}
            assert set(found) == {"FailedScheduling", "Placed"}
            assert found["FailedScheduling"]["count"] == 4
            assert found["FailedScheduling"]["involvedObject"]["uid"] == regarding.uid
            node = ObjectReference("Node", "v1", "", f"{it.name}-node", "u")
            await recorder.event(node, "Normal", "Watched", "it is in no namespace")
            selector = {"fieldSelector": f"involvedObject.name={node.name}"}
            answer = await it.api.call("GET", EVENTS.path("default"), query=selector)
            assert len(answer["items"]) == 1

    asyncio.run(main())


def test_a_list_that_a_compaction_of_etcd_cuts_in_two_is_begun_anew(
    api_server: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    if api_server.state is None:
        pytest.skip("needs the etcd of the laboratory")
    monkeypatch.setattr(api_module, "PAGE", 2)
    etcd = etcd_of(api_server)

    async def main() -> None:
        async with place(api_server) as it:
            for i in range(5):
                await it.add(f"p{i}")
            pages = it.api.pages(PODS, it.name)
            await anext(pages)
            await it.add("later")
            await asyncio.to_thread(compact, etcd)
            if not cuts_lists(await detect(it.api)):
                await anext(pages)  # the server's own memory has the rest
            else:
                with pytest.raises(ApiError) as expired:
                    await anext(pages)
                assert (expired.value.status, expired.value.reason) == (410, "Expired")

            told = Told()
            cut = [True]
            whole = it.api.pages

            async def cut_once(*args: Any) -> AsyncIterator[tuple[list[Object], str]]:
                async for page in whole(*args):
                    yield page
                    if cut:
                        cut.clear()
                        await it.add("another")
                        await asyncio.to_thread(compact, etcd)

            monkeypatch.setattr(it.api, "pages", cut_once)
            async with reflecting(it.api, PODS, told, phase_of, sleep=asyncio.sleep) as reflector:
                await seen(lambda: "synced" in told.all)
                names = {name for name, _ in reflector}
            assert names >= {"another", *(f"p{i}" for i in range(5))}
            assert told.all.count("synced") == 1

    asyncio.run(main())


def etcd_of(lab: Lab) -> str:
    """Its client address, as its command line has it."""
    assert lab.state is not None
    pid = int((lab.state / "etcd.pid").read_text())
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    (url,) = (word.partition("=")[2] for word in words if word.startswith("--listen-client-urls="))
    return url


def compact(etcd: str) -> None:
    """Forget all revisions but the last, through etcd's JSON gateway."""

    def call(path: str, body: Object) -> Object:
        request = urllib.request.Request(f"{etcd}/v3/kv/{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            found: Object = json.load(answer)
            return found

    revision = call("range", {"key": "AA=="})["header"]["revision"]
    call("compaction", {"revision": revision, "physical": True})


def test_a_pod_as_a_real_server_writes_it_is_read_whole(api_server: Lab) -> None:
    async def main() -> PodView:
        async with place(api_server) as it:
            spec = {"nodeSelector": {"zone": "z"}, "hostNetwork": True}
            main = {
                "name": "m",
                "image": "i",
                "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1.5"}},
            }
            return read_pod(await it.add("p", containers=[main], **spec))

    view = asyncio.run(main())
    assert view.requests == {"cpu": 1500, "pods": 1}
    assert view.selector == (("zone", "z"),)
    assert view.host_ports == ("TCP/80",)
    assert {answer.key for answer in view.rules.tolerations} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }
    assert view.created_at == pytest.approx(time.time(), abs=300)
