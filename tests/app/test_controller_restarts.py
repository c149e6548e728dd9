"""The controller after a restart, and a state that must not be stored; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from starburst.app.daemon import controller as controller_module
from starburst.app.daemon.controller import Surroundings
from starburst.app.daemon.performer import TRIES
from starburst.core.model.events import RunEnd, RunEnded, RunStalled
from starburst.core.views.validate import InvariantError
from starburst.domain.job import Site
from starburst.runs.ports import Report
from starburst.store.listings.row_types import SUBMITTED
from tests.app.fakes import FakeSite, World
from tests.app.life import WORK_S, a_world, living
from tests.app.virtual import run, wall
from tests.builders import job, nodes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "starburst.db"


def test_what_runs_goes_on_when_the_scheduler_stops_and_is_found_again(path: Path):
    async def main() -> None:
        world = a_world(2)
        async with living(path, world) as life:
            life.submit(job("a"), job("b", cloud="only"))
            await life.until(a="running", b="running")
        assert [it.end for it in world.runs.values()] == [None, None]
        assert all(machine.ended is None for machine in world.machines.values())
        async with living(path, world) as again:
            await again.until(a="succeeded", b="succeeded")
            assert again.cluster.calls == []
            assert again.cloud.calls == ["terminate i-000001"]

    run(main())


def test_what_ended_meanwhile_is_heard_of(path: Path):
    async def main() -> None:
        world = a_world(2)
        async with living(path, world) as life:
            life.submit(job("a"))
            await life.until(a="running")
        await asyncio.sleep(2 * WORK_S)
        async with living(path, world) as again:
            await again.until(a="succeeded")
            assert again.cluster.calls == []

    run(main())


def test_a_start_of_a_run_that_is_over_by_now_is_not_made_up_for(path: Path):
    """A call that failed may have started it."""

    def no_route(what: str) -> None:
        if what.startswith("before start a/1"):
            raise ConnectionError("no route")

    async def main() -> None:
        world = a_world(2)
        async with living(path, world, no_route) as life:
            life.submit(job("a"))
            while len(life.cluster.calls) < TRIES - 1:
                await asyncio.sleep(0.1)
            life.controller._report(RunEnded("a", 1, RunEnd.LOST))
            while "lost" not in life.kinds("a"):
                await asyncio.sleep(0.1)
            assert "start/a/1" in [action.key for action in life.users.pending_actions()]
        async with living(path, world) as again:
            await again.until(a="succeeded")
            assert again.cluster.calls == ["start a/2"]
            assert again.users.pending_actions() == []

    run(main())


def test_the_end_of_a_run_from_before_a_restore_is_not_that_of_its_namesake_at_the_other_site(path: Path):
    async def main() -> None:
        world = a_world(2)
        async with living(path, world) as life:
            life.submit(job("a", cloud="never"))
            await life.until(a="running")
            for late in (RunStalled("a", 1, "its disk is full"), RunEnded("a", 1, RunEnd.LOST)):
                life.controller._heard(Site.CLOUD, late)
            await life.until(a="succeeded")
            assert life.cluster.calls == ["start a/1"]
            assert not {"lost", "stalled"} & {*life.kinds("a")}

    run(main())


class Away(FakeSite):
    """A cluster whose API is away."""

    async def watch(self, report: Report) -> None:
        await asyncio.Event().wait()


def test_a_job_in_the_cloud_can_be_cancelled_while_the_api_of_the_cluster_is_away(path: Path):
    async def main() -> None:
        world = a_world(2)
        world.work_s |= dict.fromkeys("ab", 1000.0)
        async with living(path, world) as life:
            life.submit(job("a", cloud="only"), job("b"), job("c", cloud="only"))
            await life.until(a="running", b="running", c="running")
        await asyncio.sleep(2 * WORK_S)
        async with living(path, world, cluster=Away) as again:
            again.users.cancel(["a", "b", "c"], wall())
            again.submit(job("d"))
            await again.until(a="cancelled", c="succeeded")
            await asyncio.sleep(WORK_S)
            assert again.phases() == {"a": "cancelled", "b": "running", "c": "succeeded", "d": SUBMITTED}
            assert world.machines["i-000001"].ended
        async with living(path, world) as last:
            await last.until(b="cancelled", d="succeeded")

    run(main())


def test_a_site_that_does_not_answer_after_a_restart_holds_up_neither_the_other_nor_the_stop(path: Path):
    def no_route(what: str) -> None:
        if what.startswith("before terminate"):
            raise ConnectionError("no route")

    async def main() -> None:
        world = a_world(2)
        world.work_s["a"] = 60.0
        async with living(path, world, no_route) as life:
            life.submit(job("a", 2), job("b", cloud="only"), job("c", 2, cloud="never"))
            await life.until(b="succeeded", a="running")
            assert [action.key for action in life.users.pending_actions()] == ["terminate/i-000001"]
        async with living(path, world, no_route) as again:
            await again.until(a="succeeded", c="running")
        async with living(path, world) as healed:
            await healed.until(c="succeeded")
            assert healed.cloud.calls == ["terminate i-000001"]

    run(main())


def refusing(*calls: str) -> Callable[[str], None]:
    """A hook: calls that begin so are refused, before they take effect."""

    def hook(what: str) -> None:
        if what.startswith(tuple(f"before {call}" for call in calls)):
            raise RuntimeError("1 pods of a are still there")

    return hook


async def left_stopping(path: Path, world: World) -> None:
    """A life that ends while job a is to stop, which its site refuses."""
    world.work_s["a"] = 500.0
    async with living(path, world, refusing("stop")) as life:
        life.submit(job("a"))
        await life.until(a="running")
        life.users.cancel(["a"], wall())
        await life.until(a="stopping")


def test_a_stop_that_is_refused_for_ever_does_not_keep_its_site_from_being_watched(path: Path):
    async def main() -> None:
        world = a_world(2)
        await left_stopping(path, world)
        async with living(path, world, refusing("stop")) as again:
            again.submit(job("b", cloud="never"))
            await again.until(b="succeeded", a="stopping")
        async with living(path, world) as healed:
            await healed.until(a="cancelled")
            assert healed.kinds("a").count("lost") == 0

    run(main())


def test_a_run_that_is_not_there_and_whose_stop_is_owed_ends_as_stopped(path: Path):
    async def main() -> None:
        world = a_world(2)
        await left_stopping(path, world)
        del world.runs["a", 1]
        async with living(path, world, refusing("stop")) as again:
            await again.until(a="stopping")
            await asyncio.sleep(60)
            assert again.phases() == {"a": "stopping"}
        async with living(path, world) as healed:
            await healed.until(a="cancelled")

    run(main())


def test_the_undo_of_a_start_that_was_given_up_does_not_keep_its_site_from_being_watched(path: Path):
    async def main() -> None:
        world = a_world(2)
        async with living(path, world, refusing("start")) as life:
            life.submit(job("a", cloud="never"))
            await life.until(a="starting")
        async with living(path, world, refusing("start a", "stop")) as again:
            again.submit(job("b", cloud="never"))
            await again.until(b="succeeded", a="starting")
            assert "stop a/1" in again.cluster.calls
        async with living(path, world) as healed:
            await healed.until(a="succeeded")
            assert not world.broken

    run(main())


def test_a_start_behind_a_stop_that_is_refused_does_not_either(path: Path):
    async def main() -> None:
        world = a_world(2)
        world.work_s["a"] = 500.0
        async with living(path, world, refusing("stop")) as life:
            life.submit(job("a", 1, cloud="never"))
            await life.until(a="running")
            life.users.requeue(["a"], wall())
            await life.until(a="stopping")
            world.runs["a", 1].end = RunEnded("a", 1, RunEnd.STOPPED)
            await life.until(a="starting")
            keys = [action.key for action in life.users.pending_actions()]
            assert keys == ["stop/a/1", "start/a/2"]
        async with living(path, world, refusing("stop")) as again:
            again.submit(job("b", cloud="never"))
            await again.until(b="succeeded", a="starting")
            assert "start a/2" not in again.cluster.calls
        async with living(path, world) as healed:
            await healed.until(a="running")
            assert not world.broken

    run(main())


def test_a_state_that_contradicts_itself_is_not_stored_and_a_restart_goes_on_from_the_step_before(path: Path):
    world = a_world(2)

    async def broken() -> None:
        async with living(path, world) as life:
            life.submit(job("a"))
            await life.until(a="running")
            life.controller.scheduler.state.jobs["a"].slots = ()
            life.submit(job("b"))
            await asyncio.wait([life.task])
            assert life.phases() == {"a": "running", "b": SUBMITTED}
            assert life.cluster.calls == ["start a/1"], "nothing is begun that is not stored"

    async def mended() -> None:
        async with living(path, world) as again:
            assert again.controller.scheduler.state.jobs["a"].slots
            await again.until(a="succeeded", b="succeeded")

    with capture_logs() as logs, pytest.raises(InvariantError, match="a is running and holds 0 slots"):
        run(broken())
    (line,) = (line for line in logs if line["event"] == "state-invalid")
    assert "a is running and holds 0 slots" in line["problems"]
    story = line["decisions"]
    assert [said.split(":")[0].split()[1] for said in story["a"].split("; ")][-2:] == ["placed", "started"]
    run(mended())


def test_a_node_that_came_back_smaller_than_its_runs_ends_nobody(path: Path):
    async def main() -> None:
        world = a_world(2)
        async with living(path, world) as life:
            life.submit(job("a", 2), job("b", cloud="never"))
            await life.until(a="running", b="queued")
        world.nodes = nodes(1)
        for _ in range(2):
            async with living(path, world) as again:
                await again.until(b="queued", a="running")
        async with living(path, world) as last:
            await last.until(a="succeeded", b="succeeded")

    run(main())


def test_the_state_is_not_looked_at_unless_asked_for(path: Path, monkeypatch: pytest.MonkeyPatch):
    def dear(_state: object) -> None:
        raise AssertionError

    async def main() -> None:
        async with living(path, a_world(2), validates=Surroundings().validates) as life:
            life.submit(job("a"))
            await life.until(a="succeeded")

    monkeypatch.setattr(controller_module, "validate", dear)
    run(main())
