"""The best possible bill of a trace for several budgets: `python -m sim.experiments.waiting.bounds -h`."""

from __future__ import annotations

import argparse
import time

from sim.bound.best_possible import BestPossible, Yardstick
from sim.readers import on_cluster, read, spread
from sim.spec import Spec

BUDGETS = (5.0, 10.0, 25.0, 50.0)


def main() -> None:
    """Print a table in Markdown, a row per cluster and budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", help="a file of any format that starburst simulate reads")
    parser.add_argument("--nodes", type=int, nargs="+", required=True)
    parser.add_argument("--gpus-per-node", type=int, default=8)
    parser.add_argument("--cpus-per-node", type=float, default=96)
    given = parser.parse_args()
    trace = read(given.trace).trace
    print("| Nodes | No-Wait sends | P | No-Wait | with hindsight | at least | all wait | CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for nodes in given.nodes:
        spec = Spec(
            nodes=nodes,
            gpus_per_node=given.gpus_per_node,
            cpus_per_node=given.cpus_per_node,
            out_of_order=True,
        )
        fitting = on_cluster(spread(trace, [spec])[0], spec)
        yardstick = Yardstick(fitting, spec)
        for budget in BUDGETS:
            began = time.process_time()
            best = yardstick.at_budget(budget)
            sends = best.no_wait / float(fitting.cost.sum())
            row = _row(best, spec.price_per_gpu_hour)
            print(
                f"| {nodes} | {sends:.0%} | {budget:g} | {row} | {time.process_time() - began:.1f} |",
                flush=True,
            )


def _row(best: BestPossible, usd: float) -> str:
    bills = " | ".join(f"${bill * usd:,.0f}" for bill in (best.no_wait, best.possible, best.at_least))
    return f"{bills} | {best.spendable_percent:+,.0f} %"


if __name__ == "__main__":
    main()
