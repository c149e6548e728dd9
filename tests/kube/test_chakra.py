"""Chakra against a real API server: what it binds, what it says, and what survives."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from starburst.kube import names
from starburst.kube.api import Api
from starburst.kube.resources import EVENTS, JOBS, NODES, PODS, Object, Resource
from tests.kube.chakra_lab import (
    GPU,
    chakra,
    empty,
    make_namespace,
    make_node,
    node_of,
    pod,
    set_ready,
    until,
)
from tests.kube.lab import Lab

PRIORITY_CLASSES = Resource("scheduling.k8s.io/v1", "priorityclasses", namespaced=False)

Story = Callable[[Callable[[Api], Coroutine[Any, Any, None]]], None]
NS = "chakra-test"


@pytest.fixture(scope="module")
def running(api_server: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A cluster with a Chakra."""
    log = tmp_path_factory.mktemp("chakra") / "chakra.log"

    async def prepare() -> None:
        async with await Api.connect(api_server.kubeconfig) as api:
            await make_namespace(api, NS)

    asyncio.run(prepare())
    with chakra(api_server, log, "--no-leader-elect", "--preempt"):
        yield api_server
    assert "Traceback" not in log.read_text()


@pytest.fixture
def story(api_server: Lab, running: Lab) -> Story:
    """Runs one, in a cluster without nodes and pods."""
    return tell(api_server)


def tell(lab: Lab) -> Story:
    def told(what: Callable[[Api], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            async with await Api.connect(lab.kubeconfig) as api:
                await empty(api)
                await what(api)

        asyncio.run(whole())

    return told


async def bound(api: Api, *pods: str) -> list[str]:
    """The nodes of pods, once they all have one."""

    async def nodes() -> list[str]:
        found = [await node_of(api, NS, name) for name in pods]
        return found if all(found) else []

    return list(await until(f"{pods} bound", nodes))


async def create(api: Api, *pods: Object) -> None:
    for each in pods:
        await api.create(PODS, NS, each)


async def said(api: Api, name: str, reason: str) -> Object:
    """The event of that reason on a pod, once there is one."""

    async def event() -> Object | None:
        return next((each for each in await events(api, name) if each["reason"] == reason), None)

    found: Object = await until(f"{reason} of {name}", event)
    return found


async def events(api: Api, name: str) -> list[Object]:
    uid = (await api.get(PODS, NS, name))["metadata"]["uid"]
    return [each for each in await api.list(EVENTS, NS) if each["involvedObject"]["uid"] == uid]


def condition(found: Object) -> Object:
    conditions = found["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == "PodScheduled"), {})


def test_pods_go_where_they_fit_best_and_it_is_said(story: Story) -> None:
    async def what(api: Api) -> None:
        await make_node(api, "large", gpus=8)
        await make_node(api, "small", gpus=2)
        await create(api, pod("one", gpus=1), pod("two", gpus=1), pod("three", gpus=4), pod("cpu"))
        assert await bound(api, "one", "two", "three") == ["small", "small", "large"]
        event = await said(api, "one", "Scheduled")
        assert event["message"] == f"Successfully assigned {NS}/one to small"
        assert condition(await api.get(PODS, NS, "one"))["status"] == "True"

    story(what)


def test_what_fits_nowhere_says_why_until_it_fits(story: Story) -> None:
    async def what(api: Api) -> None:
        for number in range(2):
            await make_node(api, f"small{number}", gpus=1)
        taints = [{"key": "team", "value": "ml", "effect": "NoSchedule"}]
        for number in range(3):
            await make_node(api, f"tainted{number}", taints=taints)
        await create(api, pod("big", gpus=2))
        why = (
            "0/5 nodes are available: 2 Insufficient nvidia.com/gpu, "
            "3 node(s) had taint {team: ml}, that the pod didn't tolerate."
        )

        async def unschedulable() -> Object | None:
            found = condition(await api.get(PODS, NS, "big"))
            return found if found.get("message") == why else None

        assert (await until("the condition", unschedulable))["reason"] == "Unschedulable"
        assert (await said(api, "big", "FailedScheduling"))["source"] == {"component": "chakra"}
        await api.patch(NODES, "", "tainted1", {"spec": {"taints": None}})
        assert await bound(api, "big") == ["tainted1"]
        assert condition(await api.get(PODS, NS, "big"))["status"] == "True"

    story(what)


def test_cordons_conditions_selectors_and_affinity_count(story: Story) -> None:
    async def what(api: Api) -> None:
        for name in ("cordoned", "unready", "a", "b"):
            await make_node(api, name, labels={"zone": name})
        await api.patch(NODES, "", "cordoned", {"spec": {"unschedulable": True}})
        await set_ready(api, "unready", False)
        term = {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        spread = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        await create(
            api,
            pod("selects", nodeSelector={"zone": "b"}),
            pod("avoids", affinity={"nodeAffinity": required}),
            pod("waits", nodeSelector={"zone": "cordoned"}),
            pod("spreads", topologySpreadConstraints=[spread]),
        )
        assert await bound(api, "selects", "avoids") == ["b", "b"]
        message = (await said(api, "waits", "FailedScheduling"))["message"]
        assert "1 node(s) were unschedulable" in message
        assert "1 node(s) were not ready" in message
        assert "2 node(s) didn't match Pod's node affinity/selector" in message
        message = (await said(api, "spreads", "FailedScheduling"))["message"]
        assert "4 unsupported demand spec.topologySpreadConstraints" in message
        await api.patch(NODES, "", "cordoned", {"spec": {"unschedulable": None, "taints": None}})
        assert await bound(api, "waits") == ["cordoned"]

    story(what)


def test_a_gang_starts_whole(story: Story) -> None:
    async def what(api: Api) -> None:
        await make_node(api, "a", gpus=4)
        gang = {names.GANG: "train/3"}
        await create(api, *(pod(f"g{i}", gpus=2, keys=gang) for i in range(3)))
        message = (await said(api, "g2", "FailedScheduling"))["message"]
        assert message.startswith("gang train needs 3 places at once, found 2: 0/1 nodes are available")
        await create(api, pod("single", gpus=2))
        assert await bound(api, "single") == ["a"]
        await make_node(api, "b", gpus=4)
        assert sorted(await bound(api, "g0", "g1", "g2")) == ["a", "b", "b"]
        pods = [await api.get(PODS, NS, f"g{i}") for i in range(3)]
        assert sorted(each["metadata"]["annotations"][names.RANK] for each in pods) == ["0", "1", "2"]

    story(what)


def test_starbursts_pods_are_held_and_then_bound_by_rank(story: Story) -> None:
    async def what(api: Api) -> None:
        for name in ("a", "b"):
            await make_node(api, name)
        template = {"spec": {**pod("x", gpus=2)["spec"], "restartPolicy": "Never"}}
        spec = {"parallelism": 3, "completions": 3, "template": template}
        await api.create(
            JOBS, NS, {"metadata": {"name": "train", "labels": {names.QUEUE: "q"}}, "spec": spec}
        )

        async def pods() -> list[Object]:
            found = await api.list(PODS, NS, "job-name=train")
            return found if len(found) == 3 else []

        held = await until("three pods", pods)
        event = await said(api, held[0]["metadata"]["name"], "Waiting")
        assert event["type"] == "Normal"
        await api.patch(JOBS, NS, "train", {"metadata": {"annotations": {names.NODES: "b,a,b"}}})
        await bound(api, *(each["metadata"]["name"] for each in held))
        found = {
            each["metadata"]["annotations"][names.RANK]: each["spec"]["nodeName"] for each in await pods()
        }
        assert found == {"0": "b", "1": "a", "2": "b"}
        for each in held:
            assert "FailedScheduling" not in {
                e["reason"] for e in await events(api, each["metadata"]["name"])
            }
        await api.delete(JOBS, NS, "train", propagation="Background")

    story(what)


def test_a_named_node_that_is_full_is_waited_for(story: Story) -> None:
    async def what(api: Api) -> None:
        for name in ("a", "b"):
            await make_node(api, name, gpus=2)
        await create(api, pod("first", gpus=2, keys={names.NODES: "b"}))
        assert await bound(api, "first") == ["b"]
        await create(api, pod("second", gpus=2, keys={names.NODES: "b"}))
        message = (await said(api, "second", "FailedScheduling"))["message"]
        assert message == (
            "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, "
            "1 node(s) weren't b, which starburst.io/nodes names for rank 0."
        )
        await api.delete(PODS, NS, "first", grace_s=0)
        assert await bound(api, "second") == ["b"]

    story(what)


def test_more_important_pods_evict_less_important_ones(story: Story) -> None:
    async def what(api: Api) -> None:
        for name, value in (("low", 1), ("high", 1000)):
            await api.create(PRIORITY_CLASSES, "", {"metadata": {"name": name}, "value": value})
        await make_node(api, "a", gpus=4)
        low: Object = {"priorityClassName": "low", "terminationGracePeriodSeconds": 30}
        await create(api, *(pod(f"low{i}", gpus=2, **low) for i in range(2)))
        await bound(api, "low0", "low1")
        await create(api, pod("high", gpus=2, priorityClassName="high"))

        async def leaving() -> list[str]:
            found = await api.list(PODS, NS)
            return [each["metadata"]["name"] for each in found if "deletionTimestamp" in each["metadata"]]

        [victim] = await until("a victim", leaving)
        assert (await said(api, victim, "Preempted"))["message"] == f"Preempted by {NS}/high on node a"
        assert (await api.get(PODS, NS, "high"))["status"]["nominatedNodeName"] == "a"
        await create(api, pod("late", gpus=2, priorityClassName="low"))
        await api.delete(PODS, NS, victim, grace_s=0)  # a kubelet would
        assert await bound(api, "high") == ["a"]
        assert not await node_of(api, NS, "late")

    story(what)


SIZES = (1, 2, 1, 4, 1, 3, 2, 1, 8, 1)


async def crowd(api: Api, scheduler: str, count: int, nodes: int) -> None:
    """Pods that fill some nodes of 8 GPUs to the last one, or nearly."""
    for number in range(nodes):
        await make_node(api, f"n{number:02d}")
    sizes = [SIZES[number % len(SIZES)] for number in range(count)]
    pods = [pod(f"p{i:03d}", gpus=gpus, schedulerName=scheduler) for i, gpus in enumerate(sizes)]
    await asyncio.gather(*(api.create(PODS, NS, each) for each in pods))


async def some_bound(api: Api, count: int) -> bool:
    found = await api.list(PODS, NS)
    return sum("nodeName" in each["spec"] for each in found) >= count


async def gpus_by_node(api: Api) -> Counter[str]:
    taken: Counter[str] = Counter()
    for each in await api.list(PODS, NS):
        limits = each["spec"]["containers"][0]["resources"].get("limits", {})
        if "nodeName" in each["spec"]:
            taken[each["spec"]["nodeName"]] += int(limits.get(GPU, 0))
    return taken


def test_killed_in_the_middle_it_goes_on_and_gives_no_gpu_twice(
    api_server: Lab, running: Lab, tmp_path: Path
) -> None:
    async def what(api: Api) -> None:
        options = ("--no-leader-elect", "--scheduler-name", "mortal")
        with chakra(api_server, tmp_path / "first.log", *options) as process:
            await asyncio.gather(
                crowd(api, "mortal", 120, 36), until("some bound", lambda: some_bound(api, 20))
            )
            process.send_signal(signal.SIGKILL)
            process.wait()
        with chakra(api_server, tmp_path / "second.log", *options):
            await until("all bound", lambda: some_bound(api, 120))
        assert max((await gpus_by_node(api)).values()) <= 8
        assert "Traceback" not in (tmp_path / "second.log").read_text()

    tell(api_server)(what)


def test_two_of_them_at_once_conflict_and_each_pod_is_bound_once(
    api_server: Lab, running: Lab, tmp_path: Path
) -> None:
    async def what(api: Api) -> None:
        options = ("--no-leader-elect", "--scheduler-name", "twin")
        logs = [tmp_path / "one.log", tmp_path / "two.log"]
        with chakra(api_server, logs[0], *options), chakra(api_server, logs[1], *options):
            for log in logs:
                await until("up", lambda log=log: _contains(log, "up "))
            await crowd(api, "twin", 80, 80)
            await until("all bound", lambda: some_bound(api, 80))
        told = "".join(log.read_text() for log in logs)
        assert "bind-conflict" in told
        assert "Traceback" not in told

    tell(api_server)(what)


async def _contains(log: Path, text: str) -> bool:
    return text in log.read_text()


async def _ended(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


def test_of_two_replicas_the_second_goes_on_when_the_first_ends(
    api_server: Lab, running: Lab, tmp_path: Path
) -> None:
    async def what(api: Api) -> None:
        await make_node(api, "a")
        options = ("--scheduler-name", "pair", "--lease-namespace", NS)
        first_log, second_log = tmp_path / "first.log", tmp_path / "second.log"
        with chakra(api_server, first_log, *options) as first:
            await until("the first leads", lambda: _contains(first_log, "leading"))
            with chakra(api_server, second_log, *options):
                await create(api, pod("one", schedulerName="pair"))
                await bound(api, "one")
                assert "leading" not in second_log.read_text()
                first.send_signal(signal.SIGTERM)
                await until("the first is gone", lambda: _ended(first))
                await create(api, pod("two", schedulerName="pair"))
                await bound(api, "two")
                assert "leading" in second_log.read_text()
            assert first.returncode == 0

    tell(api_server)(what)


def test_a_restart_of_the_api_server_loses_nothing(api_server: Lab, running: Lab) -> None:
    if api_server.state is None:
        pytest.skip("only the laboratory's own API server can be restarted")

    async def what(api: Api) -> None:
        await crowd(api, "chakra", 100, 30)
        await until("some bound", lambda: some_bound(api, 10))
        api_server.restart_api_server()

    async def after(api: Api) -> None:
        await until("all bound", lambda: some_bound(api, 100))
        assert max((await gpus_by_node(api)).values()) <= 8

    tell(api_server)(what)

    async def later() -> None:
        async with await Api.connect(api_server.kubeconfig) as api:
            await after(api)

    asyncio.run(later())
