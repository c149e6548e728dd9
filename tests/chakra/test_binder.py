"""What becomes of a binding, and from when on its room may be anybody's again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from chakra_plugin.binder import LANDING_S, WORKERS, Binder
from chakra_plugin.scheduling.cycle import Bind
from starburst.kube.errors import ApiError, ApiUnreachableError
from starburst.kube.resources import Object
from tests.app import virtual
from tests.chakra.builders import World, node, pod

SILENCE = ApiUnreachableError("silence")
UNSENT = ApiUnreachableError("refused connection", sent=False)
FORBIDDEN = ApiError(403, "Forbidden", "")


class Script:
    """A server that answers as it is told to, and the scheduler that hears of it."""

    def __init__(self, *answers: Exception | None, found: str | None = "") -> None:
        self.answers = list(answers)
        #: The pod's node, "" if it is unbound, None if there is no such pod.
        self.found = found
        self.heard: list[tuple[str, float]] = []
        self.sent: list[Object] = []
        self.leads = True
        self.fit = True
        self.takes_s = 0.0
        self.busiest = self._busy = 0

    async def call(self, _method: str, _path: str, *, body: Object, **_: Any) -> Object:
        self.sent.append(body)
        self._busy += 1
        self.busiest = max(self.busiest, self._busy)
        await asyncio.sleep(self.takes_s)
        self._busy -= 1
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        return {}

    async def find(self, *_: Any) -> Object | None:
        if self.found is None:
            return None
        return {"metadata": {"uid": "uid-p"}, "spec": {"nodeName": self.found} if self.found else {}}

    def _hear(self, what: str) -> None:
        self.heard.append((what, virtual.wall() - virtual.START))

    def leading(self) -> bool:
        return self.leads

    def valid(self, _bind: Bind) -> bool:
        return self.fit

    def bound(self, _bind: Bind, on: str) -> None:
        self._hear(f"bound to {on}")

    def refused(self, _bind: Bind, *, lost: bool) -> float | None:
        self._hear("lost" if lost else "refused")
        return None

    def unanswered(self) -> None:
        pass


def play(
    script: Script, *, count: int = 1, for_s: float = 200.0, change: Callable[[Script], None] | None = None
) -> list[str]:
    """What is heard of some bindings."""

    async def story() -> None:
        binder = Binder(script, script, clock=virtual.wall, sleep=asyncio.sleep)
        running = asyncio.ensure_future(binder.run())
        world = World(node("a", pods=1000))
        world.add(*(pod("p" if i == 0 else f"p{i}") for i in range(count)))
        for bind in world.binds():
            binder.send(bind)
        if change is not None:
            await asyncio.sleep(0.1)
            change(script)
        await asyncio.sleep(for_s)
        running.cancel()
        await asyncio.wait({running})

    virtual.run(story())
    return [what for what, _ in script.heard]


@pytest.mark.parametrize(
    "answers", [(), (SILENCE,), (UNSENT, UNSENT), (ApiError(504, "Timeout", ""), SILENCE)]
)
def test_it_is_sent_to_the_same_node_until_there_is_an_answer(answers):
    script = Script(*answers)
    assert play(script) == ["bound to a"]
    assert {each["target"]["name"] for each in script.sent} == {"a"}


def test_a_refusal_gives_the_room_back_at_once():
    script = Script(FORBIDDEN)
    assert play(script) == ["refused"]
    assert script.heard[0][1] < 1


def test_but_not_while_a_call_that_was_not_answered_may_still_land():
    script = Script(SILENCE, *[FORBIDDEN] * 100)
    assert play(script) == ["refused"]
    assert script.heard[0][1] >= LANDING_S


def test_a_call_that_was_never_sent_cannot_land():
    script = Script(UNSENT, FORBIDDEN)
    assert play(script) == ["refused"]
    assert script.heard[0][1] < 1


@pytest.mark.parametrize(
    ("found", "heard"), [("a", "bound to a"), ("b", "bound to b"), ("", "refused"), (None, "refused")]
)
def test_a_conflict_is_looked_into(found, heard):
    assert play(Script(ApiError(409, "Conflict", ""), found=found)) == [heard]


def test_a_pod_that_is_gone_cannot_be_bound_by_what_was_sent_before():
    script = Script(SILENCE, ApiError(404, "NotFound", "", name="p"))
    assert play(script) == ["refused"]
    assert script.heard[0][1] < 1


def test_a_node_that_is_lost_before_the_binding_is_sent_is_not_bound_to():
    script = Script()
    script.fit = False
    assert play(script) == ["lost"]
    assert script.sent == []


def test_after_a_call_without_an_answer_a_lost_node_is_asked_about_and_not_bound_to_again():
    script = Script(SILENCE)
    assert play(script, change=lambda script: setattr(script, "fit", False)) == ["lost"]
    assert len(script.sent) == 1
    assert script.heard[0][1] >= LANDING_S


def test_nothing_is_sent_by_one_who_leads_no_more():
    script = Script()
    script.leads = False
    assert play(script) == []
    assert script.sent == []


def test_a_call_that_is_under_way_at_the_end_is_seen_through():
    script = Script()
    script.takes_s = 3.0
    play(script, for_s=1.0)
    assert script._busy == 0


def test_so_many_are_under_way_at_once_and_no_more():
    script = Script()
    script.takes_s = 1.0
    assert len(play(script, count=3 * WORKERS)) == 3 * WORKERS
    assert script.busiest == WORKERS
