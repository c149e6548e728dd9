"""The paper's two tables on 4 nodes of 8 GPUs: real cluster beside simulation, policies beside the MILP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sim.experiments.published import Compared, commands, compare, progress, write_page
from sim.experiments.shared import shared_trace, table
from sim.experiments.workloads import stretched
from sim.spec import Spec
from sim.sweep import no_wait, offered_load
from sim.trace import Trace

COMMAND = "python -m sim.experiments.waiting.small_cluster"
SMALL = Spec(nodes=4, cpus_per_node=48, binpack="best-fit")
MINUTE_H = 1 / 60

#: No-Wait as the notebook of the fidelity table has it: a wait of 15 s.
SHORTLY = "No-Wait (as published: 15 s)"
#: Star-Wait as that notebook has it, and with the paper's X = 3 and 15 min.
STAR_NOTEBOOK, STAR_PAPER = "Star-Wait, X = 1.8, T_max 5 min", "Star-Wait, X = 3, T_max 15 min"
#: Factors of the published runs for P = 25 % (`fid_s1.1`): hours, hours per GPU, ratio.
FIDELITY_C_H, FIDELITY_BETA_R_H, FIDELITY_ALPHA = (
    0.16630857487922707,
    0.09515167219458266,
    0.14303482587064678,
)
#: load → policy → (cost, JCT in hours, utilisation in percent), each (real, simulated) as published.
Pair = tuple[float, float]
FIDELITY: dict[float, dict[str, tuple[Pair, Pair, Pair]]] = {
    0.75: {
        SHORTLY: ((23.18, 25.66), (0.70, 0.74), (66.65, 66.80)),
        "Constant-Wait": ((21.33, 21.33), (0.72, 0.77), (70.39, 71.95)),
        STAR_NOTEBOOK: ((4.96, 5.15), (0.78, 0.78), (72.59, 70.77)),
        "Compute-Wait": ((4.73, 5.35), (0.74, 0.76), (70.73, 71.38)),
    },
    1.1: {
        SHORTLY: ((45.97, 48.76), (0.62, 0.66), (83.90, 83.50)),
        "Constant-Wait": ((33.89, 37.06), (0.67, 0.72), (83.30, 84.25)),
        STAR_NOTEBOOK: ((9.79, 10.53), (0.71, 0.77), (84.7, 87.78)),
        "Compute-Wait": ((8.96, 7.13), (0.66, 0.71), (85.20, 87.69)),
    },
}

#: Factors of the published runs of `tab4_s1.0`.
OPTIMAL_C_H, OPTIMAL_BETA_R_H, OPTIMAL_ALPHA = 0.2436, 0.04752646484374999, 0.07805625
#: load → policy → dollars as published.
OPTIMAL: dict[float, dict[str, float]] = {
    0.75: {
        "No-Wait": 443.40,
        "Constant-Wait": 348.67,
        "Star-Wait": 201.54,
        "Compute-Wait": 128.33,
        "MILP": 121.89,
    },
    1.0: {
        "No-Wait": 760.68,
        "Constant-Wait": 705.55,
        "Star-Wait": 607.31,
        "Compute-Wait": 551.68,
        "MILP": 526.80,
    },
    1.5: {
        "No-Wait": 1055.14,
        "Constant-Wait": 912.86,
        "Star-Wait": 850.54,
        "Compute-Wait": 817.35,
        "MILP": 781.24,
    },
}


def fidelity_policies(base: Spec) -> dict[str, Spec]:
    """As in the notebook of that table."""
    star = replace(base, waiting="star", out_of_order=True)
    return {
        SHORTLY: replace(base, waiting="constant", factor=15 / 3600),
        "No-Wait": no_wait(base),
        "Constant-Wait": replace(base, waiting="constant", factor=FIDELITY_C_H),
        STAR_NOTEBOOK: replace(star, factor=1.8 * FIDELITY_BETA_R_H, t_max_h=5 * MINUTE_H),
        STAR_PAPER: replace(star, factor=3 * FIDELITY_BETA_R_H, t_max_h=15 * MINUTE_H),
        "Compute-Wait": replace(base, waiting="compute", factor=FIDELITY_ALPHA, out_of_order=True),
    }


def optimal_policies(base: Spec) -> dict[str, Spec]:
    """As in the notebook of that table, and Compute-Wait with a budget that is really spent."""
    star = replace(base, waiting="star", out_of_order=True)
    compute = replace(base, waiting="compute", out_of_order=True)
    return {
        "No-Wait": no_wait(base),
        "Constant-Wait": replace(base, waiting="constant", factor=OPTIMAL_C_H),
        "Star-Wait": replace(star, factor=3 * OPTIMAL_BETA_R_H, t_max_h=3.75 * MINUTE_H),
        "Compute-Wait": replace(compute, factor=OPTIMAL_ALPHA),
        "Compute-Wait, α .25": replace(compute, factor=0.25),
    }


def fidelity_rows(done: dict[str, Compared], load: float) -> Iterator[tuple[object, ...]]:
    """A row per policy: real, simulated, ours."""
    for name, found in done.items():
        paper = FIDELITY[load].get(name)
        ours = found.result
        figures = (
            f"{ours.cloud_cost:.2f}",
            f"{ours.mean_jct_h:.2f}",
            f"{100 * ours.cluster_utilization:.1f} %",
        )
        published = [f"{real:g} / {simulated:g}" for real, simulated in paper] if paper else ["–"] * 3
        yield (
            name,
            *(cell for pair in zip(published, map("**{}**".format, figures), strict=True) for cell in pair),
        )


def optimal_rows(done: dict[str, Compared], load: float) -> Iterator[tuple[object, ...]]:
    """A row per policy: dollars and savings as published, and ours."""
    paper = OPTIMAL[load]
    for name, found in done.items():
        published = _dollars(paper[name], paper["No-Wait"]) if name in paper else "–"
        ours = _dollars(found.result.cloud_cost_usd, found.no_wait.cloud_cost_usd)
        yield name, published, ours, f"{found.result.mean_wait_h:.2f} h"
    yield "time-limited MILP", _dollars(paper["MILP"], paper["No-Wait"]), "–", "–"


def _dollars(cost: float, free: float) -> str:
    return f"${cost:,.2f}" if cost == free else f"${cost:,.2f} ({100 * (cost / free - 1):+.1f} %)"


def fidelity(trace: Trace) -> Iterator[str]:
    """The part on the real cluster."""
    head = (
        *("policy", "cost, real / simulated", "ours", "JCT h, real / simulated", "ours"),
        *("utilisation %, real / simulated", "ours"),
    )
    spec = replace(SMALL, warmup=5)
    yield FIDELITY_TOLD
    for load in FIDELITY:
        jobs = trace if load == 1.1 else stretched(trace, 1.1 / load)
        progress(f"fid, load {load}")
        done = compare(jobs, fidelity_policies(spec))
        how = "as published" if load == 1.1 else f"arrivals stretched by 1.1 / {load:g}"
        yield f"### s = {load:g} ({how}; {offered_load(jobs, spec):.2f} by our count)"
        yield table(head, fidelity_rows(done, load))
    yield "Each point at s = 1.1 alone:"
    yield commands(list(fidelity_policies(spec).values()), "fid_s1.1.csv")


def optimal(trace: Trace) -> Iterator[str]:
    """The part beside the MILP."""
    yield OPTIMAL_TOLD
    for load in OPTIMAL:
        jobs = stretched(trace, 1 / load)
        progress(f"tab4, load {load}")
        done = compare(jobs, optimal_policies(SMALL))
        how = "as published" if load == 1 else f"arrivals stretched by 1 / {load:g}"
        yield f"### s = {load:g} ({how}; {offered_load(jobs, SMALL):.2f} by our count)"
        yield table(("policy", "published", "ours", "our mean wait"), optimal_rows(done, load))
    yield "Each point at s = 1 alone:"
    yield commands(list(optimal_policies(SMALL).values()), "tab4_s1.0.csv")


def main() -> None:
    """Run all, write the page."""
    parts = [INTRODUCTION]
    for name, part in (("fid_s1.1", fidelity), ("tab4_s1.0", optimal)):
        trace = shared_trace(f"starburst/{name}.csv")
        if trace is not None:
            parts += part(trace)
    write_page("small-cluster", [*parts, READING])


INTRODUCTION = f"""# Four nodes: the real cluster, and the optimum (fidelity table, table 4)

`{COMMAND}`: 4 nodes of 8 GPUs, best-fit, on the artifact's own job lists.
Star-Wait and Compute-Wait go out of order; Star-Wait is billed for every second in the cloud, which the
artifact does not do."""
FIDELITY_TOLD = """## The real cluster beside its simulation (fid_s1.1: 115 jobs, warm-up 5)

Published cells are real cluster / published simulator. Cost is in GPU-hours, as in that table in spite of
its dollar sign: its Constant-Wait, 37.06, is the artifact's 37.061 GPU-hours. The jobs of s = .75 are not
at hand; the arrivals of s = 1.1 are stretched instead."""
OPTIMAL_TOLD = """## Beside the MILP (tab4_s1.0: 500 jobs, no warm-up)

Dollars at 2.5 per GPU-hour. The "optimal" of that table is what a solver had found when its time was up:
the gap was 27 % and the proven bound $0, so that how near the optimum any policy is has not been shown. The
mean waits published with the table are .03, .05 and .12 h. The jobs of s = .75 and 1.5 are not at hand; the
arrivals of s = 1 are stretched instead."""
READING = """## Reading it

- **s = 1.1.** Constant-Wait is met exactly, No-Wait to 1 %. The artifact itself, run on these jobs with the
  settings of the notebook, gives 48.30, 37.06, 18.41 (Star-Wait) and 15.47 (Compute-Wait): savings of 23,
  62 and 68 %. Ours are 23, **67** and **68** %. The 10.53 and 7.13 that are printed in the paper come out
  of neither simulator with these settings.
- Our mean JCTs are .03 to .04 h above the printed ones of the simulator, No-Wait's too, where next to
  nothing waits: the mean run time of these jobs alone is .69 h, so the table was made with other jobs.
- **s = .75.** Stretching keeps all 115 jobs and their run times, the published run drew its own. That
  Constant-Wait is 21.33 in both is chance: No-Wait is 33.01 against 25.66. The order of the policies is the
  same, but for Star-Wait, which is cheaper than Compute-Wait here (as its simulation in the paper is, by
  .2).
- Single jobs decide such tables: 106 jobs count and the dearest costs more than Compute-Wait spends in all.
  At s = .75 the two versions of Star-Wait differ by a factor of 2.2.
- **Table 4.** At s = 1 No-Wait and Constant-Wait are met to the cent; with the factors of the notebook's
  runs Compute-Wait costs $584.00 and Star-Wait $630.95, against $551.68 and $607.31. The artifact itself
  gives $584.00 and $662.11, so the printed ones were presumably made with other factors.
- Allowed to wait longer (α .25), Compute-Wait costs $406.71 at s = 1, less than the table's "optimum" of
  $526.80. That is no contradiction if the MILP was held to the table's mean wait, .05 h; this one waits .15
  h. It does show that $526.80 is no bound of what waiting can save.
- The other loads differ by the traces: No-Wait already is 12 % above the published at s = .75 and 8 % at
  1.5."""


if __name__ == "__main__":
    main()
