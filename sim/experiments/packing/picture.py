"""The picture of docs/packing.md: what runs, what Partial Reconfiguration would do, and the plan chosen."""

from __future__ import annotations

from dataclasses import replace

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from sim.experiments.shared import ROOT
from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.policy.packing.colocation import Colocation
from starburst.policy.packing.covering.offline import OfflineOptimal
from starburst.policy.packing.packers.eva import Eva
from starburst.policy.packing.packers.optimal import Optimal
from starburst.policy.packing.plan import Memory, Plan, Rented, Situation, hourly

#: Name, V100s, vCPUs, GiB, dollars per hour (EC2, us-east-1, on demand).
CATALOG = tuple(
    Offer(name, Resources.of(gpus, cpus, gib), Money.of(price), family=name.split(".")[0], ready_s=200)
    for name, gpus, cpus, gib, price in (
        ("p3.2xlarge", 1, 8, 61, "3.06"),
        ("p3.8xlarge", 4, 32, 244, "12.24"),
        ("p3.16xlarge", 8, 64, 488, "24.48"),
        ("c7i.2xlarge", 0, 8, 16, "0.357"),
        ("c7i.4xlarge", 0, 16, 32, "0.714"),
    )
)
COLOURS = {"stays": "#7a9cc6", "new": "#8fbf7f", "moves": "#e0a458"}
Fleet = list[tuple[str, Offer, list[tuple[Task, str]]]]


def example() -> Situation:
    """Two machines with room that a third one's tasks would fill, and three new tasks."""
    running = [task(f"run{n}", 1, cpus, "vit") for n, cpus in enumerate((12, 12, 12, 12, 8))]
    new = [task("new0", 1, 12, "gcn"), task("new1", 1, 4, "gcn"), task("new2", 0, 8, "gcn")]
    big, middle = CATALOG[2], CATALOG[1]
    return Situation(
        tasks=(*running, *new),
        offers=CATALOG,
        instances=(
            Rented("i-1", big, (running[0].key, running[1].key, running[4].key)),
            Rented("i-2", middle, (running[2].key,)),
            Rented("i-3", middle, (running[3].key,)),
        ),
        throughput=Colocation.known({(a, b): 0.97 for a in ("vit", "gcn") for b in ("vit", "gcn")}),
        now=36_000.0,
        memory=Memory(at=35_000.0, event_rate=0.5 / 3600, known=frozenset(t.key for t in running)),
    )


def task(name: str, gpus: int, cpus: int, workload: str) -> Task:
    """A task that takes a minute and a half to move."""
    return Task(name, 0, Resources.of(gpus, cpus, 8), workload=workload, move_s=90)


def fleet(situation: Situation, plan: Plan | None) -> Fleet:
    """Machine, offer, and its tasks with what the plan does to each."""
    tasks = {t.key: t for t in situation.tasks}
    now = [(r.id, r.offer, [(tasks[k], "stays") for k in r.held]) for r in situation.instances]
    if plan is None:
        return now
    moves = {t.key for t in plan.migrations}
    was = {key for r in situation.instances for key in r.held}

    def how(t: Task) -> str:
        return "moves" if t.key in moves else "stays" if t.key in was else "new"

    offers = {r.id: r.offer for r in situation.instances}
    kept = [(name, offers[name], [(t, how(t)) for t in held]) for name, held in plan.assignments.items()]
    return kept + [("new", launch.offer, [(t, how(t)) for t in launch.tasks]) for launch in plan.launches]


def draw(axes: Axes, title: str, machines: Fleet) -> None:
    """Machines as bars of vCPUs, tasks in them."""
    for row, (name, offer, held) in enumerate(machines):
        axes.barh(-row, offer.resources.cpus, color="#f2f2f2", edgecolor="#888888", height=0.7)
        left = 0.0
        for t, how in held:
            axes.barh(-row, t.resources.cpus, left=left, color=COLOURS[how], edgecolor="white", height=0.6)
            gpu = f"{t.resources.gpus} GPU" if t.resources.gpus else "CPU"
            small = t.resources.cpus < 8
            axes.text(
                left + t.resources.cpus / 2,
                -row,
                gpu.replace(" GPU", "") if small else gpu,
                ha="center",
                va="center",
                fontsize=7,
            )
            left += t.resources.cpus
        axes.text(-1, -row, f"{name}  {offer.name}", ha="right", va="center", fontsize=8)
    axes.set_title(title.replace("$", r"\$"), fontsize=9, loc="left")
    axes.set_xlim(0, 64)
    axes.set_ylim(-3.6, 0.6)
    axes.set_yticks([])
    axes.set_frame_on(False)
    axes.tick_params(labelsize=7)


def main() -> None:
    """Draw it."""
    situation = example()
    small, chosen = Eva("partial").plan(situation), Optimal().plan(situation)
    bound = OfflineOptimal().plan(replace(situation, instances=())).lower_bound
    figure = Figure(figsize=(7.2, 5.2), layout="constrained")
    panels = figure.subplots(3, 1)
    rent = hourly((r.offer for r in situation.instances), CATALOG)
    draw(
        panels[0],
        f"What runs: {rent} per hour; three new tasks wait (12, 4 and 8 vCPUs)",
        fleet(situation, None),
    )
    draw(
        panels[1],
        f"Keep what pays (Partial Reconfiguration): {small.cost} per hour, no moves",
        fleet(situation, small),
    )
    draw(
        panels[2],
        f"The plan: {chosen.cost} per hour, {len(chosen.migrations)} moves,"
        f" {len(chosen.terminations)} machines given back; the lower bound is {bound}",
        fleet(situation, chosen),
    )
    panels[2].set_xlabel("vCPUs", fontsize=8)
    figure.legend(
        handles=[Patch(color=c, label=how) for how, c in COLOURS.items()],
        loc="outside lower right",
        ncols=3,
        fontsize=8,
    )
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "packing"}):
        figure.savefig(ROOT / "docs" / "img" / "packing.svg", metadata={"Date": None})
    print(small.reason, "|", chosen.reason)


if __name__ == "__main__":
    main()
