"""Bills where the cloud does not answer for a while, from the first or not at all; in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from starburst.clouds.sky import boot_contact
from starburst.clouds.sky.access import cloud_api
from starburst.clouds.sky.access.ports import CloudRefusesError, InstanceRef, SkyUnreachableError
from starburst.clouds.sky.machines import machine, observer
from starburst.clouds.sky.machines.naming import INTENT
from starburst.core.model.events import InstanceFailed, InstanceGone, InstanceReady
from tests.app.virtual import run, wall
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.fake_line import Line
from tests.clouds.sky.fake_vm import Vm
from tests.clouds.sky.life import OFFER, Life, play, ready
from tests.clouds.sky.test_bills import bill, of_cloud


@pytest.mark.parametrize(
    "silent_s", [200.0, 400.0], ids=["for a while", "for longer than clouds are waited for"]
)
def test_a_cloud_that_never_answered_yet_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent_s: float
) -> None:
    monkeypatch.setattr(observer, "WORD_S", 300.0)

    async def ended(life: Life, sky: FakeSky, name: str) -> tuple[Vm, float]:
        await ready(life, name)
        (vm,) = sky.alive()
        await life.cloud.terminate(name)
        while sky.alive():
            await asyncio.sleep(0.1)
        return vm, wall()

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky", cloud_up=False)
        async with Life(sky, tmp_path / "home") as life:
            vm, since = await ended(life, sky, "i-1")
            asyncio.get_running_loop().call_later(silent_s, setattr, sky, "cloud_up", True)
            gone = await life.heard(InstanceGone)
            answered = silent_s < observer.WORD_S
            assert bill(gone) == of_cloud(vm)
            assert wall() - since == pytest.approx(min(silent_s, observer.WORD_S), abs=40)
        sky.cloud_up = False
        async with Life(sky, tmp_path / "home") as life:
            _, since = await ended(life, sky, "i-2")
            await life.heard(InstanceGone, lambda one: one.instance_id == "i-2")
            waited = wall() - since > observer.WORD_S / 2
            assert waited is answered, "one that has never answered is waited for no more"

    run(main())


def test_a_cloud_that_answered_while_a_machine_booted_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SkyPilot has forgotten the launch, and then the cloud says nothing for long."""
    monkeypatch.setattr(observer, "WORD_S", 100.0)
    for name in ("SWITCH_S", "DOWN_S"):
        monkeypatch.setattr(machine, name, 10.0)

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home", lease_s=10.0, launch_limit_s=60.0) as life:
            await life.cloud.launch("i-1", OFFER)
            while not sky.vms:
                await asyncio.sleep(0.5)
            await asyncio.sleep(boot_contact.LOOK_S + 1)
            sky.lose_state()
            sky.cloud_up = False
            await life.cloud.terminate("i-1")
            await asyncio.sleep(600.0)
            assert not life.of((InstanceFailed, InstanceGone)), "it may live"
            sky.cloud_up = True
            over = await life.heard(InstanceGone)
            assert not sky.alive()
            assert bill(over) == of_cloud(sky.vms[0])

    run(main())


def test_a_cloud_that_takes_no_credentials_from_here_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses(*_question: object) -> None:
        raise CloudRefusesError("AuthFailure")

    monkeypatch.setattr(Line, "_cloud", refuses)

    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.terminate("i-1")
        since = wall()
        await life.heard(InstanceGone)
        assert wall() - since < 60
        assert not sky.alive()

    play(tmp_path, story)


def test_a_cloud_that_refuses_is_not_waited_for_while_another_one_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These credentials are of the one cloud only."""
    search, sight = Line.search, Line.sight

    async def found(line: Line, provider: str, *more: object) -> object:
        if provider == "aws":
            raise CloudRefusesError("AuthFailure")
        return await search(line, provider, *more)  # type: ignore[arg-type]

    async def seen(line: Line, at: InstanceRef) -> object:
        if line.sky.vms[0].id == at.instance:
            raise CloudRefusesError("AuthFailure")
        one = await sight(line, at)
        return replace(one, at=replace(one.at, provider="gcp"))

    async def story(life: Life, sky: FakeSky) -> None:
        monkeypatch.setattr(Line, "search", found)
        monkeypatch.setattr(Line, "sight", seen)
        await ready(life)
        await ready(life, "i-2", replace(OFFER, name="gcp/us-central1/p3.8xlarge", region="us-central1"))
        await asyncio.sleep(120)
        await life.cloud.terminate("i-1")
        since = wall()
        gone = await life.heard(InstanceGone)
        assert gone.instance_id == "i-1"
        assert wall() - since < 60
        assert life.cloud.machines["i-2"].takes_runs

    play(tmp_path, story)


def test_a_machine_whose_intent_is_dated_an_hour_late_is_found_by_its_labels(tmp_path: Path) -> None:
    """The clock was an hour ahead when it was asked for, and its cloud was away when it came up."""

    async def story(life: Life, sky: FakeSky) -> None:
        sky.cloud_up = False
        await ready(life)
        (vm,) = sky.vms
        vm.made_at -= 3600.0
        await life.cloud.terminate("i-1")
        while sky.alive():
            await asyncio.sleep(0.1)
        assert vm.ended_at is not None
        vm.ended_at -= 3610.0  # ten seconds that only the cloud knows of
        sky.cloud_up = True
        gone = await life.heard(InstanceGone)
        assert gone.ended_at - gone.launched_at == pytest.approx(vm.ended_at - vm.made_at)

    play(tmp_path, story)


def test_a_machine_of_this_name_from_an_earlier_life_of_the_store_is_another(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        (old,) = sky.vms
        await life.cloud.terminate("i-1")
        await life.heard(InstanceGone)
        sky.cloud_up = False
        await life.cloud.launch("i-2", OFFER)
        await life.heard(InstanceReady, lambda one: one.instance_id == "i-2")
        old.labels = tuple((dict(old.labels) | {INTENT: "i-2"}).items())
        old.ended_at = wall()
        await life.cloud.terminate("i-2")
        while sky.alive():
            await asyncio.sleep(0.1)
        sky.cloud_up = True
        gone = await life.heard(InstanceGone, lambda one: one.instance_id == "i-2")
        assert bill(gone) == of_cloud(sky.vms[1])

    play(tmp_path, story)


def _raised(name: str, code: str = "") -> Exception:
    """As a library's."""
    error: Exception = type(name, (Exception,), {})(f"{name} {code}")
    if code:
        error.response = {"Error": {"Code": code}}  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("error", "refuses"),
    [
        (_raised("NoCredentialsError"), True),
        (_raised("ModuleNotFoundError"), False),  # a name alone, not of that family
        (ModuleNotFoundError("boto3"), True),
        (_raised("ClientError", "AuthFailure"), True),
        (_raised("ClientError", "UnauthorizedOperation"), True),
        (_raised("ClientError", "RequestLimitExceeded"), False),
        (_raised("ClientError", "ExpiredToken"), False),
        (_raised("EndpointConnectionError"), False),
        (TimeoutError(), False),
    ],
    ids=str,
)
def test_what_asking_again_does_not_mend_is_a_refusal(error: Exception, refuses: bool) -> None:
    def work() -> None:
        raise error

    with pytest.raises(SkyUnreachableError) as raised:
        asyncio.run(cloud_api._ask(work))
    assert isinstance(raised.value, CloudRefusesError) is refuses
