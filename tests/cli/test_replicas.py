"""What commands say of several replicas, and `starburst drain`."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest

from starburst.cli.service import drain
from starburst.store import leader
from starburst.store.leader import LeaderClaim, leader_record
from starburst.store.store import Store
from tests.cli.conftest import Cli


@pytest.fixture
def store(home: Path) -> Store:
    """Of the home; on it `ada` leads."""
    home.mkdir(mode=0o700, exist_ok=True)
    opened = Store.open(home / "starburst.db")
    leader.take(opened, None, LeaderClaim("ada/1", "http://ada:8585"))
    return opened


def test_status_and_the_doctor_name_the_leader(cli: Cli, store: Store) -> None:
    with store:
        assert "note: ada/1 leads (epoch 1)" in cli("status").err
        assert "leader: ada/1 at http://ada:8585, epoch 1, renewed" in cli("doctor").out
        leader.release(store, 1)
        assert "leader: no replica leads now; start one: starburst up --standby" in cli("doctor").out


def test_a_drain_waits_for_the_next_leader(cli: Cli, store: Store) -> None:
    def hand_over() -> None:
        with Store.open(store.path or "") as other:
            while (asked := leader_record(other)) is None or asked.drain != 1:
                pass
            leader.release(other, 1)
            leader.take(other, leader_record(other), LeaderClaim("bea/2"))

    with store:
        thread = Thread(target=hand_over)
        thread.start()
        told = cli("drain")
        thread.join()
    assert told.code == 0
    assert told.out.startswith("bea/2 leads, in place of ada/1, after ")


def test_a_drain_without_a_standby_says_so(cli: Cli, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "ask_drain", leader.release)
    with store:
        told = cli("drain", "--timeout", "1")
    assert (told.code, told.out.startswith("ada/1 has given the lead back, and none stands by")) == (1, True)


def test_a_leader_that_does_not_hear_is_named(cli: Cli, store: Store) -> None:
    with store:
        told = cli("drain", "--timeout", "1")
    assert (told.code, told.err) == (
        2,
        "error: ada/1 has not given the lead back within 1 s; look at its log\n",
    )


def test_there_is_nothing_to_drain_without_replicas(cli: Cli, home: Path) -> None:
    told = cli("drain")
    assert (told.code, told.err) == (2, "error: no starburst leads; there is nothing to drain\n")
    with Store.open(home / "starburst.db") as store:
        leader.take(store, None, LeaderClaim("ada/1", renews=False))
    told = cli("drain")
    assert (told.code, "ada/1 runs alone, and none could take over" in told.err) == (2, True)
