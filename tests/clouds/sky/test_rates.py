"""What a machine costs where it came up is asked of SkyPilot, and told."""

from __future__ import annotations

import asyncio
import math
from importlib.util import find_spec
from pathlib import Path

import pytest

from starburst.app.config.home import Home
from starburst.app.config.sites import SkyConfig
from starburst.app.wiring.sky import sky_cloud, sky_offers
from starburst.clouds.sky.access.ports import SkyUnreachableError
from starburst.clouds.sky.access.sdk import hourly
from starburst.clouds.sky.context import SkyClock
from starburst.clouds.sky.machines.price import FIRST_PAUSE_S
from starburst.core.model.events import InstanceReady, SiteSynced
from starburst.domain.clock import Pace
from starburst.domain.money import Money
from tests.clouds.sky.fake import BOOT_S, FakeSky
from tests.clouds.sky.life import OFFER, Life, play, ready

DEARER = Money.of("15.5")


def test_a_machine_that_came_up_dearer_than_listed_says_so_after_a_restart_too(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        sky.rates = {"p3.8xlarge": DEARER}
        await ready(life)
        assert [event.rate for event in life.of(InstanceReady)] == [DEARER]
        sky.rates = {}
        async with Life(sky, life.home) as second:
            await second.heard(SiteSynced)
            assert [event.rate for event in second.of(InstanceReady)] == [DEARER]
        assert sky.calls["rate"] == 1

    play(tmp_path, story)


def test_what_skypilot_does_not_say_stays_unknown(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        assert life.of(InstanceReady)[0].rate is None

    play(tmp_path, story)


def test_a_machine_is_not_kept_waiting_for_a_price_that_cannot_be_had(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        async def away(what: str) -> None:
            sky.server_up = not what.endswith(" rate")

        async with Life(sky, life.home / "2", away, controller="d") as other:
            await other.heard(SiteSynced)
            await other.cloud.launch("i-1", OFFER)
            ready_ = await other.heard(InstanceReady)
            assert (ready_.rate, sky.calls["rate"]) == (None, 1)

    play(tmp_path, story)


def test_a_price_that_could_not_be_had_is_asked_for_again_and_counts_from_the_launch(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        sky.rates = {"p3.8xlarge": DEARER}

        async def twice(what: str) -> None:
            if what == "before rate" and sky.calls["rate"] <= 2:
                raise SkyUnreachableError("the API server is down")

        async with Life(sky, life.home / "2", twice, controller="d") as other:
            await other.heard(SiteSynced)
            await other.cloud.launch("i-1", OFFER)
            first = await other.heard(InstanceReady)
            while len(other.of(InstanceReady)) < 2:
                await asyncio.sleep(1.0)
            second = other.of(InstanceReady)[1]
            assert (first.rate, second.rate) == (None, DEARER)
            assert second.launched_at == first.launched_at
            await asyncio.sleep(8 * FIRST_PAUSE_S)
            assert sky.calls["rate"] == 3, "it is known"
        async with Life(sky, life.home / "2", controller="d") as later:
            await later.heard(SiteSynced)
            assert [event.rate for event in later.of(InstanceReady)] == [DEARER]

    play(tmp_path, story)


def test_prices_of_the_users_own_are_what_counts(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        sky.rates = {"p3.8xlarge": DEARER}
        await ready(life)
        await asyncio.sleep(BOOT_S)
        assert life.of(InstanceReady)[0].rate is None
        assert sky.calls["rate"] == 0

    play(tmp_path, story, own_prices=True)


def test_what_a_machine_costs_beside_its_price_is_in_its_rate(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        sky.rates = {"p3.8xlarge": DEARER}
        await ready(life)
        assert life.of(InstanceReady)[0].rate == Money.of("15.54")

    play(tmp_path, story, extra=Money.of("0.04"))


@pytest.mark.skipif(find_spec("sky") is None, reason="needs the extra sky")
def test_what_a_machine_costs_beside_its_price_is_in_the_prices_of_offers(tmp_path: Path) -> None:
    prices = tmp_path / "prices.csv"
    rows = ("p3.8xlarge,32,244,9.99,us-east-1", "p9.huge,32,244,,us-east-1")
    prices.write_text("\n".join(("InstanceType,vCPUs,MemoryGiB,Price,Region", *rows)))
    offers = sky_offers(SkyConfig(prices=str(prices), extra_usd_per_hour=0.04))
    assert [offer.price_per_hour for offer in offers] == [Money.of("10.03"), None]


@pytest.mark.skipif(find_spec("sky") is None, reason="needs the extra sky")
def test_a_file_of_prices_in_the_config_makes_them_the_users_own(tmp_path: Path) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("InstanceType,vCPUs,MemoryGiB,Price,Region\np3.8xlarge,32,244,9.99,us-east-1\n")
    config = SkyConfig(prices=str(prices), extra_usd_per_hour=0.03)
    cloud = sky_cloud(
        config,
        Home(tmp_path),
        tmp_path,
        clock=SkyClock(lambda: 0.0, Pace()),
        controller="c",
        max_log=1 << 30,
    )
    assert cloud._context.settings.own_prices
    assert cloud._context.settings.extra == Money.of("0.03")


class Launched:
    """As much of SkyPilot's Resources as counts here."""

    def __init__(self, cost: float | None) -> None:
        self._cost = cost

    def get_cost(self, seconds: float) -> float:
        assert seconds == 3600
        if self._cost is None:
            raise ValueError("No SpotPrice found for instance type 'p3.8xlarge'.")
        return self._cost


@pytest.mark.parametrize("unknown", [None, 0.0, math.nan, math.inf])
def test_a_price_that_the_catalog_does_not_have_is_unknown(unknown: float | None) -> None:
    assert hourly(Launched(unknown)) is None
    assert hourly(None) is None


def test_a_price_of_the_catalog_is_money_to_the_digit() -> None:
    assert hourly(Launched(12.24)) == Money.of("12.24") == OFFER.price_per_hour
