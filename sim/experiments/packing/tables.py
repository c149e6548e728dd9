"""Tables 4, 5, 6, 11 and 12 of Eva (EuroSys'25) beside ours."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, median

from sim.experiments.packing.eva_files import (
    EVA,
    NAMES,
    PackedPoint,
    at_hand,
    beside,
    cloud,
    from_table_7,
    measured,
    spread,
    table_7,
    took,
    write_wrapped,
)
from sim.experiments.packing.plan_speed import classes_drawn, plan_drawn, plan_of
from sim.experiments.published import progress
from sim.experiments.shared import table
from sim.packing.results import PackedResult
from starburst.domain.money import MICRO
from starburst.policy.packing.packers.none import cheapest, cheapest_first

COMMAND = "python -m sim.experiments.packing.tables"
TRIALS = 30
SIZES = {1000: 0.40, 2000: 1.50, 4000: 5.53, 8000: 22.06}
#: Trials and packers of tables 6 and 11.
GANG_TRIALS, SMALL_TRIALS = 10, 20
GANG_PACKERS = ("none", "eva-single", "eva", "optimal")
SMALL_PACKERS = ("none", "stratus", "synergy", "owl", "eva", "optimal")
#: Table 6: cost in percent of No-Packing's, mean JCT in hours.
PUBLISHED_GANGS = {
    "none": ("100 %", "4.44 ± 0.35"),
    "eva-single": ("79.5 ± 3.8 %", "5.11 ± 0.51"),
    "eva": ("74.2 ± 4.2 %", "4.55 ± 0.37"),
}
#: Tables 11 and 12: real and simulated cost in dollars; shares of GPUs, CPUs and memory in use.
PUBLISHED_SMALL = {
    "none": (163.87, 160.74, "63 · 76 · 29"),
    "stratus": (145.76, 152.94, "67 · 74 · 32"),
    "synergy": (145.80, 141.17, "66 · 86 · 32"),
    "owl": (143.75, 146.84, "69 · 88 · 38"),
    "eva": (123.03, 123.78, "76 · 89 · 42"),
}
#: The recorded trials draw from the workloads in this order.
DRAWN_FROM = (
    *("resnet18_2t", "resnet18_4t", "vit", "cyclegan", "gpt2"),
    *("sage", "gcn", "a3c", "seq", "openfoam"),
)

Trials = Mapping[str, Sequence[PackedResult]]


def provisioning() -> list[str]:
    """Table 4: one plan for 200 tasks that are all there at once."""
    with (EVA / "workloads.csv").open(encoding="utf-8", newline="") as lines:
        rows = {row["workload"]: row for row in csv.DictReader(lines)}
    costs: dict[str, list[float]] = {"none": [], "full": []}
    seconds: dict[str, list[float]] = {"full": [], "optimal": []}
    gaps = []
    for trial in range(TRIALS):
        rng = random.Random(1000 + trial)
        found = classes_drawn([rows[rng.choice(DRAWN_FROM)] for _ in range(200)], "cpu_cores")
        full, best = plan_of("full", found), plan_of("optimal", found)
        alone = float((found.counts * found.price).sum()) / MICRO
        costs["none"].append(alone / best["cost"])
        costs["full"].append(full["cost"] / best["cost"])
        gaps.append(best["gap"])
        seconds["full"].append(full["cpu_s"])
        seconds["optimal"].append(best["cpu_s"])
    progress("table 4")
    proven = sum(gap <= 1e-9 for gap in gaps)
    cpu = {name: f"{1000 * mean(values):.0f} ms" for name, values in seconds.items()}
    lines_ = [
        ("No-Packing", "1.56 ± 0.08", f"**{spread(costs['none'])}**", "17 ms", "–"),
        ("Full Reconfiguration", "1.01 ± 0.02", f"**{spread(costs['full'])}**", "378 ms", cpu["full"]),
        ("ILP · `optimal`", "1 (not proven)", f"**1 (proven in {proven} of {TRIALS})**", "> 30 min",
         cpu["optimal"]),
    ]  # fmt: skip
    head = ("scheduler", "published cost", "ours", "published run time", "ours, CPU")
    note = (
        f"Over {TRIALS} trials of 200 tasks drawn evenly from table 7 (`random.Random(1000 + trial)`), "
        "physical cores, no interference. The yardstick is the cheapest plan in each trial: the paper's "
        "is the "
        "best that Gurobi found in 30 minutes, ours comes with a bound; the largest gap between the two is "
        f"{100 * max(gaps):.3f} %."
    )
    return ["## Table 4: cost of one plan", note, table(head, lines_)]


def runtimes() -> list[str]:
    """Table 5: CPU seconds of one plan by the number of tasks."""
    rows = []
    for tasks, published in SIZES.items():
        full, best = (median(plan_drawn(name, tasks, 10)["cpu_s"] for _ in range(3)) for name in PLANS)
        rows.append((f"{tasks:,}", f"{published:.2f}", f"**{full:.3f}**", f"{best:.3f}"))
    progress("table 5")
    head = ("tasks", "Full, published, s", "Full, ours, CPU s", "`optimal`, CPU s")
    note = (
        "Tasks drawn evenly from table 7; the median of three. Ours packs classes of like tasks, not single "
        "ones. More sizes, and 94 classes: `python -m bench.packing`."
    )
    return ["## Table 5: run time of one plan", note, table(head, rows)]


PLANS = ("full", "optimal")


def gangs() -> tuple[list[str], Trials]:
    """Table 6: jobs of four tasks each."""
    done = _trials(GANG_PACKERS, GANG_TRIALS, (100, 0.5, 16.0, 4))
    rows = []
    for name, results in done.items():
        cost, jct_h = PUBLISHED_GANGS.get(name, ("–", "–"))
        ratios = _ratios(results, done["none"])
        ratio_text = spread([100 * ratio for ratio in ratios], ".1f", " %") if name != "none" else "100 %"
        jct = spread([result.mean_jct_h for result in results])
        rows.append((NAMES[name], cost, f"**{ratio_text}**", jct_h, f"**{jct}**", _pace(results)))
    head = ("scheduler", "published cost", "ours", "published JCT, h", "ours", "ours, pace")
    note = (
        f"{GANG_TRIALS} trials of 100 jobs of 4 tasks each, durations from .5 to 16 h, physical cores. The "
        "paper does not say how durations and arrivals are drawn. Its mean of 4.44 h fits logarithms drawn "
        "evenly (4.47 h), not durations drawn evenly (8.25 h), so that is how they are drawn here; arrivals "
        "are Poisson, 20 minutes apart."
    )
    return ["## Table 6: jobs of four tasks", note, table(head, rows)], done


def small() -> tuple[list[str], Trials]:
    """Tables 11 and 12: 32 jobs."""
    done = _trials(SMALL_PACKERS, SMALL_TRIALS, (32, 0.5, 3.0))
    rows = [_small_row(name, results, done["none"]) for name, results in done.items()]
    head = (
        *("scheduler", "published, real", "published, simulated", "ours", "published, of No-Packing"),
        *("ours, of No-Packing", "published GPU · CPU · RAM, %", "ours"),
    )
    note = (
        f"The paper's trace of 32 jobs is not public. Here are {SMALL_TRIALS} traces made by its recipe "
        "(`from_table_7` in `sim/experiments/packing/eva_files.py`, seeds from 0): workloads drawn "
        "evenly from table 7, "
        "half an hour to three (drawn as in table 6), Poisson arrivals 20 minutes apart, physical "
        "cores. Alone "
        f"on its machines a mean job of table 7 costs ${_mean_price():.2f} an hour and lasts 1.4 h, "
        f"which makes "
        f"${32 * 1.395 * _mean_price():.0f} for 32: the published trace was a cheap draw, or was drawn "
        "otherwise. So dollars say little; ratios are taken trace by trace. The shares in the last "
        "columns are "
        "those in use of what is paid for."
    )
    return ["## Tables 11 and 12: 32 jobs", note, table(head, rows)], done


def _mean_price() -> float:
    """Dollars per hour of a mean job of table 7 without packing."""
    ranked = cheapest_first(cloud("cpu_cores").offers)
    prices = []
    for task, size in table_7():
        offer = cheapest(task, ranked)
        assert offer is not None
        assert offer.price_per_hour is not None
        prices.append(size * offer.price_per_hour.micro_usd / MICRO)
    return mean(prices)


def _small_row(name: str, results: Sequence[PackedResult], base: Sequence[PackedResult]) -> list[str]:
    real, simulated, shares = PUBLISHED_SMALL.get(name, (None, None, "–"))
    first = PUBLISHED_SMALL["none"]
    ratios = [100 * ratio for ratio in _ratios(results, base)]
    use = [mean(getattr(r, f"{kind}_allocation") for r in results) for kind in ("gpu", "cpu", "ram")]
    published = "–" if real is None or simulated is None else (
        f"{real / first[0]:.1%} · {simulated / first[1]:.1%}"
    )  # fmt: skip
    return [
        NAMES[name],
        "–" if real is None else f"${real:.2f}",
        "–" if simulated is None else f"${simulated:.2f}",
        "**$" + spread([result.cost for result in results]) + "**",
        published,
        "100 %" if name == "none" else f"**{spread(ratios, '.1f', ' %')}**",
        shares,
        " · ".join(f"{100 * share:.0f}" for share in use),
    ]


def _trials(packers: Sequence[str], trials: int, args: tuple[object, ...]) -> Trials:
    points = [
        PackedPoint(name, from_table_7, (seed, *args), "cpu_cores")
        for name in packers
        for seed in range(trials)
    ]
    done = measured(points)
    return {name: [result for point, result in done.items() if point.packer == name] for name in packers}


def _ratios(results: Sequence[PackedResult], base: Sequence[PackedResult]) -> list[float]:
    return [result.cost / alone.cost for result, alone in zip(results, base, strict=True)]


def _pace(results: Sequence[PackedResult]) -> str:
    return f"{mean(result.mean_throughput for result in results):.1%}"


def reading(gang_trials: Trials, small_trials: Trials) -> str:
    """What to make of the figures, told by the figures."""
    points = "\n".join([*_of_gangs(gang_trials), *_of_small(small_trials)])
    return f"## Reading it\n\n{points}"


def _of_gangs(done: Trials) -> Iterator[str]:
    cost, jct_h = (
        {n: mean(getattr(r, key) for r in done[n]) for n in done} for key in ("cost", "mean_jct_h")
    )
    yield (
        "- **Table 6.** Eva, which minds that a slow task slows its whole job, costs "
        f"{beside(cost['eva'], cost['eva-single'])} than Eva-Single and takes "
        f"{beside(jct_h['eva'], jct_h['eva-single'])} time; published are {beside(74.2, 79.5)} and "
        f"{beside(4.55, 5.11)}. `optimal` costs {beside(cost['optimal'], cost['eva'])} than Eva."
    )


def _of_small(done: Trials) -> Iterator[str]:
    inside = [
        NAMES[name]
        for name, (_, simulated, _) in PUBLISHED_SMALL.items()
        if min(r.cost for r in done[name]) <= simulated <= max(r.cost for r in done[name])
    ]
    ratio = {name: 100 * mean(_ratios(results, done["none"])) for name, results in done.items()}
    order = ", ".join(NAMES[name] for name in sorted(ratio, key=lambda name: ratio[name]))
    yield (
        f"- **Tables 11 and 12.** The published simulated cost lies within what our draws span for "
        f"{', '.join(inside) or 'no packer'}. From cheap to dear, ours: {order}; published: Eva, Owl, "
        f"Stratus and "
        "Synergy level, No-Packing."
    )
    alone = PUBLISHED_SMALL["none"][1]
    against_paper = "; ".join(
        f"{NAMES[name]} {ratio[name]:.0f} against {100 * simulated / alone:.0f} %"
        for name, (_, simulated, _) in PUBLISHED_SMALL.items()
        if name != "none"
    )
    yield f"- In percent of No-Packing, ours against the paper's simulator: {against_paper}."


def main() -> None:
    """Run all, write the page."""
    if not at_hand():
        return
    parts = [*provisioning(), *runtimes()]
    (of_gangs, gang_trials), (of_small, small_trials) = gangs(), small()
    results = [
        result for done in (gang_trials, small_trials) for trials in done.values() for result in trials
    ]
    head = INTRODUCTION.replace("TIME", took(results))
    write_wrapped("packing-tables", [head, *parts, *of_gangs, *of_small, reading(gang_trials, small_trials)])


INTRODUCTION = f"""# Eva's micro-benchmarks and small experiments (tables 4, 5, 6, 11 and 12)

`{COMMAND}` (TIME for the simulations): tables of Eva (EuroSys'25) and ours beside. `optimal` is our own
packer, for which the paper has no figures. "±" is the standard deviation over trials. "Pace" is the mean
throughput of jobs as a share of what they have alone on their machines."""


if __name__ == "__main__":
    main()
