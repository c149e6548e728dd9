"""The controller between a real store and two fake sites, in virtual time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Collection
from itertools import count
from pathlib import Path

import pytest

from starburst.app.config.home import Home
from starburst.app.daemon import controller as controller_module
from starburst.app.daemon import request_intake
from starburst.app.daemon.controller import REAP_S
from starburst.app.daemon.orphan_ledger import OrphanLedger
from starburst.app.daemon.performer import TRIES
from starburst.domain.job import Site
from starburst.runs.ports import Report, Run
from starburst.store.listings import queries
from starburst.store.store import Store
from tests.app.fakes import FakeSite, World
from tests.app.life import SETTINGS, a_world, living
from tests.app.virtual import run, wall
from tests.builders import job, offer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "starburst.db"


def test_jobs_run_here_and_there_and_nothing_is_left(path: Path):
    async def main() -> None:
        async with living(path, a_world(2)) as life:
            life.submit(job("a", 2), job("b", 2))
            await life.until(a="succeeded", b="succeeded")
            await asyncio.sleep(2)
            assert life.cluster.calls == ["start a/1"]
            assert life.cloud.calls == ["launch i-000001", "start b/1", "terminate i-000001"]
            assert not life.controller.scheduler.state.fleet.instances
            assert not life.users.pending_actions()

    run(main())


def late_by_20_s(late: Site) -> type[FakeSite]:
    """Sites of which one takes 20 s to say what it knows."""

    class Late(FakeSite):
        async def watch(self, report: Report) -> None:
            if self.site is late:
                await asyncio.sleep(20)
            await FakeSite.watch(self, report)

    return Late


def test_nothing_new_is_taken_up_before_the_cluster_has_said_what_it_knows(path: Path):
    async def main() -> None:
        kind = late_by_20_s(Site.CLUSTER)
        async with living(path, a_world(2), cluster=kind, cloud=kind) as life:
            life.submit(job("a"))
            await asyncio.sleep(19)
            assert life.phases() == {"a": "submitted"}
            assert not life.cluster.calls
            await life.until(a="running")

    run(main())


def test_a_cloud_out_of_reach_does_not_hold_up_the_cluster(path: Path):
    async def main() -> None:
        kind = late_by_20_s(Site.CLOUD)
        async with living(path, a_world(2), cluster=kind, cloud=kind) as life:
            life.submit(job("a", 2), job("b", 2))
            await asyncio.sleep(7)
            assert life.phases() == {"a": "running", "b": "queued"}, (
                "b's wait is over, but there are no offers"
            )
            await life.until(b="succeeded")

    run(main())


def test_a_bulk_submission_is_taken_up_in_parts(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(request_intake, "PER_STEP", 2)

    async def main() -> None:
        async with living(path, a_world(5)) as life:
            life.submit(*(job(name) for name in "abcde"))
            await life.until(**dict.fromkeys("abcde", "running"))
            assert {row.seq for row in queries.jobs(life.users)} == {1, 2, 3, 4, 5}

    run(main())


def test_jobs_are_held_and_released_as_their_users_ask(path: Path):
    async def main() -> None:
        async with living(path, a_world(2)) as life:
            life.submit(job("a", 1, hold=True), job("c", 2), job("b", 2, cloud="never"))
            await life.until(a="held", c="running", b="queued")
            life.users.hold(["b"], wall())
            await life.until(b="held")
            life.users.release(["a", "b"], wall())
            await life.until(a="succeeded", b="succeeded")
            assert life.kinds("a")[:3] == ["held", "released", "waits"]

    run(main())


def test_a_job_comes_after_one_that_the_scheduler_has_long_forgotten(path: Path):
    async def main() -> None:
        async with living(path, a_world(2)) as life:
            life.submit(job("a"))
            await life.until(a="succeeded")
            assert not life.controller.scheduler.state.jobs
            life.submit(job("b", after_ok=("a",)), job("c", after_ok=("nobody",)))
            await life.until(b="succeeded", c="cancelled")

    run(main())


def test_no_site_is_told_of_a_grace_that_is_longer_than_any_may_be(path: Path):
    """Sites keep it for ends of their own: time limits, and tasks whose gang has failed."""
    told: list[float] = []

    class Noting(FakeSite):
        async def start(self, run: Run) -> None:
            told.append(run.job.grace_s)
            await super().start(run)

    async def main() -> None:
        async with living(path, a_world(2), cluster=Noting) as life:
            life.submit(job("a", grace_s=2e9))
            await life.until(a="succeeded")
            life.submit(job("b", grace_s=5.0))
            await life.until(b="succeeded")
        assert told == [600.0, 5.0]

    run(main())


def test_a_start_that_keeps_failing_becomes_a_new_attempt(path: Path):
    failures = count(1)

    def hook(what: str) -> None:
        if what == "after start a/1" and next(failures) <= TRIES:
            raise ConnectionError("the answer is lost")

    async def main() -> None:
        world = a_world(2)
        world.work_s["a"] = 60.0
        async with living(path, world, hook) as life:
            life.submit(job("a", cloud="never"))
            await life.until(a="succeeded")
            assert life.cluster.calls == ["start a/1"] * TRIES + ["stop a/1", "start a/2"]
            assert not life.cluster.world.broken
            (told,) = [row for row in queries.decisions(life.users, "a") if row.kind == "not-started"]
            assert told.reason == "was not started on n0: the answer is lost; it is tried again in 10 s"
            assert "lost" not in life.kinds("a")

    run(main())


def test_a_launch_that_keeps_failing_becomes_a_new_intent(path: Path):
    def hook(what: str) -> None:
        if what == "before launch i-000001":
            raise ConnectionError("no route")

    async def main() -> None:
        async with living(path, a_world(2), hook) as life:
            life.submit(job("a", cloud="only"))
            await life.until(a="succeeded")
            assert life.cloud.calls[: TRIES + 2] == [
                *["launch i-000001"] * TRIES,
                "terminate i-000001",
                "launch i-000002",
            ]
            gone, launched = (
                next(row.at for row in queries.decisions(life.users, machine) if row.kind == kind)
                for machine, kind in (("i-000001", "gone"), ("i-000002", "launched"))
            )
            assert launched - gone == pytest.approx(SETTINGS.offer_pause_s), "its offer was left alone first"

    run(main())


def test_a_launch_that_keeps_failing_makes_way_for_the_next_offer_at_once(path: Path):
    def hook(what: str) -> None:
        if what == "before launch i-000001":
            raise ConnectionError("no route")

    async def main() -> None:
        world = a_world(2)
        world.offers = (offer("cheap", 2, 1), offer("dear", 2, 2))
        async with living(path, world, hook) as life:
            life.submit(job("a", cloud="only"))
            await life.until(a="succeeded")
            assert [machine.offer for machine in world.machines.values()] == [None, world.offers[1]]
            assert life.kinds("i-000001") == ["launched", "launch-failed", "gone"]
            why = queries.decisions(life.users, "i-000001")[1].reason
            assert why == "could not be rented (no route); cheap is left alone for 5 s"

    run(main())


def test_what_is_long_over_is_removed_before_the_sites_look_and_once_a_day(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(controller_module, "PRUNE_S", 30.0)

    async def main() -> None:
        world, told = a_world(2), list[tuple[float, set[str], set[str]]]()

        async def prune(jobs: Collection[str], machines: Collection[str]) -> None:
            told.append((wall(), set(jobs), set(machines)))
            if len(told) == 2:
                raise PermissionError("not yours")

        class Looking(FakeSite):
            async def watch(self, report: Report) -> None:
                assert told, "before the sites look"
                await FakeSite.watch(self, report)

        began = wall()
        world.work_s["a"] = 60.0
        async with living(path, world, cluster=Looking, cloud=Looking, prune=prune) as life:
            life.submit(job("a", cloud="only"), job("b"))
            await asyncio.sleep(70)
        assert [at - began for at, *_ in told] == pytest.approx([0, 30, 60], abs=0.1)
        assert [alive for _, *alive in told] == [[set(), set()], [{"a"}, {"i-000001"}], [{"a"}, {"i-000001"}]]

    run(main())


def test_the_clock_never_goes_back(path: Path):
    async def main() -> None:
        jump_s = [0.0]
        async with living(path, a_world(2), jump_s=jump_s) as life:
            life.submit(job("a"))
            await life.until(a="running")
            before = life.controller.now()
            jump_s[0] = -3600.0
            assert life.controller.now() >= before
            await life.until(a="succeeded")
            times = [row.at for row in queries.decisions(life.users)]
            assert times == sorted(times)
        async with living(path, World(), jump_s=jump_s) as again:
            assert again.controller.now() >= before

    run(main())


def test_waits_end_on_time_not_at_the_next_look(path: Path):
    async def main() -> None:
        async with living(path, a_world(2)) as life:
            life.submit(job("a", 2), job("b", 2))
            await life.until(b="running")
            waited, left = (
                row.at for row in queries.decisions(life.users, "b") if row.kind in ("waits", "offloaded")
            )
            assert left - waited == pytest.approx(5.0, abs=1e-3)

    run(main())


def test_leases_of_our_machines_are_renewed_and_machines_that_nobody_claims_ended(path: Path):
    async def main() -> None:
        world = a_world(2)
        world.work_s["a"] = 10 * REAP_S
        async with living(path, world) as life:
            world.launch("i-nobody", offer("small", 2), wall(), life.cloud.controller)
            world.launch("them/i-000001", offer("small", 2), wall(), "them", expires_at=wall())
            life.submit(job("a", cloud="only"))
            await asyncio.sleep(3.5 * REAP_S)
            assert "terminate i-nobody" in life.cloud.calls
            assert "terminate them/i-000001" not in life.cloud.calls
            assert world.leases == {"i-000001": 3}
            (reaped,) = OrphanLedger(life.users).all()
            assert (reaped.id, reaped.why, reaped.rate) == ("i-nobody", "unclaimed", 1_000_000)

    run(main())


@pytest.mark.parametrize("site", Site)
def test_a_broken_watch_ends_the_scheduler_with_its_error(path: Path, site: Site):
    class Broken(FakeSite):
        async def watch(self, report: Report) -> None:
            if self.site is site:
                raise OSError("the disk is gone")
            await FakeSite.watch(self, report)

    async def main() -> None:
        with pytest.raises(OSError, match="the disk is gone"):
            async with living(path, World(), cluster=Broken, cloud=Broken) as life:
                await life.task

    run(main())


def test_a_watch_must_not_end(path: Path):
    class Short(FakeSite):
        async def watch(self, report: Report) -> None:
            return

    async def main() -> None:
        with pytest.raises(RuntimeError, match="watch cluster ended by itself"):
            async with living(path, World(), cluster=Short) as life:
                await life.task

    run(main())


@pytest.mark.processes
def test_a_second_scheduler_is_refused_with_one_line(tmp_path: Path):
    with Home(tmp_path).lock():
        second = subprocess.run(
            [sys.executable, "-m", "starburst", "up"],
            env={**os.environ, "STARBURST_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert second.returncode == 2
    assert second.stderr.splitlines() == [
        f"error: {tmp_path}: another starburst runs here (pid {os.getpid()}); stop it, or set STARBURST_HOME"
    ]


def test_a_stop_that_is_repeated_while_the_first_goes_on_outlives_a_crash_after_the_first(path: Path):
    async def main() -> None:
        stops = asyncio.Event()

        class SlowToStop(FakeSite):
            async def stop(self, job_id: str, attempt: int, grace_s: float) -> None:
                if grace_s:  # it takes a while, as behind an API server that throttles
                    await stops.wait()
                else:  # the process dies before this one is answered
                    await asyncio.sleep(1e6)

        async with living(path, a_world(2), cluster=SlowToStop) as life:
            life.submit(job("a", 2, grace_s=30.0))
            await life.until(a="running")
            life.users.cancel(["a"], wall())
            await life.until(a="stopping")
            life.users.cancel(["a"], wall(), now=True)
            while life.kinds("a").count("stopping") < 2:
                await asyncio.sleep(0.1)
            stops.set()
            await asyncio.sleep(1.0)
        with Store.open(path) as store:
            assert [action.grace_s for action in store.pending_actions()] == [0.0]

    run(main())
