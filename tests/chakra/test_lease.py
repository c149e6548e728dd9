"""Leader election: at most one leads, whatever is slow, lost or cut off; if anybody can, somebody does."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starburst.kube.api import Api
from starburst.kube.errors import ApiUnreachableError, LeaseLostError
from starburst.kube.lease import lead
from starburst.kube.resources import Object, Resource
from tests.app import virtual
from tests.chakra.lease_server import Delays, Line, Server, lease

Run = Callable[[Callable[[], bool]], Awaitable[None]]


async def elect(line: Line, identity: str, run: Run, clock: Callable[[], float] = virtual.wall) -> None:
    draw = random.Random(identity)
    await lead(
        cast(Api, line), namespace="spot", name="chakra", identity=identity, run=run, clock=clock, draw=draw
    )


async def until_cancelled(_leading: Callable[[], bool]) -> None:
    await asyncio.Event().wait()


async def at_once(_leading: Callable[[], bool]) -> None:
    pass


def test_the_lease_is_held_while_run_goes_on_and_given_back_after_it() -> None:
    server = Server()

    async def run(leading: Callable[[], bool]) -> None:
        for _ in range(60):
            await asyncio.sleep(1.0)
            assert leading()

    virtual.run(elect(Line(server), "a", run))
    assert server.holders[0] == "a"
    assert server.holders[-1] == ""
    assert 25 <= server.holders.count("a") <= 32, "renewed every 2 s"


def test_a_follower_takes_over_at_its_next_look_when_the_leader_ends_well() -> None:
    async def scene() -> float:
        server = Server()
        first = asyncio.ensure_future(elect(Line(server), "a", until_cancelled))
        await asyncio.sleep(1.0)
        second = asyncio.ensure_future(elect(Line(server), "b", at_once))
        await asyncio.sleep(60.0)
        assert not second.done()
        first.cancel()
        ended_at = virtual.wall()
        await second
        return virtual.wall() - ended_at

    assert virtual.run(scene()) <= 4.4, "retry period with its jitter"


def test_a_follower_takes_over_after_the_duration_when_the_leader_dies() -> None:
    async def scene() -> float:
        server = Server()
        cut = False
        line = Line(server, lambda: (None, None) if cut else (0.0, 0.0))
        first = asyncio.ensure_future(elect(line, "a", until_cancelled))
        await asyncio.sleep(1.0)
        second = asyncio.ensure_future(elect(Line(server), "b", at_once))
        await asyncio.sleep(60.0)
        cut, died_at = True, virtual.wall()
        with pytest.raises(LeaseLostError):
            await first
        await second
        return virtual.wall() - died_at

    assert 13.0 <= virtual.run(scene()) <= 15.0 + 4.4


def test_who_cannot_renew_stops_by_its_deadline_although_no_call_returns() -> None:
    async def scene() -> None:
        server = Server()
        cut_at = virtual.wall() + 21.0
        line = Line(server, lambda: (None, None) if virtual.wall() >= cut_at else (0.0, 0.0))
        seen: list[tuple[float, bool]] = []

        async def run(leading: Callable[[], bool]) -> None:
            try:
                while True:
                    seen.append((virtual.wall() - cut_at, leading()))
                    await asyncio.sleep(0.25)
            finally:
                assert not leading()
                ended.append(virtual.wall() - cut_at)

        ended: list[float] = []
        with pytest.raises(LeaseLostError, match="spot/chakra: not renewed for 10"):
            await elect(line, "a", run)
        last = max(at for at, leading in seen if leading)
        assert 8.0 - 0.25 <= last <= 10.0, "the last renewal was at most 2 s before the line was cut"
        assert ended[0] <= 10.0

    virtual.run(scene())


def test_the_deadline_counts_from_when_a_renewal_was_sent_and_not_from_its_answer() -> None:
    async def scene() -> None:
        server, begun = Server(), virtual.wall()
        # Taken at 0; the renewal of 2 is written at once and answered at 6.5; then nothing comes through.
        slow = iter([(0.0, 0.0), (0.0, 0.0), (0.0, 0.0), (0.0, 4.5)])
        line = Line(server, lambda: next(slow, (None, None)))

        async def run(leading: Callable[[], bool]) -> None:
            while leading():
                seen.append(virtual.wall() - begun)
                await asyncio.sleep(0.1)

        seen: list[float] = []
        with contextlib.suppress(LeaseLostError):
            await elect(line, "a", run)
        assert 11.8 <= max(seen) <= 12.0

    virtual.run(scene())


def test_after_its_deadline_it_does_not_come_back_although_the_server_does() -> None:
    async def scene() -> float:
        begun = virtual.wall()

        class Refusing(Line):
            async def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
                if 1.0 < virtual.wall() - begun < 9.5:
                    raise ApiUnreachableError("connection refused")
                return await super().find(resource, namespace, name)

        with pytest.raises(LeaseLostError):
            await elect(Refusing(Server()), "a", until_cancelled)
        return virtual.wall() - begun

    assert virtual.run(scene()) == pytest.approx(10.0)


def test_a_leader_whose_lease_was_given_to_another_stops_at_its_next_look() -> None:
    async def scene() -> float:
        server = Server()
        first = asyncio.ensure_future(elect(Line(server), "a", until_cancelled))
        await asyncio.sleep(20.5)
        taken_at = virtual.wall()
        server.write({**lease("b"), "metadata": (server.read() or {})["metadata"]}, create=False)
        with pytest.raises(LeaseLostError):
            await first
        assert server.holders[-1] == "b", "what is not ours is not given back"
        return virtual.wall() - taken_at

    assert virtual.run(scene()) <= 2.0


def test_one_renewal_that_fails_is_tried_again_and_costs_nothing() -> None:
    async def scene() -> None:
        server = Server()
        begun = virtual.wall()

        def flaky() -> Delays:
            bad = 10.0 <= virtual.wall() - begun < 16.0
            return (None, None) if bad else (0.1, 0.1)

        async def run(leading: Callable[[], bool]) -> None:
            for _ in range(40):
                await asyncio.sleep(1.0)
                assert leading()

        await elect(Line(server, flaky), "a", run)

    virtual.run(scene())


def test_an_error_of_run_is_ours_and_the_lease_is_given_back() -> None:
    async def fails(_leading: Callable[[], bool]) -> None:
        raise KeyError("a bug")

    server = Server()
    with pytest.raises(KeyError, match="a bug"):
        virtual.run(elect(Line(server), "a", fails))
    assert server.holders == ["a", ""]


def test_the_lease_is_kept_while_a_cancelled_run_puts_things_away() -> None:
    async def tidy(leading: Callable[[], bool]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(30.0)
            led.append(leading())

    led: list[bool] = []

    async def scene() -> None:
        first = asyncio.ensure_future(elect(Line(server), "a", tidy))
        await asyncio.sleep(1.0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first

    server = Server()
    virtual.run(scene())
    assert led == [True]
    assert server.holders[-2:] == ["a", ""]


def test_a_leader_that_comes_back_under_its_name_goes_on_at_once() -> None:
    """A write whose answer was lost is found again: it is ours."""
    server = Server(lease("a", 1), 1)
    virtual.run(elect(Line(server), "a", at_once))
    assert server.holders == ["a", ""]
    assert (server.read() or {})["spec"]["leaseTransitions"] == 4


@pytest.mark.parametrize("looks_after_s", [0.0, 2.0], ids=["candidate", "leader"])
def test_a_cancellation_at_any_moment_ends_it_also_one_that_comes_with_an_answer(
    looks_after_s: float,
) -> None:
    async def scene(rounds: int) -> None:
        server = Server()
        first = asyncio.ensure_future(elect(Line(server), "a", until_cancelled))
        await asyncio.sleep(looks_after_s)
        for _ in range(rounds):  # of the loop; a look takes about ten
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait({first}, timeout=60.0)
        assert first.cancelled()
        writes = len(server.holders)
        await asyncio.sleep(60.0)
        assert len(server.holders) == writes, "nobody goes on to renew it"

    for rounds in range(40):
        virtual.run(scene(rounds))


# Everything at once.


@dataclass(frozen=True)
class Process:
    """One elector's world: its clock and its network."""

    #: Its clock is offset + rate × time.
    rate: float
    offset: float
    #: Times at which nothing comes through: begin, length.
    cuts: tuple[tuple[float, float], ...]
    #: Seconds after which it is stopped well, to begin anew; 0: never.
    term_s: float


#: Any two of them differ by less than duration : deadline = 1.5.
RATES = st.sampled_from([0.84, 1.0, 1.2])
CUTS = st.lists(st.tuples(st.floats(0, 200), st.floats(1, 50)), max_size=3)
PROCESSES = st.builds(
    Process, RATES, st.floats(-1e6, 1e6), CUTS.map(tuple), st.sampled_from([0.0, 0.0, 7.0, 31.0])
)
WORLD_S = 200.0
#: While nobody is cut off, this much later somebody leads: a dead one's duration and a look, by slow clocks.
SOON_S = (15.0 + 4.4 + 5.0) / 0.84


async def world(processes: list[Process], draw: random.Random, slow_s: float) -> list[tuple[float, int]]:
    """Let them be elected for a while; how many led at each time."""
    server, begun = Server(), virtual.wall()
    terms: list[Callable[[], bool]] = []

    def line(process: Process) -> Line:
        def delays() -> Delays:
            now = virtual.wall() - begun
            if any(at <= now < at + length for at, length in process.cuts):
                return (None, None) if draw.random() < 0.5 else (draw.uniform(0, 40.0), None)
            return draw.uniform(0, slow_s), draw.uniform(0, slow_s)

        return Line(server, delays)

    async def live(index: int, process: Process) -> None:
        def clock() -> float:
            return process.offset + process.rate * virtual.wall()

        async def run(leading: Callable[[], bool]) -> None:
            terms.append(leading)
            await asyncio.sleep(process.term_s or 1e9)

        for life in range(1000):
            with contextlib.suppress(LeaseLostError):
                await elect(line(process), f"{index}-{life}", run, clock)

    lives = [asyncio.ensure_future(live(index, process)) for index, process in enumerate(processes)]
    leaders = []
    while virtual.wall() < begun + WORLD_S:
        await asyncio.sleep(0.05)
        assert not any(life.done() for life in lives)
        leaders.append((virtual.wall() - begun, sum(leading() for leading in terms)))
    return leaders


@given(
    st.lists(PROCESSES, min_size=2, max_size=3),
    st.integers(0, 2**32),
    st.sampled_from([0.05, 1.0, 3.0]),
)
@settings(max_examples=6)
def test_never_do_two_lead_at_a_time_and_soon_somebody_does(
    processes: list[Process], seed: int, slow_s: float
) -> None:
    leaders = virtual.run(world(processes, random.Random(seed), slow_s))
    assert max(count for _, count in leaders) <= 1
    if slow_s < 1.0:
        troubles = [(at, at + length) for process in processes for at, length in process.cuts]
        calm_since = 0.0
        for now, count in leaders:
            if any(begin <= now < end for begin, end in troubles) or count:
                calm_since = now
            assert now - calm_since <= SOON_S + 40.0, "nobody leads although everybody could"
