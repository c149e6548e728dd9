"""What people hear, and that nobody is flooded."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from chakra_plugin.pod_events import BURST, RATE, PodEvent, PodEventReporter
from starburst.kube import names
from starburst.kube.resources import Object
from tests.app import virtual
from tests.chakra.builders import World, node, placed, pod
from tests.chakra.fake_server import Client, Server


class Scene:
    """A reporter beside a queue and a server that has its pods."""

    def __init__(self, *pods: Any) -> None:
        self.world = World()
        self.server = Server()
        self.client = Client(self.server, random.Random(1), trouble=0.0)
        self.world.add(*pods)
        for each in pods:
            metadata = {"namespace": each.namespace, "name": each.name, "uid": each.uid}
            self.server.put("pods", {"metadata": metadata, "spec": {}, "status": {}})
        self.world.planner.plan(0.0)
        self.reporter: PodEventReporter

    async def report(self) -> None:
        self.reporter = PodEventReporter(
            self.client, "chakra", self.world.planner.state.queue, clock=virtual.wall, sleep=asyncio.sleep
        )
        self.reporter.look()
        await self.reporter.run()

    def events(self) -> list[Object]:
        return list(self.server.objects["events"].values())

    def condition(self, name: str) -> Object:
        return self.server.objects["pods"][f"ns/{name}"]["status"]["conditions"][0]


def play(scene: Scene, acts: Callable[[], Awaitable[None]]) -> None:
    """The reporter runs while something happens."""

    async def both() -> None:
        running = asyncio.ensure_future(scene.report())
        await asyncio.sleep(0)
        await acts()
        running.cancel()

    virtual.run(both())


def test_a_pod_that_fits_nowhere_has_an_event_and_a_condition():
    scene = Scene(pod())

    async def acts() -> None:
        await asyncio.sleep(1)

    play(scene, acts)
    [event] = scene.events()
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "FailedScheduling", 1)
    assert event["message"] == "0/0 nodes are available: there are none."
    assert event["involvedObject"]["uid"] == "uid-p"
    told = scene.condition("p")
    assert (told["type"], told["status"], told["reason"]) == ("PodScheduled", "False", "Unschedulable")
    assert told["message"] == event["message"]


def test_other_words_change_the_event_and_count_it_up_and_the_same_ones_do_not():
    scene = Scene(pod())

    async def acts() -> None:
        await asyncio.sleep(1)
        for _ in range(5):
            scene.reporter.look()
            await asyncio.sleep(5)
        assert scene.events()[0]["count"] == 1
        scene.world.planner.state.node_changed(None, node(cpus=0))
        scene.world.planner.state.node_changed(node(cpus=0), node(pods=0))
        scene.world.planner.state.queue.unblock(next(iter(scene.world.planner.state.queue.blocked)))
        scene.world.planner.plan(0.0)
        scene.reporter.look()
        await asyncio.sleep(1)

    play(scene, acts)
    [event] = scene.events()
    assert (event["count"], event["message"]) == (2, "0/1 nodes are available: 1 Too many pods.")


def test_held_pods_hear_of_it_once_and_are_nobodys_failure():
    scene = Scene(pod(labels={names.QUEUE: "q"}))

    async def acts() -> None:
        await asyncio.sleep(1)
        scene.reporter.look()
        await asyncio.sleep(60)

    play(scene, acts)
    [event] = scene.events()
    assert (event["type"], event["reason"], event["count"]) == ("Normal", "Waiting", 1)
    assert scene.server.objects["pods"]["ns/p"]["status"] == {}


def test_a_crowd_is_told_in_turn():
    count = 300
    scene = Scene(*(pod(f"p{i}") for i in range(count)))
    written: list[int] = []

    async def acts() -> None:
        await asyncio.sleep(5)
        written.append(len(scene.events()))
        await asyncio.sleep(60)

    play(scene, acts)
    assert written[0] <= BURST + 5 * RATE
    assert len(scene.events()) == count


def test_a_pod_that_was_placed_before_its_turn_hears_nothing():
    scene = Scene(*(pod(f"p{i}") for i in range(200)))

    async def acts() -> None:
        await asyncio.sleep(1)
        scene.world.planner.state.node_changed(None, node(pods=200, cpus=1000))
        assert len(placed(scene.world.binds())) == 200
        before = len(scene.events())
        await asyncio.sleep(60)
        assert len(scene.events()) <= before + 1

    play(scene, acts)


def test_a_pod_that_is_placed_while_it_is_told_is_not_left_unschedulable():
    scene = Scene(pod())
    patched = scene.client.patch

    async def slow(*args: Any, **kwargs: Any) -> Object:
        if scene.world.planner.state.queue.entries:
            scene.world.planner.state.node_changed(None, node())
            scene.world.binds()
        return await patched(*args, **kwargs)

    scene.client.patch = slow

    async def acts() -> None:
        await asyncio.sleep(5)

    play(scene, acts)
    assert scene.condition("p")["status"] == "True"


def test_a_chakra_that_was_restarted_does_not_say_again_what_was_said():
    scene = Scene(pod(unschedulable="0/0 nodes are available: there are none."))

    async def acts() -> None:
        await asyncio.sleep(60)

    play(scene, acts)
    assert scene.events() == []


def test_events_of_bindings_are_written_between_those_of_waiting_pods():
    scene = Scene(*(pod(f"p{i}") for i in range(100)))

    async def acts() -> None:
        scene.reporter.tell(PodEvent(pod("bound"), "Normal", "Scheduled", "words"))
        await asyncio.sleep(1)

    play(scene, acts)
    assert "Scheduled" in {event["reason"] for event in scene.events()}
