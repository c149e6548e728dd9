"""What holds for every workload and every setting, in worlds where all goes well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as run_settings
from hypothesis import strategies as st

from sim.world import SimJob, World
from starburst.core.model.actions import StartRun
from starburst.core.model.decisions import Decision
from starburst.core.model.events import SiteSynced
from starburst.core.model.jobs import JobRecord
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.core.state import Changes
from starburst.core.views.restoring import restore
from starburst.core.views.validate import validate
from starburst.domain.job import CloudChoice, Phase, Site
from starburst.policy.ordering import ORDERS
from starburst.policy.placement import PLACEMENTS
from starburst.policy.returns import RETURNS
from starburst.policy.waiting import WAITING
from tests.builders import HOUR, MINUTE, Watched, arrival, job, nodes, offer, snapshot, world

#: GPUs of each node.
Sizes = tuple[int, ...]
Trace = list[SimJob]

QUARTER = 15 * MINUTE
OFFERS = (offer("spot", 2, 1), offer("big", 4, 5), offer("odd", 4, None), offer("cpu", 0, 0.5))
SHAPES: list[dict[str, Any]] = [
    {"gpus": 1},
    {"gpus": 2},
    {"gpus": 4},
    {"gang": (2, 1)},
    {"gang": (4, 4)},
    {"gpus": 0, "cpus": 4},
]

quarters = st.integers(0, 12).map(lambda n: n * QUARTER)  # whole quarters of an hour: plenty of exact ties


@st.composite
def workloads(draw: st.DrawFn) -> list[SimJob]:
    """Up to 25 jobs that every cluster below could hold."""
    trace = []
    for n in range(draw(st.integers(1, 25))):
        takes = draw(st.sampled_from([1, QUARTER, HOUR, 3 * HOUR]))
        item = job(
            f"j{n}",
            **draw(st.sampled_from(SHAPES)),
            hours=draw(st.sampled_from([None, takes / HOUR, 0.5])),
            cloud=draw(st.sampled_from(["auto", "auto", "auto", "never", "only"])),
            max_wait_s=draw(st.sampled_from([None, None, 0.0, QUARTER])),
            checkpoint=draw(st.booleans()),
            priority=draw(st.integers(0, 2)),
        )
        trace.append(arrival(item, at=draw(quarters), takes=takes))
    return trace


def either(*values: Any) -> st.SearchStrategy[Any]:
    """One of these."""
    return st.sampled_from(values)


settings = st.builds(
    Settings,
    waiting=either(*WAITING),
    budget_percent=either(5.0, 25.0, 100.0),
    order=either(*ORDERS),
    out_of_order=st.booleans(),
    backfill=st.booleans(),
    placement=either(*PLACEMENTS),
    queue_limit=either(None, None, 0, 3),
    offload_cpu_only=st.booleans(),
    short_job_s=either(0.0, 600.0),
    returns=either(*RETURNS),
    t_max_s=either(QUARTER, 10 * MINUTE),
)
clusters = st.sampled_from([(4, 4), (4, 4, 2), (8,)])


def play(told: Settings, cluster: Sizes, trace: Trace, **more: Any) -> tuple[World, Watched]:
    """A world run to its end, checked after every step."""
    scheduler = Watched(told)
    made = World(scheduler, nodes(*cluster), OFFERS, boot_s={"big": 90.0}, **more)
    made.submit(trace)
    made.run()
    return made, scheduler


@given(settings, clusters, workloads())
def test_every_job_ends_once_and_leaves_nothing_behind(told: Settings, cluster: Sizes, trace: Trace) -> None:
    _, scheduler = play(told, cluster, trace)
    ends = Counter(d.subject for d in scheduler.log if d.kind in ("succeeded", "failed", "cancelled"))
    assert ends == Counter({item.job.id: 1 for item in trace})
    assert {d.kind for d in scheduler.log}.isdisjoint({"failed", "lost", "cancelled"})
    assert not scheduler.state.jobs
    assert not scheduler.live
    assert not scheduler.state.fleet.instances
    for name, gpus in zip(("n0", "n1", "n2"), cluster, strict=False):
        assert scheduler.state.capacity.free(name).gpus == gpus


@given(settings, clusters, workloads())
def test_bills_add_up_to_the_last_micro_dollar(told: Settings, cluster: Sizes, trace: Trace) -> None:
    billed: dict[str, int] = {}

    def on_step(now: float, changes: Changes) -> None:
        billed.update({name: record.cloud_micro_usd for name, record in changes.jobs.items()})

    _, scheduler = play(told, cluster, trace, on_step=on_step)
    assert sum(billed.values()) == scheduler.state.fleet.settled.micro_usd
    gone = [int(str(d.numbers["micro_usd"])) for d in scheduler.log if d.kind == "gone"]
    assert sum(gone) == scheduler.state.fleet.settled.micro_usd


@given(settings, clusters, workloads())
def test_nobody_runs_where_they_must_not(told: Settings, cluster: Sizes, trace: Trace) -> None:
    sites: dict[str, set[Site]] = {item.job.id: set() for item in trace}

    def on_step(now: float, changes: Changes) -> None:
        for action in changes.actions:
            if isinstance(action, StartRun):
                sites[action.job_id].add(action.site)

    play(told, cluster, trace, on_step=on_step)
    for item in trace:
        if item.job.cloud is CloudChoice.NEVER:
            assert sites[item.job.id] == {Site.CLUSTER}
        if item.job.cloud is CloudChoice.ONLY:
            assert sites[item.job.id] == {Site.CLOUD}


@given(settings, clusters, workloads())
def test_a_job_comes_home_at_most_once_and_as_its_policy_says(
    told: Settings, cluster: Sizes, trace: Trace
) -> None:
    held: dict[str, bool] = {}

    def on_step(now: float, changes: Changes) -> None:
        for record in changes.jobs.values():
            if record.stop_why == "return" and record.phase is Phase.STOPPING:
                held[record.id] = bool(record.reserved)

    _, scheduler = play(told, cluster, trace, on_step=on_step)
    returning = [d for d in scheduler.log if d.kind == "returning"]
    assert len({d.subject for d in returning}) == len(returning)
    for decision in returning:
        assert float(str(decision.numbers["elapsed_s"])) >= told.t_max_s
        assert held[decision.subject] == (told.returns == "if-it-pays")
        if told.returns == "t-max":
            assert decision.numbers["elapsed_s"] == told.t_max_s
        else:
            after = [d for d in scheduler.log if d.subject == decision.subject and d.seq > decision.seq]
            assert [d.kind for d in after[:2]] == ["placed", "started"]


@given(clusters, workloads())
def test_star_waits_nothing_first_and_beta_r_from_its_return(
    cluster: tuple[int, ...], trace: list[SimJob]
) -> None:
    told = Settings(waiting="star", factor=QUARTER, returns="t-max", t_max_s=10 * MINUTE)
    _, scheduler = play(told, cluster, trace)
    size = {item.job.id: item.job.resources.gpu_equivalents(50) for item in trace}
    own = {item.job.id for item in trace if item.job.max_wait_s is not None or item.job.cloud != "auto"}
    home = {d.subject: d.at for d in scheduler.log if d.kind == "returning"}
    for decision in scheduler.log:
        if decision.kind == "waits" and decision.subject not in own:
            second = home.get(decision.subject) == decision.at
            assert decision.numbers["wait_s"] == (QUARTER * size[decision.subject] if second else 0)


def rendered(log: list[Decision]) -> bytes:
    """A decision log as JSON lines."""
    rows = ({**row._asdict(), "reason": row.reason} for row in log)
    return "\n".join(json.dumps(row, sort_keys=True) for row in rows).encode()


@run_settings(max_examples=25)
@given(settings, clusters, workloads())
def test_the_same_events_give_the_same_log(told: Settings, cluster: Sizes, trace: Trace) -> None:
    first, second = (rendered(play(told, cluster, trace)[1].log) for _ in range(2))
    assert first == second


def busy_day() -> bytes:
    """The log of a day with many shapes, ties, labels and returns."""
    told = {"queue_limit": 6, "returns": "if-it-pays", "t_max_s": QUARTER, "order": "priority"}
    made = world(4, 4, 4, offers=OFFERS, **told)
    made.submit(
        arrival(
            job(f"j{n}", **SHAPES[n * 7 % 6], priority=n * 5 % 3), at=n // 4 * QUARTER, takes=n % 5 * QUARTER
        )
        for n in range(80)
    )
    made.run()
    scheduler = made.scheduler
    assert isinstance(scheduler, Watched)
    return rendered(scheduler.log)


def test_the_log_does_not_depend_on_the_seed_of_hashes() -> None:
    script = "import sys; from tests.sim.test_properties import busy_day; sys.stdout.buffer.write(busy_day())"
    logs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert logs == {busy_day()}


@run_settings(max_examples=25)
@given(settings, clusters, workloads(), st.integers(0, 60))
def test_restored_at_any_step_it_decides_as_if_nothing_had_happened(
    told: Settings, cluster: Sizes, trace: Trace, restart: int
) -> None:
    def decisions(restart: int) -> list[Decision]:
        log: list[Decision] = []
        steps = 0

        def on_step(now: float, changes: Changes) -> None:
            nonlocal steps
            log.extend(changes.decisions)
            steps += 1
            if steps == restart:
                made.scheduler = again = restore(told, snapshot(made.scheduler))
                confirm(again, now)
            validate(made.scheduler.state)

        made = World(Scheduler(told), nodes(*cluster), OFFERS, boot_s={"big": 90.0}, on_step=on_step)
        made.submit(trace)
        made.run()
        return log

    assert rendered(decisions(restart)) == rendered(decisions(-1))


def confirm(again: Scheduler, now: float) -> None:
    """Both sites report after a restart that they know all that was started there: nothing is to be done."""
    runs, machines = frozenset(again.state.unconfirmed_runs), frozenset(again.state.unconfirmed_instances)
    again.handle([SiteSynced(site, runs, machines) for site in Site], now)
    changes = again.take_changes()
    assert not changes.decisions
    assert not changes.actions
    assert not again.state.unconfirmed_runs
    assert not again.state.unconfirmed_instances


def test_a_wait_that_no_time_passes_in_costs_nothing() -> None:
    """A day under No-Wait: nobody waits, and what the cluster cannot take at once is in the cloud."""
    records: dict[str, JobRecord] = {}
    made = world(
        1, waiting="no-wait", returns="never", on_step=lambda now, changes: records.update(changes.jobs)
    )
    made.submit(arrival(job(f"j{n}"), at=n * 0.25 * HOUR, takes=HOUR) for n in range(8))
    made.run()
    assert [records[f"j{n}"].site for n in range(8)] == [Site.CLUSTER, *[Site.CLOUD] * 3] * 2
    assert [records[f"j{n}"].started_at for n in range(8)] == pytest.approx([n * QUARTER for n in range(8)])
