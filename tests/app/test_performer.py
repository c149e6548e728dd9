"""Actions are carried out in order, again and again until taken, and never left in doubt."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from errno import ENOSPC
from itertools import pairwise

import pytest

from starburst.app.daemon.performer import CALL_TIMEOUT_S, LATER_S, TRIES, Performer
from starburst.app.daemon.shortages import ShortageRetry
from starburst.core.model.actions import Action, LaunchInstance, Slot, StartRun, StopRun, TerminateInstance
from starburst.core.model.events import Event, InstanceGone, RunEnd, RunEnded, RunStalled
from starburst.domain.job import Job, Site, Workload
from starburst.domain.resources import Resources
from tests.app.fakes import CALL_S, FakeSite, Hook, World
from tests.app.virtual import run, wall
from tests.builders import job, nodes, offer

OFFER = offer("small", 2)


def start(name: str = "a", attempt: int = 1) -> StartRun:
    return StartRun(name, attempt, Site.CLUSTER, (Slot(0, "n0", Resources(1)),))


def stop(name: str = "a", attempt: int = 1) -> StopRun:
    return StopRun(name, attempt, Site.CLUSTER, 5.0)


async def found(name: str) -> tuple[Job, Workload]:
    return job(name), Workload(("work",))


class Bench:
    """A performer between two fake sites."""

    def __init__(
        self,
        hook: Hook = lambda _what: None,
        find: Callable[[str], Awaitable[tuple[Job, Workload]]] | None = None,
        sites: type[FakeSite] = FakeSite,
    ):
        self.world = World(nodes(4), (OFFER,), dict.fromkeys("ab", 1000.0))
        self.cluster, self.cloud = (sites(self.world, site, hook) for site in Site)
        self.done: list[str] = []
        self.reports: list[Event] = []
        self.performer = Performer(
            self.cluster,
            self.cloud,
            find=find or found,
            offer={"small": OFFER}.__getitem__,
            done=self._done,
            patience=ShortageRetry(),
            report=self.reports.append,
        )

    async def _done(self, key: str) -> None:
        self.done.append(key)

    async def perform(self, *actions: Action) -> None:
        await asyncio.wait([self.performer.perform(action) for action in actions])


class Fails:
    """Calls whose name begins so fail so many times; `when` is before or after they took effect."""

    def __init__(self, times: int, call: str, when: str = "before") -> None:
        self.times, self.prefix = times, f"{when} {call}"
        self.at: list[float] = []

    def __call__(self, what: str) -> None:
        if what.startswith(self.prefix) and len(self.at) < self.times:
            self.at.append(wall())
            raise ConnectionError("no route")


def test_an_action_is_done_when_its_site_took_it():
    async def main() -> None:
        bench = Bench()
        await bench.perform(start(), LaunchInstance("i-1", "small"))
        assert bench.done == ["start/a/1", "launch/i-1"]
        assert (bench.cluster.calls, bench.cloud.calls) == (["start a/1"], ["launch i-1"])

    run(main())


def test_pauses_between_tries_double_up_to_half_a_minute():
    async def main() -> None:
        failing = Fails(9, "stop")
        bench = Bench(failing)
        await bench.perform(stop())
        assert [b - a for a, b in pairwise(failing.at)] == pytest.approx([0.5, 1, 2, 4, 8, 16, 30, 30])
        assert bench.done == ["stop/a/1"]

    run(main())


@pytest.mark.parametrize("ending", [stop(), TerminateInstance("i-1")], ids=lambda action: action.key)
def test_ends_are_asked_for_until_they_are_taken(ending: Action):
    async def main() -> None:
        failing = Fails(4 * TRIES, "")
        bench = Bench(failing)
        await bench.perform(ending)
        assert len(failing.at) == 4 * TRIES
        assert bench.done == [ending.key]

    run(main())


def test_a_start_whose_answer_is_lost_starts_nothing_twice():
    async def main() -> None:
        bench = Bench(Fails(2, "start", "after"))
        await bench.perform(start())
        assert bench.cluster.calls == ["start a/1"] * 3
        assert not bench.world.broken
        assert bench.world.runs["a", 1].end is None

    run(main())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_start_that_keeps_failing_is_stopped_for_nobody_knows_whether_it_runs(when: str):
    async def main() -> None:
        bench = Bench(Fails(TRIES, "start", when))
        await bench.perform(start())
        assert bench.cluster.calls == ["start a/1"] * TRIES + ["stop a/1"]
        assert bench.done == ["start/a/1"]
        bench.world.settle(wall() + 10)
        end = bench.world.runs["a", 1].end
        assert end is not None
        assert end.end is RunEnd.STOPPED

    run(main())


@pytest.mark.parametrize(
    ("error", "outage", "words"),
    [
        (ConnectionError("no route"), True, "no route"),
        (TimeoutError(), True, "TimeoutError"),
        (LookupError("the store has no workload for a"), False, "the store has no workload for a"),
    ],
)
def test_the_end_of_a_start_that_was_given_up_says_why(error: Exception, outage: bool, words: str):
    def hook(what: str) -> None:
        if what.startswith("before start"):
            raise error

    async def main() -> None:
        bench = Bench(hook)
        await bench.perform(start())
        told = bench.performer.explained(RunEnded("a", 1, RunEnd.STOPPED))
        assert told == RunEnded("a", 1, RunEnd.NOT_STARTED, message=words, outage=outage)
        again = RunEnded("a", 1, RunEnd.STOPPED)
        assert bench.performer.explained(again) is again, "it was told once"

    run(main())


def test_the_end_of_a_launch_that_was_given_up_says_why():
    async def main() -> None:
        bench = Bench(Fails(TRIES, "launch"))
        await bench.perform(LaunchInstance("i-1", "small"))
        told = bench.performer.explained(InstanceGone("i-1", 1.0, 2.0))
        assert told == InstanceGone("i-1", 1.0, 2.0, message="no route")

    run(main())


def test_other_reports_pass_as_they_are():
    async def main() -> None:
        bench = Bench(Fails(TRIES, "start"))
        await bench.perform(start())
        for event in (
            RunEnded("b", 1, RunEnd.STOPPED),
            RunEnded("a", 1, RunEnd.EXITED, 0),
            InstanceGone("i", 0, 0),
        ):
            assert bench.performer.explained(event) is event

    run(main())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_launch_that_keeps_failing_is_terminated(when: str):
    async def main() -> None:
        bench = Bench(Fails(TRIES, "launch", when))
        await bench.perform(LaunchInstance("i-1", "small"))
        assert bench.cloud.calls == ["launch i-1"] * TRIES + ["terminate i-1"]
        assert bench.done == ["launch/i-1"]
        bench.world.settle(wall() + 10)
        assert bench.world.machines["i-1"].ended is not None

    run(main())


def test_an_offer_that_is_no_longer_sold_ends_the_intent():
    async def main() -> None:
        bench = Bench()
        await bench.perform(LaunchInstance("i-1", "withdrawn"))
        assert bench.cloud.calls == ["terminate i-1"]
        assert bench.done == ["launch/i-1"]

    run(main())


def test_a_job_without_a_workload_is_not_started():
    async def main() -> None:
        async def find(job_id: str) -> tuple[Job, Workload]:
            raise LookupError(job_id)

        bench = Bench(find=find)
        await bench.perform(start())
        assert bench.cluster.calls == ["stop a/1"]

    run(main())


def test_a_call_without_an_answer_is_repeated():
    async def main() -> None:
        began, calls = wall(), Counter[str]()

        class Slow(FakeSite):
            async def stop(self, job_id: str, attempt: int, grace_s: float) -> None:
                calls[job_id] += 1
                if calls[job_id] == 1:
                    await asyncio.sleep(10 * CALL_TIMEOUT_S)

        bench = Bench(sites=Slow)
        await bench.perform(stop())
        assert calls["a"] == 2
        assert wall() == pytest.approx(began + CALL_TIMEOUT_S + 0.5)

    run(main())


def test_actions_of_one_job_wait_for_each_other_and_other_jobs_do_not():
    async def main() -> None:
        bench = Bench(Fails(3, "start a"))
        await bench.perform(start("a"), stop("a"), start("a", 2), start("b"))
        assert bench.cluster.calls[-3:] == ["start a/1", "stop a/1", "start a/2"]
        assert bench.done == ["start/b/1", "start/a/1", "stop/a/1", "start/a/2"]

    run(main())


def test_closing_drops_what_is_under_way_and_what_waits_behind_it():
    async def main() -> None:
        bench = Bench(Fails(1000, "start"))
        tasks = [bench.performer.perform(action) for action in (start(), stop(), start("a", 2))]
        await asyncio.sleep(3.7)
        await bench.performer.close()
        assert all(task.done() for task in tasks)
        assert not bench.done
        calls = len(bench.cluster.calls)
        await asyncio.sleep(100 * CALL_S)
        assert len(bench.cluster.calls) == calls

    run(main())


AWAY = StartRun("a", 2, Site.CLOUD, (Slot(0, "i-1", Resources(1)),))


@pytest.mark.parametrize(
    ("lives", "asked"),
    [(AWAY, start("a", 1)), (AWAY, start("a", 2)), (start("a", 3), AWAY), (start("a", 2), start("a", 1))],
    ids=["later, away", "the same number, away", "later, at home", "later, at the same site"],
)
def test_a_run_that_only_a_later_store_knew_ends_before_its_job_starts(
    lives: StartRun, asked: StartRun
) -> None:
    async def main() -> None:
        before, after = Bench(), Bench()
        after.cluster.world = after.cloud.world = before.world
        await before.perform(LaunchInstance("i-1", "small"))
        await asyncio.sleep(10.0)
        await before.perform(lives)
        run_ = before.world.runs["a", lives.attempt]
        assert run_.end is None
        await after.perform(asked)
        calls = [*after.cluster.calls, *after.cloud.calls]
        assert calls.count(f"stop a/{lives.attempt}") == 1
        assert f"start a/{asked.attempt}" in calls
        assert run_.end is not None
        assert run_.end.end is RunEnd.STOPPED
        assert not before.world.broken
        assert after.done == [asked.key]
        (told,) = after.reports
        assert isinstance(told, RunStalled)
        assert (told.job_id, told.attempt) == ("a", asked.attempt)
        assert told.why.startswith(f"its run {lives.attempt} in the {lives.site.value}, ")

    run(main())


class Unlisted(FakeSite):
    """It may have runs that the store does not know, for a minute."""

    until = 0.0

    def newest(self, job_id: str) -> int | None:  # type: ignore[override]
        return super().newest(job_id) if wall() >= self.until else None


def test_a_start_waits_until_what_the_store_may_not_know_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(Unlisted, "until", wall() + 60.0)
        bench = Bench(sites=Unlisted)
        await bench.perform(start())
        assert Unlisted.until <= wall() < Unlisted.until + 2 * LATER_S
        assert bench.cluster.calls == ["start a/1"]
        (told,) = bench.reports
        assert isinstance(told, RunStalled)
        assert "not listed yet" in told.why

    run(main())


def test_one_that_is_to_stop_meanwhile_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(Unlisted, "until", wall() + 60.0)
        bench = Bench(sites=Unlisted)
        bench.performer.owe([start(), stop()])
        await bench.perform(start(), stop())
        assert wall() < Unlisted.until
        assert (bench.cluster.calls, bench.done) == (["stop a/1"], ["start/a/1", "stop/a/1"])

    run(main())


def test_a_job_whose_run_of_the_same_number_ended_elsewhere_is_not_started_under_that_number() -> None:
    async def main() -> None:
        before, after = Bench(), Bench()
        after.cluster.world = after.cloud.world = before.world
        await before.perform(LaunchInstance("i-1", "small"))
        await asyncio.sleep(10.0)
        await before.perform(AWAY)
        after.performer.owe([start("a", 2)])
        starting = after.performer.perform(start("a", 2))
        while before.world.runs["a", 2].end is None:
            await asyncio.sleep(0.1)
            before.world.settle(wall())
        end = RunEnded("a", 2, RunEnd.STOPPED)
        assert after.performer.explained(end) is end
        await starting
        assert (after.cluster.calls, after.done) == ([], ["start/a/2"])
        await after.perform(start("a", 3))
        assert after.cluster.calls == ["start a/3"]

    run(main())


def test_a_start_that_may_have_been_taken_is_undone_when_its_run_has_ended_meanwhile() -> None:
    async def main() -> None:
        bench = Bench(Fails(1, "start", when="after"))
        bench.performer.owe([start()])
        starting = bench.performer.perform(start())
        await asyncio.sleep(0.3)
        bench.performer.explained(RunEnded("a", 1, RunEnd.LOST))
        await starting
        assert bench.cluster.calls == ["start a/1", "stop a/1"]
        assert bench.done == ["start/a/1"]

    run(main())


def test_a_full_disk_meanwhile_is_waited_out_and_the_later_run_has_its_grace() -> None:
    tries: list[float] = []

    async def find(name: str) -> tuple[Job, Workload]:
        tries.append(wall())
        if len(tries) == 1:
            raise OSError(ENOSPC, "No space left on device")
        return await found(name)

    async def main() -> None:
        before, after = Bench(), Bench(find=find)
        after.cluster.world = after.cloud.world = before.world
        await before.perform(start("a", 2))
        await after.perform(start("a", 1))
        assert after.done == [start("a", 1).key]
        assert after.cluster.calls == ["stop a/2", "start a/1"]
        assert len(tries) == 3  # the disk is full; for the grace; for the start

    run(main())


def test_earlier_runs_are_the_business_of_the_core() -> None:
    async def main() -> None:
        bench = Bench()
        await bench.perform(start("a", 1))
        await bench.perform(AWAY)
        assert bench.cluster.calls == ["start a/1"]

    run(main())
