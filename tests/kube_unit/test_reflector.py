"""A reflector tells everything once, in order, and never goes back in time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from starburst.kube import api as api_module
from starburst.kube.resources import PODS
from tests.kube_unit.reflector_scene import scene
from tests.kube_unit.samples import a_pod, until
from tests.kube_unit.server import FakeServer
from tests.kube_unit.store import Object


def test_it_tells_what_is_there_then_that_this_is_all_then_every_change() -> None:
    async def main() -> None:
        async with scene("a", "b") as it:
            await it.watching()
            assert it.told.take() == [("+", ("a", "Pending")), ("+", ("b", "Pending")), "synced"]
            it.set_phase("a", "Running")
            it.server.add(PODS, a_pod("c"))
            it.server.remove(PODS, "ns", "b")
            await until(it.caught_up)
            assert it.told.take() == [
                ("~", ("a", "Pending"), ("a", "Running")),
                ("+", ("c", "Pending")),
                ("-", ("b", "Pending")),
            ]
            assert sorted(it.reflector) == [("a", "Running"), ("c", "Pending")]

    asyncio.run(main())


def test_it_lists_by_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "PAGE", 3)

    async def main() -> None:
        names = [f"p{i}" for i in range(8)]
        async with scene(*names) as it:
            await it.watching()
            assert it.told.take() == [*(("+", (name, "Pending")) for name in names), "synced"]
            assert len(it.asked("list")) == 3

    asyncio.run(main())


def test_a_list_whose_continuation_expired_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "PAGE", 2)

    async def main() -> None:
        server = FakeServer()
        listed = server._listed

        def compacted_in_between(*asked: Any) -> Object:
            answer = listed(*asked)
            if len(server.asked) == 1:
                server.forget()
            return answer

        monkeypatch.setattr(server, "_listed", compacted_in_between)
        async with scene("a", "b", "c", on=server) as it:
            await it.watching()
            assert it.told.take() == [*(("+", (name, "Pending")) for name in "abc"), "synced"]
            assert len(it.asked("list")) == 4

    asyncio.run(main())


@pytest.mark.parametrize("how", ["in the open stream", "as the answer", "in the new stream"])
def test_a_version_that_is_too_old_leads_to_a_new_list_that_tells_only_what_changed(how: str) -> None:
    async def main() -> None:
        async with scene("a", "b", "c") as it:
            await it.watching()
            it.told.take()
            if how == "in the open stream":
                it.server.watchers, open_ones = set(), it.server.watchers
                it.server.remove(PODS, "ns", "b")  # which it does not hear of
                it.server.watchers = open_ones
                it.server.expire_watches()
            else:
                it.disconnect()
                it.server.remove(PODS, "ns", "b")
                it.server.heal()
                it.server.forget()
                if how == "as the answer":
                    it.server.fail("WATCH", status=410, reason="Expired")
            await until(lambda: "synced" in it.told.all)
            assert it.told.take() == [("-", ("b", "Pending")), "synced"]

    asyncio.run(main())


def test_a_watch_that_ends_or_breaks_goes_on_where_it_was_without_a_list() -> None:
    async def main() -> None:
        async with scene("a") as it:
            await it.watching()
            for stop in (it.server.end_watches, it.server.cut_watches):
                stop()
                it.set_phase("a", f"After {stop.__name__}")
                await until(it.caught_up)
            await it.watching()
            assert len(it.asked("list")) == 1
            assert [what for what in it.told.all if what == "synced"] == ["synced"]
            assert list(it.reflector) == [("a", "After cut_watches")]

    asyncio.run(main())


def test_a_bookmark_moves_the_version_on() -> None:
    async def main() -> None:
        async with scene("a", selector="mine=yes") as it:
            await until(lambda: it.server.watchers)
            it.set_phase("a", "Running")  # another's: it moves the server's version, and tells us nothing
            it.server.bookmark()
            await until(it.caught_up)
            it.server.forget()
            it.server.end_watches()
            await until(lambda: len(it.asked("watch")) == 2)
            assert it.asked("watch")[1] == str(it.server.store.version)
            await it.watching()
            assert len(it.asked("list")) == 1
            assert it.told.take() == ["synced"]

    asyncio.run(main())


def test_what_was_made_anew_under_its_name_meanwhile_is_told_as_gone_and_new() -> None:
    async def main() -> None:
        for forgotten in (False, True):
            async with scene("a") as it:
                await it.watching()
                it.told.take()
                it.disconnect()
                it.server.remove(PODS, "ns", "a")
                it.server.add(PODS, a_pod("a"))
                if forgotten:
                    it.server.forget()
                it.server.heal()
                await until(it.caught_up)
                anew = [("-", ("a", "Pending")), ("+", ("a", "Pending"))]
                assert it.told.take() == ([*anew, "synced"] if forgotten else anew)

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["MODIFIED", "DELETED", "ADDED", "BOOKMARK"])
def test_an_event_from_before_what_is_known_is_not_taken(kind: str) -> None:
    async def main() -> None:
        async with scene("a", "gone") as it:
            await it.watching()
            old = it.server.get(PODS, "ns", "a" if kind in ("MODIFIED", "DELETED") else "gone")
            it.set_phase("a", "Running")
            it.server.remove(PODS, "ns", "gone")
            await until(it.caught_up)
            it.told.take()
            it.server.tell({"type": kind, "object": old})
            it.server.add(PODS, a_pod("after"))
            await until(it.caught_up)
            assert it.told.take() == [("+", ("after", "Pending"))]
            it.server.end_watches()
            await until(lambda: len(it.asked("watch")) == 2)
            assert it.asked("watch")[1] == str(it.server.store.version)

    asyncio.run(main())


def test_a_list_from_before_what_is_known_is_not_taken() -> None:
    async def main() -> None:
        async with scene("a", "b") as it:
            await it.watching()
            version = it.server.store.version
            it.server.remove(PODS, "ns", "b")
            await until(it.caught_up)
            it.told.take()
            lagging = it.server._listed
            it.server._listed = lambda *asked: {  # type: ignore[method-assign]
                **lagging(*asked),
                "metadata": {"resourceVersion": str(version)},
            }
            it.server.expire_watches()
            await until(lambda: len(it.asked("list")) >= 4)
            assert it.told.take() == []
            it.server._listed = lagging  # type: ignore[method-assign]
            await until(lambda: it.told.all)
            assert it.told.take() == ["synced"]

    asyncio.run(main())


def test_changes_that_do_not_show_in_the_value_are_not_told() -> None:
    async def main() -> None:
        async with scene("a") as it:
            await it.watching()
            it.told.take()
            it.server.change(PODS, "ns", "a", {"metadata": {"annotations": {"heartbeat": "1"}}})
            await until(it.caught_up)
            assert it.told.take() == []

    asyncio.run(main())


def test_what_stops_mattering_is_gone_and_what_begins_to_is_new() -> None:
    def running(item: Object) -> str | None:
        return item["metadata"]["name"] if item["status"]["phase"] == "Running" else None

    async def main() -> None:
        async with scene("a", read=running) as it:
            await it.watching()
            it.set_phase("a", "Running")
            it.set_phase("a", "Failed")
            await until(it.caught_up)
            assert it.told.take() == ["synced", ("+", "a"), ("-", "a")]

    asyncio.run(main())


def test_an_object_that_cannot_be_read_keeps_its_value_and_stops_nothing() -> None:
    def read(item: Object) -> str:
        return str({"Pending": 1, "Running": 2}[item["status"]["phase"]])

    async def main() -> None:
        async with scene("a", read=read) as it:
            await it.watching()
            it.set_phase("a", "Strange")
            it.set_phase("a", "Running")
            await until(it.caught_up)
            assert it.told.take() == [("+", "1"), "synced", ("~", "1", "2")]

    asyncio.run(main())


def test_only_what_the_selector_chooses_is_listed_and_watched() -> None:
    async def main() -> None:
        async with scene(selector="queue in (a,b),!skip") as it:
            await it.watching()
            for name, labels in (
                ("in", {"queue": "a"}),
                ("out", {"queue": "c"}),
                ("skip", {"queue": "a", "skip": ""}),
            ):
                it.server.add(PODS, a_pod(name, metadata={"labels": labels}))
            it.server.change(PODS, "ns", "in", {"metadata": {"labels": {"queue": "c"}}})
            it.server.bookmark()
            await until(it.caught_up)
            assert it.told.take() == ["synced", ("+", ("in", "Pending")), ("-", ("in", "Pending"))]

    asyncio.run(main())
