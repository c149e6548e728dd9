"""A wall clock that is set ends no run and makes none longer; and who loses its lease has its grace."""

from __future__ import annotations

import asyncio
import math
import time
from functools import partial
from pathlib import Path

import pytest

from starburst.app.daemon.wall_clock import steady_wall
from starburst.core.model.events import RunEnd
from starburst.runs.processes import RunHost
from starburst.runs.supervisor import lease as leases
from starburst.runs.supervisor.exits import ITSELF, LEASE
from starburst.runs.supervisor.files import write_json
from starburst.runs.supervisor.lease import LEASE_GRACE_S, boot_id, lease_left_s, new_lease
from starburst.runs.supervisor.shutdown import Shutdown
from starburst.runs.supervisor.supervisor import Supervisor
from tests.runs.harness import a_runner, log, rank_dir, shell, until, watching

HOURS_S = 5 * 3600.0


def test_a_lease_does_not_move_with_the_walls_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    lease = new_lease(900.0)
    for jump_s in (HOURS_S, -HOURS_S):
        monkeypatch.setattr(time, "time", partial(float, time.time() + jump_s))
        assert lease_left_s(lease) == pytest.approx(900.0, abs=5)
        monkeypatch.undo()


def test_after_a_boot_a_lease_goes_by_the_walls_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    lease = {**new_lease(900.0), "until": time.time() + 60.0}
    monkeypatch.setattr(leases, "boot_id", lambda: "another boot")
    assert lease_left_s(lease) == pytest.approx(60.0, abs=5)


def test_a_lease_of_an_older_version_goes_by_the_walls_clock() -> None:
    assert lease_left_s({"until": time.time() + 60.0}) == pytest.approx(60.0, abs=5)


@pytest.mark.parametrize(
    "what",
    [
        None,
        [],
        {},
        {"until": "late"},
        {"until": None},
        {"boot": boot_id()},
        {"until": 10**400},
        {"until": math.nan},
        {"until": math.inf},
    ],
)
def test_what_is_no_lease_has_passed(what: object) -> None:
    assert lease_left_s(what) < 0


def test_the_schedulers_time_goes_on_when_the_wall_clock_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, before = steady_wall(), time.time()
    monkeypatch.setattr(time, "time", lambda: before + HOURS_S)
    assert wall() == pytest.approx(before, abs=5)
    assert steady_wall()() == pytest.approx(before + HOURS_S, abs=5), "a restart believes the clock"


@pytest.mark.processes
def test_a_run_on_a_machine_whose_wall_clock_jumped_runs_on(root: Path) -> None:
    """As its shim sees it: by the wall the lease passed hours ago, by the machine's clock it has not."""
    lease = root / "lease.json"
    write_json(lease, {**new_lease(600.0), "until": time.time() - HOURS_S})

    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(shell("echo up; sleep 1.5; exit 5"), {"n1": RunHost(4, lease)})
            assert (await reports.ended()).exit_code == 5
        exit_ = rank_dir(root).exit()
        assert exit_ is not None
        assert 1.4 < exit_.ended_at - exit_.started_at < 15

    asyncio.run(main())


@pytest.mark.processes
@pytest.mark.parametrize("most_s", [60.0, 0.2])
def test_the_end_of_a_lease_gives_a_run_its_grace_and_no_more(
    root: Path, monkeypatch: pytest.MonkeyPatch, most_s: float
) -> None:
    lease = root / "lease.json"
    write_json(lease, new_lease(600.0))
    save = "trap 'sleep 1; echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"

    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(shell(save, grace_s=30.0), {"n1": RunHost(4, lease)})
            await until(lambda: (rank_dir(root).path / "log").exists() and log(root) == "up\n")
            if most_s < 1:  # as a scheduler that looks after the machine ends it, with its bound
                await runner.evacuate(lease, "its lease passed", most_s)
            else:
                write_json(lease, new_lease(0.0))
                assert (await reports.ended()).end is RunEnd.LOST
        assert ("saved" in log(root)) == (most_s > 1)

    asyncio.run(main())


def test_the_shims_own_bound_on_that_grace_is_a_minute() -> None:
    supervisor = object.__new__(Supervisor)
    supervisor.spec = {"grace_s": 1e9, "lease": "somewhere", "time_limit_s": None}
    supervisor.directory, supervisor.limit_time = "/nonexistent", float("inf")
    supervisor.shutdown = Shutdown()
    supervisor.kill_time, supervisor.status, supervisor.ended_by = float("inf"), 0, ITSELF
    supervisor._look(1000.0)  # no lease can be read: it has passed
    assert (supervisor.ended_by, supervisor.kill_time) == (LEASE, 1000.0 + LEASE_GRACE_S)
