"""Figure 7 of the paper: savings and completion times over cluster sizes, on Philly and like Helios."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from sim.experiments.curves import Panel, draw
from sim.experiments.published import (
    Compared,
    commands,
    compare,
    paper_policies,
    progress,
    write_page,
)
from sim.experiments.shared import shared_trace, table
from sim.experiments.workloads import helios_like
from sim.spec import Spec
from sim.sweep import offered_load
from sim.trace import Trace

COMMAND = "python -m sim.experiments.waiting.end_to_end"
PHILLY = Spec(nodes=64, binpack="first-fit", warmup=5000)
HELIOS = Spec(nodes=80, cpus_per_node=48, binpack="first-fit", warmup=5000)
PHILLY_FACTORS = {"constant_h": 1.0, "alpha": 0.076, "beta_r_h": 0.77, "queue_cap": 30}
HELIOS_FACTORS = {"constant_h": 0.454, "alpha": 0.04, "beta_r_h": 0.234, "queue_cap": 10}
NODES = (56, 64, 72, 84, 96)
HELIOS_NODES = (60, 80, 100)

#: (nodes, policy) → saving and change of JCT, percent (figure 7).
PUBLISHED = {
    (64, "Constant-Wait"): (5.3, 9.8),
    (64, "Star-Wait"): (24.3, 6.9),
    (64, "Compute-Wait"): (33.3, 6.0),
    (84, "Constant-Wait"): (14.5, 5.8),
    (84, "Star-Wait"): (44.1, 3.4),
    (84, "Compute-Wait"): (54.2, 2.4),
}
PUBLISHED_HELIOS = {"Constant-Wait": (13.8, 0.4), "Star-Wait": (79.1, 0.4), "Compute-Wait": (91.3, 0.3)}
#: The artifact itself on this very trace, 64 nodes: cloud GPU-hours and mean JCT in hours.
ARTIFACT = {
    "No-Wait": (181_172.579, 3.35410),
    "Constant-Wait": (175_907.343, 3.67775),
    "Compute-Wait": (118_307.077, 3.52217),
}

BySize = dict[int, dict[str, Compared]]


def sizes(trace: Trace, base: Spec, factors: Mapping[str, float], nodes: tuple[int, ...]) -> BySize:
    """Every policy on clusters of these sizes."""
    done = {}
    for count in nodes:
        spec = replace(base, nodes=count)
        progress(f"{count} × {spec.gpus_per_node} GPUs, load {offered_load(trace, spec):.2f}")
        done[count] = compare(trace, paper_policies(spec, **factors))  # type: ignore[arg-type]
    return done


def beside_published(done: BySize) -> Iterator[tuple[object, ...]]:
    """Rows of the sizes that the paper has numbers for."""
    for nodes in (64, 84):
        for name, found in list(done[nodes].items())[1:]:
            yield f"{nodes} × 8", name, _paper(PUBLISHED.get((nodes, name))), f"**{found}**"


def beside_artifact(done: Mapping[str, Compared]) -> Iterator[tuple[object, ...]]:
    """Rows of what the artifact itself gives on this trace."""
    for name, (cost, jct_h) in ARTIFACT.items():
        ours = done[name].result
        yield name, f"{cost:,.3f}", f"{ours.cloud_cost:,.3f}", f"{jct_h:.5f}", f"{ours.mean_jct_h:.5f}"


def by_size(trace: Trace, base: Spec, done: BySize) -> Iterator[tuple[object, ...]]:
    """A row per size: load, No-Wait's cost, then each policy."""
    for nodes, found in done.items():
        spec = replace(base, nodes=nodes)
        free = found["No-Wait"].result.cloud_cost
        yield nodes, f"{offered_load(trace, spec):.2f}", f"{free:,.0f}", *map(str, list(found.values())[1:])


def philly() -> list[str]:
    """The part on the real trace."""
    trace = shared_trace("philly.csv")
    if trace is None:
        return []
    done = sizes(trace, PHILLY, PHILLY_FACTORS, NODES)
    names = list(done[64])[1:]
    artifact = ("policy", "artifact, GPU-h", "ours, GPU-h", "artifact, JCT h", "ours, JCT h")
    return [
        f"## Philly: {len(trace):,} jobs, first-fit, 96 CPUs a node, warm-up 5000",
        "Saving of cloud cost against No-Wait; in brackets the change of mean JCT.",
        table(("nodes", "policy", "published", "ours"), beside_published(done)),
        "The published artifact itself, run on this very trace with 64 nodes:",
        table(artifact, beside_artifact(done[64])),
        draw("end-to-end", [_panel(done, 0), _panel(done, 1)]),
        "Lines are ours, hollow marks are published.",
        table(("nodes", "load", "No-Wait, GPU-h", *names), by_size(trace, PHILLY, done)),
        "Each point alone, here for 64 nodes:",
        commands([c.spec for c in done[64].values()], "philly.csv"),
    ]


def _panel(done: BySize, number: int) -> Panel:
    """Savings (0) or changes of JCT (1) over sizes, with what is published."""
    names = list(done[64])[1:]
    lines = {n: [(k, (c[n].saved, c[n].longer)[number]) for k, c in done.items()] for n in names}
    published = {
        n: [(k, pair[number]) for (k, name), pair in PUBLISHED.items() if name == n] for _, n in PUBLISHED
    }
    title = ("saved, % of No-Wait's cost", "JCT longer than No-Wait, %")[number]
    return Panel("nodes of 8 GPUs", title, lines, published)


def helios() -> list[str]:
    """The part on generated traces."""
    parts = [HELIOS_MADE]
    for title, cv in (("Poisson arrivals", 1.0), ("Bursty arrivals (gamma, CV 8)", 8.0)):
        trace = helios_like(80_000, cv=cv, seed=1)
        means = [float(np.mean(column)) for column in (trace.duration_h, trace.gpus, trace.cost)]
        drawn = "Means of the jobs drawn: {:.3f} h, {:.2f} GPUs, {:.2f} GPU-hours.".format(*means)
        progress(f"Helios-like, {title}")
        done = sizes(trace, HELIOS, HELIOS_FACTORS, HELIOS_NODES)
        head = ("policy", "published, 80 × 8", *(f"ours, {nodes} × 8" for nodes in HELIOS_NODES))
        free = ["No-Wait, GPU-h", "", *(f"{done[nodes]['No-Wait'].result.cloud_cost:,.0f}" for nodes in done)]
        rows = [
            [name, _paper(PUBLISHED_HELIOS.get(name)), *(str(done[nodes][name]) for nodes in done)]
            for name in list(done[80])[1:]
        ]
        parts += [f"### {title}", drawn, table(head, [free, *rows])]
    return parts


def _paper(pair: tuple[float, float] | None) -> str:
    return f"{pair[0]:.1f} % ({pair[1]:+.1f} %)" if pair else "–"


def main() -> None:
    """Run all, write the page."""
    write_page("end-to-end", [INTRODUCTION, *philly(), *helios(), READING])


INTRODUCTION = f"""# End to end over cluster sizes (figure 7)

`{COMMAND}`: the policies of the paper's figure 7 with the factors of the
artifact's script for it (Philly: C = 1 h, α = .076, β = 3 · .77 h/GPU; Helios: C = .454 h, α = .04, β = 3 ·
.234 h/GPU); T_max and the bound of No-Short-Jobs are 15 min. Constant-Wait goes in order; Star-Wait and
Compute-Wait go out of order with at most 30 (Helios: 10) jobs waiting. Star-Wait is billed for every second
in the cloud and waits β·r from its return on; the artifact forgets the first stay and shortens the wait.
"Load" is what arrives in the window that counts."""

HELIOS_MADE = """## Like Helios: 80,000 generated jobs, first-fit, warm-up 5000

The Helios trace is not at hand, so these jobs are **generated** (`sim/experiments/workloads.py`, seed 1).
Taken from what is published with Starburst: 398.5 GPUs at work (1,853,756 GPU-hours over 4,651.9 h in the
notebook that draws figure 7; a load of .62 on 80 × 8), a mean run time of 1.816 h (C is 25 % of it), a mean
size of 1.94 GPUs (C over β_r) and a mean cost of 11.35 GPU-hours (C over α). Assumed by us: the sizes
(1/2/4/8/16/32 GPUs with p .77/.09/.06/.07/.008/.002, chosen for that mean), log-normal run times (σ 2, at
most 1,200 h) whose mean grows with size so that the mean cost comes out, no CPU-only jobs, and the
arrivals, which are the largest unknown: once Poisson, once a gamma process of CV 8, the largest value of
the paper's figure 14, not fitted."""

READING = """## Reading it

- **Philly.** On this trace our simulator and the artifact agree to every digit that is noted, so what
  differs from the paper is the trace or a setting that is not published. At 64 nodes we are within 2.4
  points of its savings and 1.0 of its JCT. At 84 nodes Constant-Wait is the same, and our Star-Wait and
  Compute-Wait save 4 and 8 points more. The notebook that draws figure 7 has 1,155,999 GPU-hours over 2,559
  h written into it; the trace at hand has 978,078 over 2,614 h, so the paper's held more work.
- On Philly the order of the policies is as published: Compute-Wait before Star-Wait before Constant-Wait,
  in cost and in completion time; savings grow and delays shrink with the cluster.
- No-Short-Jobs cuts Constant-Wait's delay by a quarter to a third and saves about as much, as short jobs
  are cheap. On a large cluster it saves less, since it rents for jobs that would have had room (96 nodes;
  like Helios on 100 nodes it costs more than No-Wait).
- The cap of 30 costs Compute-Wait up to 6 points of saving and spares up to 3 points of delay.
- **Like Helios.** With Poisson arrivals 80 nodes never overflow and there is nothing to save: the published
  savings need bursts. With CV 8 they come out in the published order of magnitude: Constant-Wait 23.8
  against 13.8 %, Star-Wait 85.8 against 79.1 %, Compute-Wait 81.6 % with the cap of 10 and 92.5 % without
  it against 91.3 %; JCT grows by .1 to .6 % against .3 to .4 %. With the cap Star-Wait saves more than
  Compute-Wait here, which the paper does not see. That is agreement in kind only, on one draw: run times
  cut at 500 h, the first setting tried, whose means fell short, gave 15.9, 84.9, 80.4 and 91.2 %, and
  another CV would give others again. These traces are made inside the experiment, so there is no command
  line for single points."""


if __name__ == "__main__":
    main()
