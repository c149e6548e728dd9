"""Requests and arrays as the scheduler takes them up: in order, in parts, and each job once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from starburst.app.daemon import request_intake
from starburst.domain.job import Job, Member
from starburst.store.listings import queries
from tests.app.fakes import World
from tests.app.life import WORK_S, Life, living
from tests.app.virtual import run, wall
from tests.builders import job, nodes, offer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def a_world(*gpus: int) -> World:
    """Nodes with so many GPUs, and jobs of arrays x and y."""
    names = [f"{array}-{n}" for array in "xy" for n in range(40)]
    return World(nodes(*gpus), (offer("small", 2),), dict.fromkeys([*names, "a", "b"], WORK_S))


def array(name: str, size: int, at_once: int | None = None, **more: object) -> Job:
    return job(name, 1, array=Member(name, 0, size, at_once), **more)  # type: ignore[arg-type]


def held_by_scheduler(life: Life) -> list[str]:
    return sorted(life.controller.scheduler.state.jobs)


def counted(life: Life) -> Counter[str]:
    return Counter(life.phases().values())


async def all_over(life: Life, names: Sequence[str]) -> None:
    await life.until(**dict.fromkeys(names, "succeeded"))


def test_an_array_is_taken_up_in_parts_and_other_jobs_beside_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_intake, "PER_STEP", 5)

    async def main() -> None:
        async with living(path, a_world(40)) as life:
            life.submit(array("x", 30), job("a"), array("y", 3))
            await life.until(a="running", **{"y-2": "running"})
            assert "x-29" not in held_by_scheduler(life)
            await all_over(life, [f"x-{n}" for n in range(30)])
            assert {row.attempt for row in queries.jobs(life.users)} == {1}

    run(main())


def test_of_an_array_with_a_limit_only_those_are_taken_up_whose_turn_is_near(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_intake, "AHEAD", 2)

    async def main() -> None:
        async with living(path, a_world(40)) as life:
            life.submit(array("x", 9, at_once=3))
            await life.until(**{"x-2": "running"})
            assert held_by_scheduler(life) == [f"x-{n}" for n in range(5)]
            assert counted(life) == {"running": 3, "blocked": 6}
            await life.until(**{"x-5": "running"})
            assert held_by_scheduler(life) == [f"x-{n}" for n in range(3, 8)]
            await all_over(life, [f"x-{n}" for n in range(9)])
            assert len({row.submitted_at for row in queries.jobs(life.users)}) == 1, (
                "that is when the array was"
            )
            starts = [row.subject for row in queries.decisions(life.users) if row.kind == "placed"]
            assert starts == sorted(starts), "they start in order"

    run(main())


def test_what_is_asked_of_a_job_takes_it_up_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_intake, "AHEAD", 1)

    async def main() -> None:
        async with living(path, a_world(40)) as life:
            life.submit(array("x", 20, at_once=1))
            await life.until(**{"x-0": "running"})
            life.users.cancel(["x-7"], wall())
            life.users.hold(["x-3"], wall())
            await life.until(**{"x-7": "cancelled", "x-3": "held"})
            assert held_by_scheduler(life) == ["x-0", "x-1", "x-3"]
            await life.until(**{"x-4": "running"})
            life.users.release(["x-3"], wall())
            await all_over(life, [f"x-{n}" for n in range(20) if n != 7])
            assert life.phases()["x-7"] == "cancelled"

    run(main())


def test_what_comes_after_jobs_of_an_array_finds_them(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_intake, "AHEAD", 1)
    monkeypatch.setattr(request_intake, "PER_STEP", 5)

    async def main() -> None:
        async with living(path, a_world(40)) as life:
            life.submit(
                job("b"),
                array("x", 9, at_once=1, after_ok=("b",)),
                job("a", after_ok=("x-8",)),
                array("y", 2, after_any=("x-7", "a")),
            )
            await life.until(a="blocked", **{"x-8": "blocked"})
            await all_over(life, ["a", "b", "x-8", "y-0", "y-1"])
            ends = {row.id: row.ended_at or 0.0 for row in queries.jobs(life.users)}
            begins = {row.id: row.started_at for row in queries.jobs(life.users) if row.started_at}
            assert ends["b"] <= min(begins[name] for name in begins if name.startswith("x-"))
            assert ends["x-8"] <= begins["a"]
            assert ends["a"] <= min(begins["y-0"], begins["y-1"])

    run(main())


@pytest.mark.parametrize("at_once", [None, 2])
def test_a_restart_goes_on_where_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int | None
) -> None:
    monkeypatch.setattr(request_intake, "AHEAD", 1)
    monkeypatch.setattr(request_intake, "PER_STEP", 5)
    world = a_world(6)

    async def main() -> None:
        async with living(path, world) as life:
            life.submit(array("x", 12, at_once=at_once))
            await life.until(**{"x-1": "running"})
            life.users.cancel(["x-9"], wall())
            await asyncio.sleep(0.2)
        async with living(path, world) as life:
            await all_over(life, [f"x-{n}" for n in range(12) if n != 9])
            rows = queries.jobs(life.users)
            assert len(rows) == 12
            assert {row.attempt for row in rows} <= {0, 1}

    run(main())


def test_held_jobs_of_an_array_take_no_turn_from_the_others(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_intake, "AHEAD", 1)

    async def main() -> None:
        async with living(path, a_world(40)) as life:
            life.submit(array("x", 9, at_once=2, hold=True))
            await life.until(**{f"x-{n}": "held" for n in range(9)})
            life.users.release(["x-8"], wall())
            await life.until(**{"x-8": "succeeded"})

    run(main())
