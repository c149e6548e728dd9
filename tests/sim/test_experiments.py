"""Experiments: what their tables rest on, on traces small enough to know what must come out."""

from __future__ import annotations

import shlex
from dataclasses import replace

import numpy as np
import pytest
import typer

from sim.experiments.published import command, compare, equal_budget, paper_policies
from sim.experiments.waiting import end_to_end, small_cluster
from sim.experiments.workloads import HELIOS_GPUS_AT_WORK, helios_like, resampled, stretched
from sim.spec import Spec
from sim.sweep import no_wait, offered_load
from starburst.cli.tools import simulate as cli
from starburst.policy.waiting import STAR_X, WAITING, Ask
from tests.sim.test_sweep import BASE, busy

FACTORS = {"constant_h": 1.0, "alpha": 0.1, "beta_r_h": 0.3, "queue_cap": 3}


def test_no_wait_saves_nothing_and_whoever_may_wait_for_ever_saves_all() -> None:
    found = compare(busy(), {"none": no_wait(BASE), "all": replace(BASE, waiting="infinite")})
    assert (found["none"].saved, found["none"].longer) == (0.0, 0.0)
    assert found["all"].saved == 100.0
    assert found["all"].longer > 0


def test_every_spec_is_compared_with_no_wait_on_its_own_cluster() -> None:
    larger = replace(BASE, nodes=2)
    found = compare(busy(), {"one": BASE, "two": larger, "again": replace(BASE, factor=0.5)})
    assert found["one"].no_wait is found["again"].no_wait
    assert found["one"].no_wait.cloud_cost > found["two"].no_wait.cloud_cost


def test_where_no_wait_pays_nothing_there_is_nothing_to_save() -> None:
    found = compare(busy(), {"": replace(BASE, nodes=100)})[""]
    assert found.saved == 0.0
    assert str(found) == "–"


@pytest.mark.parametrize("waiting", ["constant", "runtime", "resource", "compute", "star"])
def test_equal_budgets_allow_the_same_sum_of_waits(waiting: str) -> None:
    trace = busy()
    factor = equal_budget(trace, BASE, waiting, 20).factor
    assert factor is not None
    asks = [
        Ask(float(r), int(r), float(t), returned=True)
        for r, t in zip(trace.gpus, trace.duration_h, strict=True)
    ]
    waits = sum(WAITING[waiting].wait_s(factor, ask) for ask in asks)
    share = STAR_X if waiting == "star" else 1.0
    assert waits == pytest.approx(share * 0.2 * float(np.sum(trace.duration_h)))


def test_a_command_line_means_its_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Spec] = []
    monkeypatch.setattr(cli, "_single", lambda _options, spec: told.append(spec))
    app = typer.Typer()
    app.command()(cli.simulate)
    small = small_cluster.SMALL
    specs = {**paper_policies(end_to_end.PHILLY, **FACTORS), **small_cluster.optimal_policies(small)}
    for spec in specs.values():
        program, name, *words = shlex.split(command(spec, "jobs.csv"))
        assert (program, name) == ("starburst", "simulate")
        typer.main.get_command(app).main(words, standalone_mode=False)
        assert told[-1].factor == pytest.approx(spec.factor)
        assert replace(told[-1], factor=spec.factor) == spec


def test_stretching_divides_the_load() -> None:
    assert offered_load(stretched(busy(), 2.0), BASE) == pytest.approx(offered_load(busy(), BASE) / 2)


def test_drawn_jobs_are_jobs_of_the_trace_at_the_load_that_was_asked_for() -> None:
    trace, drawn = busy(), resampled(busy(), 20_000, 3.0, cv=2.0, seed=1)
    assert set(drawn.cost) <= set(trace.cost)
    assert len(set(drawn.ids)) == len(drawn) == 20_000
    assert offered_load(drawn, BASE) == pytest.approx(3.0 / 4, rel=0.1)
    gaps = np.diff(drawn.arrival_h)
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(2.0, rel=0.1)
    assert np.array_equal(drawn.arrival_h, resampled(trace, 20_000, 3.0, cv=2.0, seed=1).arrival_h)


def test_helios_like_jobs_have_the_published_means() -> None:
    trace = helios_like(300_000)
    assert np.mean(trace.gpus) == pytest.approx(1.94, rel=0.01)
    assert np.mean(trace.duration_h) == pytest.approx(1.816, rel=0.05)
    assert np.mean(trace.cost) == pytest.approx(11.35, rel=0.05)
    assert np.sum(trace.cost) / np.ptp(trace.arrival_h) == pytest.approx(HELIOS_GPUS_AT_WORK, rel=0.02)


def test_a_row_for_every_size_and_less_load_on_the_larger() -> None:
    base = Spec(gpus_per_node=4)
    done = end_to_end.sizes(busy(), base, FACTORS, (1, 2))
    rows = list(end_to_end.by_size(busy(), base, done))
    assert [row[0] for row in rows] == [1, 2]
    assert float(str(rows[0][1])) > float(str(rows[1][1]))
    assert all(len(row) == 3 + 5 for row in rows)
    assert all(found["No-Wait"].saved == 0 for found in done.values())


def test_every_published_policy_of_the_small_tables_is_simulated() -> None:
    fidelity = small_cluster.fidelity_policies(small_cluster.SMALL)
    assert all(set(told) <= set(fidelity) for told in small_cluster.FIDELITY.values())
    found = compare(busy(), small_cluster.optimal_policies(small_cluster.SMALL))
    rows = list(small_cluster.optimal_rows(found, 1.0))
    assert [row[0] for row in rows] == [*found, "time-limited MILP"]
    assert rows[0][1] == "$760.68"
