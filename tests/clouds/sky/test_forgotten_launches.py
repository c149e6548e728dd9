"""Launches that SkyPilot forgets where the cloud cannot be asked what became of them; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.access.ports import CloudRefusesError
from starburst.core.model.events import InstanceFailed, InstanceGone, InstanceStalled
from tests.app.virtual import run, wall
from tests.clouds.sky.fake import BOOT_S, RENT_S, FakeSky
from tests.clouds.sky.fake_line import Line
from tests.clouds.sky.life import OFFER, SPOT, Life
from tests.clouds.sky.test_bills import autostopped

#: Virtual seconds for which a launch may take and a machine without renewals may live, in these tests.
LIMIT_S, LEASE_S, SURVIVES_S = 400.0, 60.0, 60.0 + 300.0 + 10.0 + 10.0

#: What the cloud cannot do: be searched by labels, or take these credentials.
MUTE = pytest.mark.parametrize("refuses", [False, True], ids=["not searched", "no credentials"])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SWITCH_S", "DOWN_S"):
        monkeypatch.setattr(f"starburst.clouds.sky.machines.machine.{name}", 10.0)


def mute(
    tmp_path: Path,
    refuses: bool,
    monkeypatch: pytest.MonkeyPatch,
    story: Callable[[Life, FakeSky], Coroutine[Any, Any, None]],
) -> None:
    """A story over a cloud that tells nothing."""

    async def refuse(*_question: object) -> None:
        raise CloudRefusesError("AuthFailure")

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky", cloud_searches=False, cloud_sees=False)
        if refuses:
            monkeypatch.setattr(Line, "_cloud", refuse)
        async with Life(sky, tmp_path / "home", lease_s=LEASE_S, launch_limit_s=LIMIT_S) as life:
            await story(life, sky)

    run(main())


async def launched(life: Life, sky: FakeSky) -> None:
    await life.cloud.launch("i-1", SPOT)
    while not sky.vms:
        await asyncio.sleep(0.5)


@MUTE
@pytest.mark.parametrize("gives_up", [False, True], ids=["it comes up", "it is given up"])
def test_a_machine_that_skypilot_forgets_while_it_boots_is_not_gone_while_it_may_live(
    tmp_path: Path, refuses: bool, gives_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        since = wall()
        await launched(life, sky)
        sky.lose_state()
        if gives_up:
            await life.cloud.terminate("i-1")
        await asyncio.sleep(LIMIT_S)
        assert sky.alive(), "nobody can end it"
        assert not life.of((InstanceGone, InstanceFailed))
        assert any("nobody says whether its machine lives" in one.why for one in life.of(InstanceStalled))
        over = await life.heard((InstanceGone, InstanceFailed))
        assert wall() - since >= LIMIT_S + SURVIVES_S
        assert over.launched_at is not None
        assert over.launched_at <= sky.vms[0].made_at, "never too little"

    mute(tmp_path, refuses, monkeypatch, story)


@MUTE
def test_one_that_came_and_went_before_the_first_login_is_billed_and_ends_its_intent(
    tmp_path: Path, refuses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await life.cloud.launch("i-1", OFFER)
        vm = await autostopped(sky)
        over = await life.heard((InstanceGone, InstanceFailed))
        assert vm.ended_at is not None
        assert over.launched_at is not None
        assert over.ended_at is not None
        assert over.launched_at <= vm.made_at < vm.ended_at <= over.ended_at, "never too little"
        assert len(sky.vms) == 1

    mute(tmp_path, refuses, monkeypatch, story)


@MUTE
@pytest.mark.parametrize("after_s", [0.5, RENT_S + 1, BOOT_S - 1])
def test_a_launch_that_is_cancelled_is_over_at_once(
    tmp_path: Path, refuses: bool, after_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await life.cloud.launch("i-1", OFFER)
        await asyncio.sleep(after_s)
        await life.cloud.terminate("i-1")
        since = wall()
        await life.heard(InstanceGone)
        assert wall() - since < 30
        assert not sky.alive()

    mute(tmp_path, refuses, monkeypatch, story)


@MUTE
def test_a_launch_that_fails_is_over_at_once(
    tmp_path: Path, refuses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        sky.sold_out.add("p3.8xlarge")
        await life.cloud.launch("i-1", OFFER)
        since = wall()
        failed = await life.heard(InstanceFailed)
        assert wall() - since < 30
        assert failed.sold_out

    mute(tmp_path, refuses, monkeypatch, story)
