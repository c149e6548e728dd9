"""Errors of SkyPilot's and its libraries' own, wherever a port may raise them: nothing ends or doubles."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.access.boundary import contained
from starburst.clouds.sky.access.ports import (
    CapacityError,
    CloudApi,
    LocalError,
    MachineTransport,
    SkyApi,
    SkyUnreachableError,
)
from starburst.core.model.events import InstanceFailed, InstanceGone, RunEnd, RunEnded
from tests.app.virtual import run
from tests.clouds.sky.fake import BOOT_S, FakeSky
from tests.clouds.sky.fake_line import Line
from tests.clouds.sky.life import Life, ready
from tests.clouds.sky.test_crashes import story


class LibraryError(Exception):
    """No error that anybody documents."""


#: All coroutines of the three ports.
CALLS = [
    name
    for port in (SkyApi, CloudApi, MachineTransport)
    for name, call in vars(port).items()
    if inspect.iscoroutinefunction(call)
]


@pytest.mark.parametrize(
    ("error", "arrives"),
    [
        (KeyError("region"), "KeyError: 'region'"),
        (LibraryError("the\nreason"), "LibraryError: the reason"),
        (LibraryError(), "LibraryError"),
    ],
)
def test_whatever_a_port_raises_is_a_call_without_an_answer_with_its_words(
    error: Exception, arrives: str
) -> None:
    failing = contained(raising(error), SkyUnreachableError)
    for name in CALLS:
        with pytest.raises(SkyUnreachableError) as raised:
            asyncio.run(getattr(failing, name)())
        assert str(raised.value) == arrives


def test_errors_of_ours_keep_their_meaning() -> None:
    failing = contained(raising(CapacityError("none left")), SkyUnreachableError)
    for name in CALLS:
        with pytest.raises(CapacityError, match="none left"):
            asyncio.run(getattr(failing, name)())


def raising(error: Exception) -> Any:
    """A port whose every call raises this."""

    async def fails() -> None:
        raise error

    return type("Failing", (), {name: staticmethod(fails) for name in CALLS})()


class Planted:
    """Raises once at each of these points, or once at every point that is reached."""

    def __init__(self, *points: str) -> None:
        self.points = points
        self.raised: set[str] = set()

    async def __call__(self, what: str) -> None:
        if what not in self.raised and (not self.points or what in self.points):
            self.raised.add(what)
            raise LibraryError(what)


async def lived(tmp_path: Path, planted: Planted) -> tuple[FakeSky, Life]:
    sky = FakeSky(tmp_path / "sky")
    (tmp_path / "home" / "checkpoints" / "a").mkdir(parents=True)
    (tmp_path / "home" / "checkpoints" / "a" / "step").write_text("1")
    async with Life(sky, tmp_path / "home", planted) as life:
        await story(life)
        await asyncio.sleep(3 * BOOT_S)
    return sky, life


#: Of these the call took effect, and its answer is lost.
EFFECTS = ("launch", "exec", "down", "exchange")


@pytest.mark.parametrize("points", [(), *((f"after {effect}",) for effect in EFFECTS), ("before send",)])
def test_the_scheduler_goes_on_with_one_machine_and_each_run_once(
    tmp_path: Path, points: tuple[str, ...]
) -> None:
    planted = Planted(*points)
    sky, life = run(lived(tmp_path, planted))
    assert planted.raised >= set(points)
    assert points or len(planted.raised) > 20
    assert len(sky.vms) == 1
    assert not sky.alive()
    assert not life.of(InstanceFailed)
    assert len(life.of(InstanceGone)) == 1
    ends = {end.job_id: (end.end, end.exit_code) for end in life.of(RunEnded)}
    assert ends == {"a": (RunEnd.EXITED, 0), "b": (RunEnd.STOPPED, 143)}


class Deaf(Line):
    """A line on which this side has no ssh."""

    async def call(self, *_args: Any, **_more: Any) -> Any:
        raise LibraryError("no ssh today")


def test_a_failure_of_the_transport_itself_says_nothing_about_its_machine(tmp_path: Path) -> None:
    """A machine is missing everywhere, and cannot be asked from here: it is not gone."""

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home") as life:
            await ready(life)
            machine = life.cloud.machines["i-1"]
            deaf = contained(Deaf(sky), LocalError)
            object.__setattr__(life.cloud._context, "transport", deaf)
            sky.cloud_sees = False
            sky.lose_state()
            machine.suspect()
            await asyncio.sleep(600.0)
            assert not life.of(InstanceGone)
            assert machine.takes_runs

    run(main())
