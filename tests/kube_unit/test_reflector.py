"""A reflector tells everything once, in order, and never goes back in time."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from starburst.kube import api as api_module
from starburst.kube import reflector as reflector_module
from starburst.kube.api import Api
from starburst.kube.reflector import FIRST_PAUSE_S, LAST_PAUSE_S, Reflector
from starburst.kube.resources import PODS
from tests.kube_unit.samples import Sleeps, Told, a_pod, reflecting, until
from tests.kube_unit.server import FakeServer
from tests.kube_unit.store import Object


@dataclass
class Scene:
    """A server, a reflector of its pods, and what that tells."""

    server: FakeServer
    api: Api
    reflector: Reflector[Any]
    told: Told
    sleeps: Sleeps

    async def watching(self) -> None:
        """Until the watch is open and everything is told."""
        await until(lambda: self.server.watchers and self.caught_up())

    def caught_up(self) -> bool:
        """Whether it knows of every write."""
        return self.reflector._newest == self.server.store.version

    def set_phase(self, name: str, phase: str) -> None:
        """As a kubelet does."""
        self.server.change(PODS, "ns", name, {"status": {"phase": phase}})

    def disconnect(self) -> None:
        """No watch comes through until the server heals."""
        self.server.fail("WATCH", times=10**9)
        self.server.cut_watches()

    def asked(self, what: str) -> list[str]:
        """Resource versions of watches, or queries of lists."""
        return [
            asked.query.get("resourceVersion", "")
            for asked in self.server.asked
            if (asked.query.get("watch") == "true") == (what == "watch")
        ]


@asynccontextmanager
async def scene(*names: str, on: FakeServer | None = None, **more: Any) -> AsyncIterator[Scene]:
    """Pods of these names, listed and watched."""
    async with on or FakeServer() as server:
        for name in names:
            server.add(PODS, a_pod(name))
        told, sleeps = Told(), Sleeps()
        async with (
            server.api(sleep=sleeps) as api,
            reflecting(api, PODS, told, sleep=sleeps, **more) as reflector,
        ):
            yield Scene(server, api, reflector, told, sleeps)


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


def test_half_a_line_at_a_broken_end_is_dropped_and_comes_again_whole() -> None:
    async def main() -> None:
        async with scene("a") as it:
            await it.watching()
            event = json.dumps({"type": "DELETED", "object": it.server.get(PODS, "ns", "a")}).encode()
            it.server.cut_watches(event[:-1])
            await until(lambda: len(it.asked("watch")) == 2)
            await it.watching()
            assert list(it.reflector) == [("a", "Pending")]

    asyncio.run(main())


def test_a_line_that_is_no_json_breaks_the_watch_and_nothing_else() -> None:
    async def main() -> None:
        async with scene("a") as it:
            await it.watching()
            it.server.cut_watches(b"<html>bad gateway</html>\n")
            await until(lambda: len(it.asked("watch")) == 2)
            it.set_phase("a", "Running")
            await until(it.caught_up)
            assert list(it.reflector) == [("a", "Running")]

    asyncio.run(main())


def test_a_silent_watch_is_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "SILENCE_S", 0.03)

    async def main() -> None:
        async with scene("a") as it:
            await until(lambda: len(it.asked("watch")) >= 2)
            assert len(it.asked("list")) == 1

    asyncio.run(main())


def test_pauses_double_up_to_the_longest_and_are_drawn_between_half_and_all() -> None:
    async def main() -> None:
        async with scene("a") as it:
            it.server.fail("WATCH", status=500, times=12)
            await it.watching()
            full = [min(FIRST_PAUSE_S * 2**i, LAST_PAUSE_S) for i in range(12)]
            assert len(it.sleeps.all) == 12
            assert all(most / 2 <= slept <= most for slept, most in zip(it.sleeps.all, full, strict=True))
            assert len({slept / most for slept, most in zip(it.sleeps.all, full, strict=True)}) == 12
            draw = random.Random(1)
            draw.randint(*reflector_module.WATCH_S)
            assert it.sleeps.all[0] == draw.uniform(FIRST_PAUSE_S / 2, FIRST_PAUSE_S)
            assert len(it.asked("list")) == 1

    asyncio.run(main())


def test_pauses_are_short_again_after_an_event() -> None:
    async def main() -> None:
        async with scene("a") as it:
            it.server.fail("WATCH", status=500, times=5)
            await it.watching()
            it.set_phase("a", "Running")
            await until(it.caught_up)
            it.server.cut_watches()
            await until(lambda: len(it.sleeps.all) == 6)
            assert it.sleeps.all[-1] <= FIRST_PAUSE_S < it.sleeps.all[-2]

    asyncio.run(main())


def test_a_server_that_forgets_everything_at_once_is_not_listed_without_pause() -> None:
    async def main() -> None:
        async with scene("a") as it:
            it.server.fail("WATCH", status=410, times=8)
            await it.watching()
            assert len(it.asked("list")) == 9
            assert it.sleeps.all[-1] >= LAST_PAUSE_S / 2

    asyncio.run(main())


def test_a_server_that_ends_every_watch_at_once_is_not_asked_without_pause() -> None:
    async def main() -> None:
        async with scene("a") as it:
            it.server.fail("WATCH", text="", times=6)
            await it.watching()
            assert it.sleeps.all[-1] >= FIRST_PAUSE_S * 2**4

    asyncio.run(main())


def test_a_server_that_asks_to_be_left_alone_is() -> None:
    async def main() -> None:
        async with scene("a") as it:
            it.server.fail("WATCH", status=429, headers={"Retry-After": "7"})
            await it.watching()
            assert it.sleeps.all == [7.0]

    asyncio.run(main())


def test_watches_last_differently_long_so_that_clients_do_not_come_back_together() -> None:
    async def main() -> None:
        async with scene("a") as it:
            for count in range(1, 6):
                while len(it.asked("watch")) < count:
                    await asyncio.sleep(0.001)
                await it.watching()
                it.server.end_watches()
            lasts = [int(asked.query["timeoutSeconds"]) for asked in it.server.asked[1:]]
            assert all(90 <= last <= 140 for last in lasts)
            assert len(set(lasts)) > 1

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
