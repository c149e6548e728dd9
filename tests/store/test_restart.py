"""Wherever a scheduler is cut off, the one restored from the store is the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.world import SimJob, World
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.core.state import Changes
from starburst.core.views.restoring import restore
from starburst.core.views.snapshot import facts
from starburst.core.views.validate import validate
from starburst.domain.cloud import Offer
from starburst.domain.job import CloudChoice, Job, Submission, Workload
from starburst.domain.money import Money
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.store.listings import queries
from starburst.store.store import Step, Store

NODES = [Node("n1", Resources.of(2, 8, 32)), Node("n2", Resources.of(1, 8, 32))]
OFFERS = [Offer("small", Resources.of(1, 8, 32), Money.of(1)), Offer("large", Resources.of(4, 16, 64), None)]

demands = st.builds(Resources.of, st.sampled_from([1, 1, 2, 0]), st.just(1))
times = st.integers(0, 40).map(float)
runtimes = st.integers(5, 60).map(float)
sim_jobs = st.builds(
    SimJob,
    st.builds(
        Job,
        id=st.just(""),
        name=st.just("job"),
        tasks=st.lists(demands, min_size=1, max_size=2).map(tuple),
        runtime_estimate_s=runtimes | st.none(),
        max_wait_s=st.none() | times,
        cloud=st.sampled_from([CloudChoice.AUTO, *CloudChoice]),
        checkpoint=st.booleans(),
        priority=st.integers(0, 3),
        user=st.sampled_from(["", "ann", "ben"]),
    ),
    arrival_s=times,
    duration_s=runtimes,
)
worlds = st.lists(sim_jobs, min_size=4, max_size=12)
policies = st.builds(
    Settings,
    waiting=st.sampled_from(["compute", "constant"]),
    factor=st.floats(0.0, 30.0),
    order=st.sampled_from(["fifo", "sjf", "edf", "priority"]),
    queue_limit=st.none() | st.integers(1, 4),
    returns=st.sampled_from(["if-it-pays", "never"]),
    t_max_s=st.integers(1, 20).map(float),
)


def run_and_commit(
    store: Store, scheduler: Scheduler, jobs: list[SimJob], after_step: Callable[[], None]
) -> None:
    """Run a world to its end, every step committed."""
    pending = {item.job.id: Submission(item.job, Workload(("true",))) for item in jobs}

    def commit(now: float, changes: Changes) -> None:
        new = {job_id: pending.pop(job_id) for job_id in changes.jobs if job_id in pending}
        store.commit(
            Step(
                now,
                changes,
                facts(scheduler.state),
                submissions=new,
                nodes=scheduler.state.capacity.nodes,
                offers=scheduler.state.fleet.offers.values(),
            )
        )
        after_step()

    world = World(scheduler, NODES, OFFERS, boot_s={"small": 5.0}, on_step=commit)
    world.submit(jobs)
    world.run()


def assert_same(heir: Scheduler, live: Scheduler) -> None:
    assert facts(heir.state) == facts(live.state)
    assert heir.state.jobs == live.state.jobs
    assert heir.state.run_times.accuracies == live.state.run_times.accuracies
    assert list(heir.state.queue) == list(live.state.queue)
    assert heir.state.capacity.nodes == live.state.capacity.nodes
    assert [heir.state.capacity.free(n.name) for n in NODES] == [
        live.state.capacity.free(n.name) for n in NODES
    ]
    assert heir.next_wakeup() == live.next_wakeup()
    assert set(heir.state.homesick) == set(live.state.homesick)
    assert heir.state.fleet.instances == live.state.fleet.instances
    assert heir.state.fleet.offers == live.state.fleet.offers
    validate(heir.state)


@settings(max_examples=8, deadline=None)
@given(policies, worlds, st.data())
def test_a_scheduler_restored_after_any_step_equals_the_live_one(
    policy: Settings, drawn: list[SimJob], data: st.DataObject
) -> None:
    _live_and_restored(policy, drawn, data)


@pytest.mark.volume
@settings(max_examples=40, deadline=None)
@given(policies, worlds, st.data())
def test_it_does_in_more_worlds(policy: Settings, drawn: list[SimJob], data: st.DataObject) -> None:
    _live_and_restored(policy, drawn, data)


def _live_and_restored(policy: Settings, drawn: list[SimJob], data: st.DataObject) -> None:
    jobs = [replace(item, job=replace(item.job, id=f"j{n}")) for n, item in enumerate(drawn)]
    live = Scheduler(policy)

    # The second connection sees what a restart would: what is committed, and none of the first one's memory.
    with (
        TemporaryDirectory() as home,
        Store.open(Path(home) / "store.db") as store,
        Store.open(Path(home) / "store.db") as reopened,
    ):

        def check() -> None:
            if data.draw(st.booleans(), label="cut here"):
                assert_same(restore(policy, reopened.snapshot()), live)

        run_and_commit(store, live, jobs, check)
        assert_same(restore(policy, store.snapshot()), live)
        assert len(queries.decisions(store)) == live.state.decided
        assert len(queries.jobs(store)) == len(jobs)
