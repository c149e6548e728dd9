"""What the cloud costs at every load from half to one and a half times the cluster, on stretched Philly."""

from __future__ import annotations

from sim.experiments.curves import Panel, draw
from sim.experiments.published import Compared, compare, paper_policies, progress, write_page
from sim.experiments.shared import shared_trace, table
from sim.experiments.workloads import stretched
from sim.spec import Spec
from sim.sweep import offered_load

COMMAND = "python -m sim.experiments.waiting.load"
PHILLY = Spec(nodes=64, binpack="first-fit", warmup=5000)
LOADS = (0.5, 0.625, 0.75, 0.875, 1.0, 1.125, 1.25, 1.375, 1.5)
#: Star-Wait, which only the core simulates, at every other load.
STAR_LOADS = LOADS[::2]


def main() -> None:
    """Run all, write the page."""
    trace = shared_trace("philly.csv")
    if trace is None:
        return
    policies = paper_policies(PHILLY, constant_h=1.0, alpha=0.076, beta_r_h=0.77, queue_cap=30)
    found: dict[str, dict[float, Compared]] = {name: {} for name in policies}
    for load in LOADS:
        progress(f"philly, load {load:g}")
        jobs = stretched(trace, offered_load(trace, PHILLY) / load)
        specs = {name: spec for name, spec in policies.items() if name != "Star-Wait" or load in STAR_LOADS}
        for name, done in compare(jobs, specs).items():
            found[name][load] = done
    names = list(policies)[1:]
    rows = [
        [
            f"{s:g}",
            f"{found['No-Wait'][s].result.cloud_cost:,.0f}",
            *(found[name].get(s, "–") for name in names),
        ]
        for s in LOADS
    ]
    cost = {n: [(s, c.result.cloud_cost / 1000) for s, c in at.items()] for n, at in found.items()}
    saved = {n: [(s, c.saved) for s, c in at.items()] for n, at in found.items() if n != "No-Wait"}
    figure = draw(
        "load",
        [
            Panel("system load", "cloud cost, 1,000 GPU-h", cost, {}),
            Panel("system load", "saved, % of No-Wait's cost", saved, {}),
        ],
    )
    grid = table(("s", "No-Wait, GPU-h", *names), rows)
    write_page("load", [INTRODUCTION, figure, grid, READING])


INTRODUCTION = f"""# Cost against load

`{COMMAND}`: the Philly trace (82,247 jobs) on 64 nodes of 8 GPUs, first-fit, warm-up
5000. Its arrivals are **stretched or squeezed** so that the load of the window that counts is s; the trace
as it is has s = .91. Policies and factors are those of figure 7 (docs/results/end-to-end.md). Cells are the
saving of cloud cost against No-Wait and, in brackets, the change of mean JCT; Star-Wait, which only the
slower engine simulates, is at every other load."""
READING = """## Reading it

- There are no published numbers for this trace at these loads. Waiting pays where the cluster has room
  later for what waits now; nothing helps a cluster that is always full. The saving falls from 80 % at half
  load to 17 % at one and a half times the cluster.
- Past s = 1 waiting longer without a cap saves nothing more and costs twice the delay: the cap of 30 is
  what keeps JCT within 8 % of No-Wait's.
- Even at s = .5 No-Wait pays for 20,459 GPU-hours, as Philly comes in waves: with Poisson arrivals the same
  jobs cost 2,320 at s = .75 (60,000 of them, docs/results/ablations.md).
- Stretching keeps the waves but makes them longer; it is not what a busier cluster would have seen.
- A single point needs the stretched trace, so there is no command line; at s = .91 it is that of figure 7."""


if __name__ == "__main__":
    main()
