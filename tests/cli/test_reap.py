"""`starburst reap`: what nobody claims is found and ended by hand, also while no scheduler runs."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from starburst.app.config import Config, parse_config
from starburst.app.config.home import Home
from starburst.app.daemon.orphan_ledger import OrphanLedger
from starburst.app.wiring.build import build, cloud_of
from starburst.clouds.local import LocalCloud
from starburst.domain.clock import Pace
from starburst.domain.cloud import InstancePhase, Offer
from starburst.domain.job import Site
from starburst.runs.processes import ProcessRunner
from starburst.store.store import Store
from tests.cli.conftest import Cli

CONFIG = parse_config(
    {
        "cloud": {
            "reap_after": "15m",
            "offers": [
                {"name": "small", "gpus": 1, "cpus": 8, "memory_gib": 61, "usd_per_hour": 3.06},
                {"name": "odd", "gpus": 1, "cpus": 8, "memory_gib": 61, "usd_per_hour": None},
            ],
        },
        "debug": {"validate": True},
    },
    "test",
)
SMALL, ODD = (entry.offer for entry in CONFIG.cloud.catalog())
KEYS = [
    *("id", "controller", "offer", "phase", "launched_at", "expires_at", "usd_per_hour", "fate", "ends"),
]

Rent = Callable[..., None]


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    home.mkdir(mode=0o700)
    with Store.open(home / "starburst.db") as opened:
        opened.set_fact("config", CONFIG.model_dump(mode="json"))
        yield opened


@pytest.fixture
def rent(home: Path, store: Store) -> Rent:
    """Rents a machine of this home's cloud behind the back of its store."""

    def rent(name: str, offer: Offer = SMALL, *, controller: str = "", lease_s: float = 900.0) -> None:
        cloud = LocalCloud(
            CONFIG.cloud.catalog(),
            home / "cloud",
            ProcessRunner(home / "cloud" / "runs", home / "checkpoints", Site.CLOUD),
            pace=Pace(),
            now=time.time,
            lease_s=lease_s,
            owner="starburst",
            controller=controller or str(store.fact("controller")),
        )
        asyncio.run(cloud.launch(name, offer))

    return rent


def phases(home: Path, store: Store) -> dict[str, InstancePhase]:
    cloud = cloud_of(Home(home), CONFIG, store, Pace(), time.time)
    return {machine.id: machine.phase for machine in asyncio.run(cloud.owned())}


def rows(answer):
    return {row["id"]: row for row in json.loads(answer.out)}


def test_a_cloud_with_nothing_of_ours_is_well(cli: Cli, store: Store):
    answer = cli("reap")
    assert (answer.code, answer.out, answer.err) == (0, "", "no rented machines\n")


def test_by_default_it_only_says_what_it_would_end_and_what_that_costs(
    cli: Cli, store: Store, rent: Rent, home: Path
):
    rent("i-1")
    rent("i-2", ODD)
    answer = cli("reap")
    assert answer.code == 1, "there is something to mend"
    assert answer.out.splitlines() == [
        "INSTANCE  PHASE      OFFER  AGE    $/H  FATE",
        "i-1       launching  small   0s  $3.06  ends: nobody claims it",
        "i-2       launching  odd     0s      ?  ends: nobody claims it",
        "would end 2 machines, costing $3.06 per hour and the unknown price of 1; end with --no-dry-run",
    ]
    assert set(phases(home, store).values()) == {InstancePhase.LAUNCHING}
    assert OrphanLedger(store).all() == []


def test_it_ends_them_when_it_is_told_to_and_the_book_has_them(
    cli: Cli, store: Store, rent: Rent, home: Path
):
    rent("i-1")
    answer = cli("reap", "--no-dry-run")
    assert answer.code == 0
    assert answer.out.splitlines()[-1] == "told 1 machine to end, costing $3.06 per hour"
    assert f"no starburst runs in {home}" in answer.err, "the embedded cloud ends it with the next up"
    assert phases(home, store) == {"i-1": InstancePhase.TERMINATING}
    assert [entry.id for entry in OrphanLedger(store).all()] == ["i-1"]
    assert json.loads(cli("instances", "-o", "json").out)[0]["phase"] == "reaping"


def test_a_machine_that_the_store_has_is_kept(cli: Cli, past, home: Path):
    past.morning()
    past.store.set_fact("config", CONFIG.model_dump(mode="json"))
    cloud = cloud_of(Home(home), CONFIG, past.store, Pace(), time.time)
    asyncio.run(cloud.launch("i-000001", SMALL))  # which has ended, by the store
    asyncio.run(cloud.launch("i-000002", SMALL))
    answer = cli("reap", "--no-dry-run", "-o", "json")
    assert answer.code == 0
    fates = {id_: (row["fate"], row["ends"]) for id_, row in rows(answer).items()}
    assert fates == {"i-000001": ("unclaimed", True), "i-000002": ("claimed", False)}
    assert phases(home, past.store)["i-000002"] is InstancePhase.LAUNCHING


def test_machines_of_another_store_end_only_when_asked_for_and_only_when_their_lease_has_passed(
    cli: Cli, store: Store, rent: Rent, home: Path
):
    rent("i-1", controller="them")
    rent("i-1", controller="lost", lease_s=0.0)
    answer = cli("reap", "--no-dry-run", "-o", "wide")
    assert answer.code == 0
    assert [re.split(" {2,}", line)[-2:] for line in answer.out.splitlines()[1:]] == [
        ["stays: another store's; ends with --others, for its lease has passed", "lost"],
        ["stays: another store's, and its lease runs", "them"],
    ]
    assert cli("reap", "--others").code == 1
    answer = cli("reap", "--others", "--no-dry-run", "-o", "json")
    assert [list(row) for row in rows(answer).values()] == [KEYS] * 2
    assert {id_: row["ends"] for id_, row in rows(answer).items()} == {"lost/i-1": True, "them/i-1": False}
    assert [entry.id for entry in OrphanLedger(store).all()] == ["lost/i-1"]
    assert phases(home, store)["them/i-1"] is InstancePhase.LAUNCHING


def test_while_a_scheduler_runs_the_age_that_is_set_counts(cli: Cli, store: Store, rent: Rent, home: Path):
    rent("i-1")
    with Home(home).lock():
        answer = cli("reap", "--no-dry-run")
    assert answer.code == 0
    assert "stays for now: nobody claims it, but it is new" in answer.out
    assert phases(home, store) == {"i-1": InstancePhase.LAUNCHING}


@contextmanager
def a_scheduler(home: Path) -> Iterator[None]:
    """One at work on this home, in a thread."""
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    def work() -> None:
        with Home(home).lock(), Store.open(home / "starburst.db") as store:
            loop.call_soon(holds.set)
            loop.run_until_complete(build(Home(home), CONFIG, store).run(stop))

    holds, thread = threading.Event(), threading.Thread(target=work)
    thread.start()
    try:
        assert holds.wait(20)
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def test_a_running_scheduler_ends_what_is_told_here_and_it_is_waited_for(
    cli: Cli, store: Store, rent: Rent, home: Path, tmp_path: Path
):
    """The age is 0 by the config at hand, but 15 m by the one the scheduler runs with."""
    rent("i-1")
    config = tmp_path / "at-once.yaml"
    config.write_text("cloud: {offers: [{name: small, cpus: 8, memory_gib: 61, usd_per_hour: 3.06}]}")
    with a_scheduler(home):
        answer = cli("reap", "--no-dry-run", "--config", config)
    assert answer.code == 0
    assert "no starburst runs" not in answer.err
    assert phases(home, store) == {"i-1": InstancePhase.GONE}
    (entry,) = OrphanLedger(store).all()
    assert entry.ended_at is not None


def test_a_cloud_that_does_not_answer_is_one_line(cli: Cli, store: Store, monkeypatch: pytest.MonkeyPatch):
    async def no_route(_: LocalCloud) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(LocalCloud, "owned", no_route)
    answer = cli("reap")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "error: the cloud could not be asked for its machines (no route); try again\n"


def test_an_end_that_the_cloud_does_not_take_is_said_and_fails(
    cli: Cli, store: Store, rent: Rent, monkeypatch: pytest.MonkeyPatch
):
    async def no_route(_: LocalCloud, _id: str) -> None:
        raise ConnectionError("no route")

    rent("i-1")
    monkeypatch.setattr(LocalCloud, "terminate", no_route)
    answer = cli("reap", "--no-dry-run")
    assert answer.code == 1
    assert answer.out.splitlines()[-1].endswith("still there: i-1; try again")


def test_the_default_config_of_the_embedded_cloud_waits_for_nobody():
    assert (Config().cloud.reap_after, Config().cloud.reap_others) == (0.0, False)
