"""The reaper keeps alive what somebody claims, ends what nobody claims, and leaves what is not ours alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from starburst.app.daemon import orphan_ledger
from starburst.app.daemon.orphan_ledger import OrphanLedger, ReapedMachine
from starburst.app.daemon.reaper import CALL_TIMEOUT_S, Fate, Reaper, ReapRules
from starburst.clouds.catalog import LocalOffer
from starburst.clouds.local import LocalCloud
from starburst.domain.clock import Pace
from starburst.domain.cloud import Instance, InstancePhase
from starburst.domain.job import Site
from starburst.runs.processes import ProcessRunner
from tests.app.fakes import FakeSite, World
from tests.app.virtual import run, wall
from tests.builders import offer

T = TypeVar("T")

OFFER = offer("small", 2)
PERIOD_S = 20.0
WAITS, TELLS, ENDS_OTHERS = ReapRules("us", 900.0), ReapRules("us"), ReapRules("us", others=True)


class Drawer:
    """Facts in memory."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}

    def fact(self, key: str) -> Any:
        return self.facts.get(key)

    def set_fact(self, key: str, value: object) -> None:
        self.facts[key] = value


def a_cloud(*machines: str, site: type[FakeSite] = FakeSite) -> FakeSite:
    world = World(offers=(OFFER,))
    for name in machines:
        world.launch(name, OFFER, wall())
    return site(world, Site.CLOUD)


def theirs(cloud: FakeSite, name: str = "them/i-1", lease_s: float = 0.0) -> None:
    """A machine of another store."""
    cloud.world.launch(name, OFFER, wall(), "them", expires_at=wall() + lease_s)


async def at_once(call: Callable[[], T]) -> T:
    """For a book that blocks nobody."""
    return call()


def a_reaper(
    cloud: Any,
    claimed: Callable[[], Collection[str]] = set,
    rules: ReapRules = TELLS,
    book: OrphanLedger | None = None,
    now: Callable[[], float] = wall,
) -> Reaper:
    return Reaper(
        cloud,
        rules,
        book or OrphanLedger(Drawer()),
        claimed=claimed,
        now=now,
        rate={"small": OFFER.price_per_hour}.get,
        in_order=at_once,
    )


# --- our own machines ----------------------------------------------------------------------------------


def test_a_machine_that_nobody_claims_is_ended_and_a_claimed_one_renewed():
    async def main() -> None:
        cloud = a_cloud("i-1", "i-2", "i-3")
        await a_reaper(cloud, lambda: {"i-2"}).round()
        assert cloud.calls == ["terminate i-1", "terminate i-3"]
        assert cloud.world.leases == {"i-2": 1}

    run(main())


def test_a_machine_that_has_ended_is_left_alone():
    async def main() -> None:
        cloud = a_cloud("i-1")
        await cloud.terminate("i-1")
        await asyncio.sleep(5)
        cloud.calls.clear()
        await a_reaper(cloud).round()
        assert not cloud.calls

    run(main())


def test_claims_are_read_after_the_listing():
    async def main() -> None:
        claims = set[str]()

        class Busy(FakeSite):
            async def owned(self) -> list[Instance]:
                claims.add("i-1")  # a launch is decided, stored and made while the list is on its way
                self.world.launch("i-1", OFFER, wall())
                return await FakeSite.owned(self)

        busy = a_cloud(site=Busy)
        await a_reaper(busy, lambda: set(claims)).round()
        assert not busy.calls
        assert busy.world.leases == {"i-1": 1}

    run(main())


def test_a_machine_whose_end_is_confirmed_while_the_list_is_on_its_way_was_not_reaped():
    async def main() -> None:
        claims, book = {"i-1"}, OrphanLedger(Drawer())

        class Late(FakeSite):
            async def owned(self) -> list[Instance]:
                listed = await FakeSite.owned(self)
                claims.clear()
                return listed

        cloud = a_cloud("i-1", site=Late)
        await a_reaper(cloud, lambda: claims, book=book).round()
        assert (cloud.calls, book.all()) == ([], [])

    run(main())


def test_an_unclaimed_machine_is_ended_only_at_the_age_that_is_set():
    """A sibling on a copy of our store may just be storing its intent."""

    async def main() -> None:
        cloud = a_cloud("i-1")
        reaper = asyncio.create_task(a_reaper(cloud, rules=WAITS).rounds(PERIOD_S))
        await asyncio.sleep(WAITS.after_s - PERIOD_S / 2)
        assert not cloud.calls
        await asyncio.sleep(PERIOD_S)
        assert cloud.calls == ["terminate i-1"]
        assert not cloud.world.leases, "nor was it kept alive meanwhile"
        reaper.cancel()

    run(main())


def test_an_unclaimed_machine_that_is_claimed_in_time_lives_on():
    async def main() -> None:
        cloud, claims = a_cloud("i-1"), set[str]()
        reaper = asyncio.create_task(a_reaper(cloud, lambda: claims, WAITS).rounds(PERIOD_S))
        await asyncio.sleep(WAITS.after_s - PERIOD_S)
        claims.add("i-1")
        await asyncio.sleep(3 * PERIOD_S)
        reaper.cancel()
        assert not cloud.calls
        assert cloud.world.leases["i-1"] >= 2

    run(main())


# --- machines of other stores --------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [TELLS, ENDS_OTHERS], ids=["tells", "ends others"])
def test_a_machine_of_another_store_is_left_alone_while_its_lease_runs(rules: ReapRules):
    async def main() -> None:
        cloud = a_cloud()
        theirs(cloud, lease_s=60)
        with capture_logs() as logs:
            await a_reaper(cloud, rules=rules).round()
        assert (cloud.calls, logs, dict(cloud.world.leases)) == ([], [], {})

    run(main())


def test_one_whose_lease_has_passed_is_told_of_once_and_not_touched():
    async def main() -> None:
        cloud = a_cloud()
        theirs(cloud)
        with capture_logs() as logs:
            reaper = asyncio.create_task(a_reaper(cloud).rounds(PERIOD_S))
            await asyncio.sleep(4.5 * PERIOD_S)
            reaper.cancel()
        assert logs == [
            {
                "event": "reap-would",
                "log_level": "warning",
                "instance": "them/i-1",
                "offer": "small",
                "controller": "them",
                "mend": "set cloud.reap_others: true, or: starburst reap --others --no-dry-run",
            }
        ]
        assert (cloud.calls, dict(cloud.world.leases)) == ([], {})

    run(main())


def test_or_ended_if_we_are_told_to_end_others():
    async def main() -> None:
        cloud = a_cloud()
        theirs(cloud)
        await a_reaper(cloud, rules=ENDS_OTHERS).round()
        assert cloud.calls == ["terminate them/i-1"]

    run(main())


def test_a_claim_of_ours_does_not_keep_another_stores_machine_of_that_id():
    async def main() -> None:
        cloud = a_cloud()
        theirs(cloud, "i-1")
        await a_reaper(cloud, lambda: {"i-1"}, ENDS_OTHERS).round()
        assert (cloud.calls, dict(cloud.world.leases)) == (["terminate i-1"], {})

    run(main())


machines = st.builds(
    Instance,
    id=st.just("i-1"),
    offer_name=st.just("small"),
    phase=st.just(InstancePhase.READY),
    launched_at=st.floats(-1e4, 1e4),
    ended_at=st.none(),
    controller=st.sampled_from(["us", "them", ""]),
    expires_at=st.none() | st.floats(-1e4, 1e4),
)
rules = st.builds(ReapRules, st.just("us"), st.floats(0, 1e4), st.booleans())


@given(machines, rules, st.booleans())
def test_whatever_a_cloud_lists_what_may_be_anothers_and_alive_never_ends(
    machine: Instance, rules: ReapRules, claimed: bool
):
    fate = rules.fate(machine, {"i-1"} if claimed else set(), 0.0)
    whose = machine.controller
    if rules.ends(fate):
        ours = whose == "us" and not claimed and max(0.0, -machine.launched_at) >= rules.after_s
        left = rules.others and whose == "them" and machine.expires_at is not None and machine.expires_at <= 0
        assert ours or left
    assert (fate is Fate.CLAIMED) == (claimed and whose != "them")


def test_machines_of_other_owners_are_neither_seen_nor_ended(tmp_path: Path):
    def cloud_of(owner: str) -> LocalCloud:
        return LocalCloud(
            (LocalOffer(OFFER),),
            tmp_path / "cloud",
            ProcessRunner(tmp_path / "cloud" / "runs", tmp_path / "checkpoints", Site.CLOUD),
            pace=Pace(),
            now=time.time,
            lease_s=900.0,
            owner=owner,
            controller=owner,
        )

    async def phases(owner: str) -> dict[str, InstancePhase]:
        return {machine.id: machine.phase for machine in await cloud_of(owner).owned()}

    async def main() -> None:
        await cloud_of("us").launch("i-ours", OFFER)
        await cloud_of("others").launch("i-theirs", OFFER)
        await a_reaper(cloud_of("us"), rules=ENDS_OTHERS, now=time.time).round()
        assert await phases("us") == {"i-ours": InstancePhase.TERMINATING}
        assert await phases("others") == {"i-theirs": InstancePhase.READY}

    asyncio.run(main())


# --- when calls fail -----------------------------------------------------------------------------------


@pytest.mark.parametrize("hangs", [False, True])
def test_a_round_that_fails_or_hangs_is_repeated(hangs: bool):
    async def main() -> None:
        rounds: list[float] = []

        class Shaky(FakeSite):
            async def owned(self) -> list[Instance]:
                rounds.append(wall())
                if len(rounds) == 1 and hangs:
                    await asyncio.sleep(1000 * CALL_TIMEOUT_S)
                if len(rounds) == 1:
                    raise ConnectionError("no route")
                return await FakeSite.owned(self)

        cloud = a_cloud("i-1", site=Shaky)
        reaper = asyncio.create_task(a_reaper(cloud).rounds(PERIOD_S))
        await asyncio.sleep(2 * PERIOD_S + CALL_TIMEOUT_S)
        reaper.cancel()
        assert rounds[1] - rounds[0] == pytest.approx(PERIOD_S + CALL_TIMEOUT_S * hangs)
        assert cloud.calls == ["terminate i-1"]

    run(main())


@pytest.mark.parametrize("broken", ["terminate", "renew"])
def test_one_call_that_fails_keeps_no_other_machine(broken: str):
    async def main() -> None:
        class Shaky(FakeSite):
            async def terminate(self, instance_id: str) -> None:
                if broken == "terminate" and instance_id == "i-1":
                    raise ConnectionError("no route")
                await FakeSite.terminate(self, instance_id)

            async def renew(self, instance_ids: list[str]) -> None:
                if broken == "renew":
                    raise ConnectionError("no route")
                await FakeSite.renew(self, instance_ids)

        cloud = a_cloud("i-1", "i-2", "i-3", site=Shaky)
        reaper = asyncio.create_task(a_reaper(cloud, lambda: {"i-3"}).rounds(PERIOD_S))
        await asyncio.sleep(1)
        reaper.cancel()
        ended = {call.removeprefix("terminate ") for call in cloud.calls}
        assert ended == {"i-2"} | ({"i-1"} if broken == "renew" else set())
        assert cloud.world.leases == ({} if broken == "renew" else {"i-3": 1})

    run(main())


# --- the book ------------------------------------------------------------------------------------------


def test_what_was_ended_is_in_the_book_once_from_the_order_to_the_clouds_word():
    async def main() -> None:
        cloud, book, began = a_cloud("i-1"), OrphanLedger(Drawer()), wall()
        with capture_logs() as logs:
            reaper = asyncio.create_task(a_reaper(cloud, book=book).rounds(0.3))
            await asyncio.sleep(0.7)
            (told,) = book.all()
            assert told == ReapedMachine("i-1", "us", "small", 1_000_000, began, began, "unclaimed")
            await asyncio.sleep(5)
            reaper.cancel()
        (over,) = book.all()
        assert over.ended_at == pytest.approx(began + 1, abs=0.6)
        assert [line["event"] for line in logs] == ["reaped"]

    run(main())


def test_an_end_that_the_cloud_does_not_take_is_told_again_and_noted_once():
    async def main() -> None:
        class Deaf(FakeSite):
            async def terminate(self, instance_id: str) -> None:
                self.calls.append(f"terminate {instance_id}")
                raise ConnectionError("no route")

        cloud, book = a_cloud("i-1", site=Deaf), OrphanLedger(Drawer())
        reaper = asyncio.create_task(a_reaper(cloud, book=book).rounds(PERIOD_S))
        await asyncio.sleep(2.5 * PERIOD_S)
        reaper.cancel()
        assert cloud.calls == ["terminate i-1"] * 3
        assert [entry.ended_at for entry in book.all()] == [None]

    run(main())


def test_the_book_keeps_the_newest(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(orphan_ledger, "KEPT", 3)
    book = OrphanLedger(Drawer())
    for number in range(5):
        book.note(ReapedMachine(f"i-{number}", "us", "small", None, 0, 0, "unclaimed"))
    assert [entry.id for entry in book.all()] == ["i-2", "i-3", "i-4"]
