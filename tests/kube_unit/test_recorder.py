"""Events: one per thing said, counted when it is said again, and never in anybody's way."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from starburst.kube.recorder import LONGEST, MOST, ObjectReference, Recorder
from starburst.kube.resources import EVENTS, NAMESPACES
from tests.kube_unit.samples import Sleeps, until
from tests.kube_unit.server import FakeServer
from tests.kube_unit.store import Object

JOB = ObjectReference("Job", "batch/v1", "ns", "train", "u1")


class Clock:
    """Seconds since 1970 that a test moves on."""

    now = 60.0

    def __call__(self) -> float:
        return self.now


def events(server: FakeServer) -> list[Object]:
    return server.all(EVENTS)


def test_an_event_says_what_happened_to_what_and_when() -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api() as api:
            await Recorder(api, "starburst", clock=Clock()).event(JOB, "Normal", "Placed", "on n1")
            (event,) = events(server)
            assert event["metadata"]["namespace"] == "ns"
            assert event["metadata"]["name"].startswith("train.")
            assert event["involvedObject"] == {
                "kind": "Job",
                "apiVersion": "batch/v1",
                "namespace": "ns",
                "name": "train",
                "uid": "u1",
            }
            assert (event["type"], event["reason"], event["message"]) == ("Normal", "Placed", "on n1")
            assert event["source"]["component"] == event["reportingComponent"] == "starburst"
            assert event["firstTimestamp"] == event["lastTimestamp"] == "1970-01-01T00:01:00Z"
            assert event["count"] == 1

    asyncio.run(main())


def test_a_repeat_is_counted_by_one_patch() -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api() as api:
            recorder = Recorder(api, "chakra", clock=(clock := Clock()))
            for clock.now in (60.0, 120.0, 180.0):
                await recorder.event(JOB, "Warning", "FailedScheduling", "0/5 nodes")
            (event,) = events(server)
            assert (event["count"], event["firstTimestamp"][14:19], event["lastTimestamp"][14:19]) == (
                3,
                "01:00",
                "03:00",
            )
            assert [asked.method for asked in server.asked] == ["POST", "PATCH", "PATCH"]

    asyncio.run(main())


def test_a_repeat_is_counted_after_a_restart_too() -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api() as api:
            for _ in range(3):
                await Recorder(api, "chakra").event(JOB, "Normal", "Queued", "behind two")
            assert [event["count"] for event in events(server)] == [3]

    asyncio.run(main())


def test_an_event_that_the_server_forgot_is_made_again() -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api() as api:
            recorder = Recorder(api, "chakra")
            await recorder.event(JOB, "Normal", "Queued", "behind two")
            server.remove(EVENTS, "ns", events(server)[0]["metadata"]["name"])
            await recorder.event(JOB, "Normal", "Queued", "behind two")
            assert [event["count"] for event in events(server)] == [1]

    asyncio.run(main())


@pytest.mark.parametrize(
    "other",
    [
        (JOB, "Normal", "Queued", "behind three"),
        (JOB, "Normal", "Placed", "behind two"),
        (JOB, "Warning", "Queued", "behind two"),
        (ObjectReference("Job", "batch/v1", "ns", "train", "u2"), "Normal", "Queued", "behind two"),
        (ObjectReference("Pod", "v1", "ns", "train", "u1"), "Normal", "Queued", "behind two"),
    ],
)
def test_what_is_not_the_same_is_another_event(other: Any) -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api() as api:
            recorder = Recorder(api, "starburst")
            await recorder.event(JOB, "Normal", "Queued", "behind two")
            await recorder.event(*other)
            assert [event["count"] for event in events(server)] == [1, 1]

    asyncio.run(main())


def test_long_messages_and_names_are_cut_to_what_a_server_takes() -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api() as api:
            name = "a" * 235 + "-." + "b" * 16
            await Recorder(api, "x").event(
                ObjectReference("Pod", "v1", "ns", name, "u"), "Normal", "R", "m" * 5000
            )
            (event,) = events(server)
            assert len(event["message"]) == LONGEST
            assert event["message"].endswith("m…")
            assert event["metadata"]["name"][:236] == "a" * 235 + "."
            assert len(event["metadata"]["name"]) <= 253

    asyncio.run(main())


def test_events_of_what_is_in_no_namespace_are_in_the_default_one() -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api() as api:
            await Recorder(api, "x").event(ObjectReference("Node", "v1", "", "n1", "u"), "Normal", "R", "m")
            (event,) = events(server)
            assert event["metadata"]["namespace"] == "default"
            assert event["involvedObject"]["namespace"] == ""

    asyncio.run(main())


@pytest.mark.parametrize("fault", [{"status": 403}, {"status": 404}, {"status": 409}, {"status": 500}, {}])
def test_trouble_is_not_raised(fault: dict[str, int]) -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api(sleep=Sleeps()) as api:
            recorder = Recorder(api, "x")
            for method in ("POST", "PATCH"):
                server.fail(method, **fault)
                await recorder.event(JOB, "Normal", "R", "m")
                server.heal()
                await recorder.event(JOB, "Normal", "R", "m")
            assert [event["reason"] for event in events(server)] == ["R"]

    asyncio.run(main())


def test_what_is_put_is_written_later_in_its_order_and_the_oldest_is_dropped_first() -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api() as api:
            recorder = Recorder(api, "x")
            for i in range(MOST + 5):
                recorder.put(JOB, "Normal", "R", str(i))
            assert server.asked == []
            running = asyncio.ensure_future(recorder.run())
            await until(lambda: len(server.asked) >= 20)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            assert [asked.body["message"] for asked in server.asked[:20]] == [str(i) for i in range(5, 25)]

    asyncio.run(main())


def test_the_worker_goes_on_after_trouble() -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api() as api:
            server.fail("POST", status=403)
            recorder = Recorder(api, "x")
            running = asyncio.ensure_future(recorder.run())
            recorder.put(JOB, "Normal", "R", "refused")
            recorder.put(JOB, "Normal", "R", "taken")
            await until(lambda: events(server))
            recorder.put(JOB, "Normal", "R", "later")
            await until(lambda: len(events(server)) == 2)
            running.cancel()
            assert {event["message"] for event in events(server)} == {"taken", "later"}
            assert server.all(NAMESPACES) == []

    asyncio.run(main())
