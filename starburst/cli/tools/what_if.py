"""`starburst what-if`: one's own finished jobs under another config, beside the present one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from sim.outcomes import QueueResult
from sim.readers import from_records, on_cluster
from sim.reports.amounts import span
from sim.run import SimulationRun, run
from sim.spec import HOUR_S, Spec
from starburst.app.config import load_config
from starburst.app.config.sites import LocalClusterConfig
from starburst.app.errors import UserError
from starburst.cli.backend.session import open_store
from starburst.cli.jobs.selection import since_time
from starburst.cli.output import Column, Format, Listing, OutputOption, print_data
from starburst.cli.tools.advise import (
    cluster_size,
    policy_of,
    settings_at_home,
    shapes,
    shapes_text,
    with_queues_of,
)
from starburst.cli.tools.traces import at_work, fitting
from starburst.core.model.settings import Settings
from starburst.domain.node import Node
from starburst.policy.waiting import WAITING
from starburst.store.listings import queries

#: Of all jobs, in the column of queues.
ALL = "all"


@dataclass(frozen=True, slots=True)
class Difference:
    """What the jobs of a queue, or all, cost and took under the present config and the other one."""

    queue: str
    jobs: int
    #: Dollars in the cloud; mean hours in the queue and from arrival to end.
    cost_usd: tuple[float, float]
    wait_h: tuple[float, float]
    jct_h: tuple[float, float]

    def as_dict(self) -> dict[str, object]:
        """Stable keys, as in `-o json`."""
        pairs = {name: getattr(self, name) for name in ("cost_usd", "wait_h", "jct_h")}
        told = {name: {"now": now, "then": then} for name, (now, then) in pairs.items()}
        return {"queue": self.queue, "jobs": self.jobs, **told}


def _pair(of: str, unit: str) -> list[Column[Difference]]:
    """The columns of a value now and then."""

    def show(row: Difference, at: int) -> str:
        value = getattr(row, of)[at]
        return f"${value:,.2f}" if unit == "$" else span(value, 3)

    name = {"cost_usd": "COST", "wait_h": "WAIT", "jct_h": "JCT"}[of]
    return [
        Column(name, lambda row: show(row, 0), right=True),
        Column("THEN", lambda row: show(row, 1), right=True),
    ]


LISTING: Listing[Difference] = Listing(
    kind="queue",
    name=lambda row: row.queue,
    keys=Difference.as_dict,
    columns=[
        Column("QUEUE", lambda row: row.queue),
        Column("JOBS", lambda row: f"{row.jobs:,}", right=True),
        *_pair("cost_usd", "$"),
        *_pair("wait_h", "h"),
        *_pair("jct_h", "h"),
    ],
    empty="no job has finished here yet",
)


def what_if(
    config: Annotated[Path, typer.Option("--config", metavar="F", help="The other starburst.yaml.")],
    *,
    history: Annotated[
        str, typer.Option("--history", metavar="T", help="Only jobs submitted since: 30d, 2026-03-02. [all]")
    ] = "",
    price_per_gpu_hour: Annotated[
        float, typer.Option(metavar="D", min=0, help="Dollars.")
    ] = Spec().price_per_gpu_hour,
    output: OutputOption = Format.TABLE,
) -> None:
    """Replay this home's finished jobs under another config. Shows cost, wait and JCT of each queue."""
    other = load_config(config)
    live, home = settings_at_home()
    nodes = other.cluster.known_nodes() if isinstance(other.cluster, LocalClusterConfig) else home
    now = spec_of(live, home, price_per_gpu_hour)
    then = spec_of(other.settings(), nodes, price_per_gpu_hour)
    with open_store() as store:
        past = queries.past_jobs(store)
        present = queries.pace(store).scheduler_time(time.time())
    begin = since_time(history, present, "--history") if history else 0.0
    chosen = [job for job in past if job.submitted_at >= begin]
    if not chosen:
        raise UserError("no job that was submitted then has finished here; what-if needs some that have")
    trace = fitting("the history", from_records(chosen), [now, then])
    now, then = (with_queues_of(trace, spec) for spec in (now, then))
    with at_work(f"simulating {len(trace):,} jobs twice"):
        first, second = (run(on_cluster(trace, spec), spec) for spec in (now, then))
    rows = differences(first, second, price_per_gpu_hour)
    if output.for_people or output is Format.NAME:
        LISTING.print(rows, output)
    else:
        print_data(
            {"queues": [row.as_dict() for row in rows], "now": now.as_dict(), "then": then.as_dict()}, output
        )


def spec_of(settings: Settings, nodes: Sequence[Node], price: float) -> Spec:
    """What is simulated of a config, and nodes must be alike; what is not stands in docs/cli.md.

    Raises:
        UserError: the nodes are not alike.
    """
    in_hours = settings.factor is not None and WAITING[settings.waiting].factor_in_hours
    factor = settings.factor / HOUR_S if in_hours and settings.factor is not None else settings.factor
    return Spec(
        **size_of(nodes),
        **policy_of(settings),
        factor=factor,
        budget_percent=settings.budget_percent,
        runtime_estimates="given",
        price_per_gpu_hour=price,
    )


def size_of(nodes: Sequence[Node]) -> dict[str, Any]:
    """The simulated cluster's size.

    Raises:
        UserError: the nodes are not alike.
    """
    if len(found := shapes(nodes)) > 1:
        raise UserError(
            f"{shapes_text(found)}: these nodes are not alike, and what-if simulates nodes of one shape; "
            "try budgets with: starburst advise --history --nodes N --gpus-per-node N --cpus-per-node N"
        )
    return cluster_size(nodes)


def differences(now: SimulationRun, then: SimulationRun, price: float) -> list[Difference]:
    """All jobs first, then each queue."""
    first, second = now.result, then.result
    whole = Difference(
        ALL,
        first.jobs_counted,
        (first.cloud_cost_usd, second.cloud_cost_usd),
        (first.mean_wait_h, second.mean_wait_h),
        (first.mean_jct_h, second.mean_jct_h),
    )
    others = {queue.queue: queue for queue in then.queues}
    return [whole, *(_of_queue(queue, others[queue.queue], price) for queue in now.queues)]


def _of_queue(now: QueueResult, then: QueueResult, price: float) -> Difference:
    return Difference(
        now.queue,
        now.jobs,
        (now.cloud_cost * price, then.cloud_cost * price),
        (now.mean_wait_h, then.mean_wait_h),
        (now.mean_jct_h, then.mean_jct_h),
    )
