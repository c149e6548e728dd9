"""Replicas of a store share its home; one on another machine has no embedded sites."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from starburst.app.config import Config, parse_config
from starburst.app.config.home import Home
from starburst.app.errors import UserError
from starburst.app.leadership import shared_home
from starburst.app.leadership.shared_home import check_home, note_home
from starburst.store import leader
from starburst.store.leader import LeaderClaim
from starburst.store.store import Store

KUBERNETES = parse_config({"cluster": {"kind": "kubernetes"}, "cloud": {"offers": []}}, "test")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Outside of any home, as a server's database is."""
    with Store.open(tmp_path / "elsewhere" / "store.db") as opened:
        yield opened


def home(root: Path) -> Home:
    made = Home(root)
    made.make()
    return made


def test_the_same_home_is_known_again(store: Store, tmp_path: Path) -> None:
    one = home(tmp_path / "one")
    check_home(one, Config(), store, standby=True)
    note_home(one, store)
    check_home(one, Config(), store, standby=True)


def test_another_home_may_not_stand_by_and_may_take_the_place_of_a_lost_one(
    store: Store, tmp_path: Path
) -> None:
    one, other = home(tmp_path / "one"), home(tmp_path / "other")
    note_home(one, store)
    with pytest.raises(UserError, match=f"{other.root}: is not the home .*{one.root}: replicas share one"):
        check_home(other, Config(), store, standby=True)
    with structlog.testing.capture_logs() as logged:
        check_home(other, Config(), store, standby=False)
    assert [line["event"] for line in logged] == ["new-home"]
    note_home(other, store)
    check_home(other, Config(), store, standby=True)


def test_embedded_sites_are_of_one_machine_while_it_leads(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = home(tmp_path / "one")
    note_home(one, store)
    leader.take(store, None, LeaderClaim("a"))
    monkeypatch.setattr(shared_home, "_kernel", lambda: "another machine")
    with pytest.raises(UserError, match="cloud and cluster: jobs run as processes of the machine of"):
        check_home(one, Config(), store, standby=True)
    check_home(one, KUBERNETES, store, standby=True)
    leader.release(store, 1)
    check_home(one, Config(), store, standby=True)


@pytest.mark.sqlite
def test_a_store_within_the_home_is_its_own(tmp_path: Path) -> None:
    one = home(tmp_path / "one")
    with Store.open(one.store) as store:
        note_home(one, store)
        assert store.fact("home") is None
        check_home(one, Config(), store, standby=True)
