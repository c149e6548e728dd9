"""GET /metrics for Prometheus: each scrape reads the store, in bounded time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import accumulate

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from sqlalchemy import Connection

from starburst.app.wiring.stored import stored_config
from starburst.core.model.decisions import REASONS, WHY_OFFLOAD
from starburst.domain.money import MICRO
from starburst.store import counters
from starburst.store.leader import LeaderRecord, leader_record
from starburst.store.listings import dashboard_queries, queries
from starburst.store.listings.row_types import SUBMITTED
from starburst.store.store import ALIVE_JOBS, LIVE_INSTANCES
from starburst.web import aggregates
from starburst.web.context import AppContext
from starburst.web.packing_gap_cache import PackingGapCache

#: The text format that every Prometheus version reads.
PLAIN = "text/plain; version=0.0.4; charset=utf-8"
#: Pairs of label values and value.
Values = Iterable[tuple[tuple[str, ...], float]]


def metrics(app_context: AppContext) -> APIRouter:
    """The route. Every scrape computes all metrics anew, except for the packing gap, which is cached."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StoreCollector(app_context))
    router = APIRouter()

    @router.get("/metrics", response_class=Response, tags=["metrics"])
    def scrape() -> Response:
        """Metrics in Prometheus' text format."""
        return Response(generate_latest(registry), media_type=PLAIN)

    return router


class StoreCollector(Collector):
    """The metrics of one home."""

    def __init__(self, app_context: AppContext) -> None:
        self._app_context = app_context
        self._gap = PackingGapCache(app_context.store)

    def describe(self) -> list[Metric]:
        """Empty, because the registry does not need the names in advance."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All metrics from one state of the store."""
        config, now = stored_config(self._app_context.store), self._app_context.now()
        said = self._app_context.scheduler()
        yield _gauge("scheduler_up", "1 if a scheduler runs in this home, else 0.", said is not None)
        yield _by(
            "scheduler_held_up",
            "1 while the scheduler waits for what its machine lacks, such as room on the disk.",
            ["reason"],
            [((said.kind,), 1)] if said is not None and said.kind else [],
        )
        yield from _leadership(self._app_context)
        with self._app_context.store.read() as conn:
            told, facts = counters.tallies(conn), dashboard_queries.facts(conn)
            machines = queries.machines(conn)
            waits = counters.waits(conn)
            yield from _jobs(conn, waits, aggregates.overdue(conn, config, now))
            yield from _decisions(told, waits)
            yield _steps(counters.steps(conn))
            yield from _machines(conn, sum(m.unreachable_since is not None for m in machines))
            yield from _money(counters.spent(conn), dashboard_queries.unsettled(conn, machines, now))
            gpus = aggregates.gpus(dashboard_queries.nodes(conn), dashboard_queries.placed_jobs(conn))
        yield _gauge(
            "cloud_dollars_per_hour",
            "Price of all machines that may be running.",
            aggregates.rate(machines).dollars,
        )
        limit = aggregates.limit(config)
        yield _if_known(
            "cloud_dollars_per_hour_limit",
            "The hourly cap on all jobs; without one, price of all that the offers' capacities allow.",
            limit.rate.dollars if limit is not None else None,
        )
        gap = self._gap.ask(config.settings().max_rate)
        yield _if_known(
            "packing_gap_ratio",
            "How much more rented machines cost than the least that any for their tasks could.",
            gap.ratio if gap is not None else None,
        )
        budget = aggregates.budget(config, facts, told)
        yield _if_known(
            "budget_target_ratio", "Wait budget P: how much longer jobs may take on average.", budget.target
        )
        yield _if_known(
            "budget_realised_ratio", "How much longer jobs took than without any waiting.", budget.realised
        )
        yield _by("nodes_gpus", "GPUs of the cluster's nodes.", ["state"], _keyed(gpus))
        yield _gauge("decision_log_seq", "Number of the newest decision.", facts.decided)


def _leadership(app_context: AppContext) -> Iterator[Metric]:
    """Without samples for a single scheduler."""
    record = leader_record(app_context.store) if app_context.replica else None

    def gauge(name: str, text: str, value: Callable[[LeaderRecord], float]) -> Metric:
        return _if_known(name, text, value(record) if record is not None else None)

    yield gauge("leading", "1 if this replica leads.", lambda it: it.holder == app_context.replica)
    yield gauge("leader_epoch", "How often the lead was taken.", lambda it: it.epoch)
    yield gauge("leader_renewal_age_seconds", "Time since the leader renewed its lease.", lambda it: it.age_s)


def _jobs(conn: Connection, known: Collection[str], late: dict[str, int]) -> Iterator[Metric]:
    """`known`: queues that are shown also while nothing is in them."""
    queues = dict.fromkeys(known, 0)
    pending, kept_out, offloading = dict(queues), dict(queues), dict(queues)
    running = dict[tuple[str, ...], int]()
    waiting = {SUBMITTED: pending, "queued": pending, "held": kept_out, "blocked": kept_out}
    for (queue, phase), count in queries.requested_counts(conn).items():
        waiting[phase][queue] = waiting[phase].get(queue, 0) + count
    for counted in dashboard_queries.job_counts(conn):
        if counted.phase in ALIVE_JOBS:
            at = (counted.queue, str(counted.site))
            running[at] = running.get(at, 0) + counted.count
        else:
            numbers = waiting.get(counted.phase, offloading)
            numbers[counted.queue] = numbers.get(counted.queue, 0) + counted.count
    for queue in queues:
        for site in ("cluster", "cloud"):
            running.setdefault((queue, site), 0)
    yield _by("pending_jobs", "Jobs that wait in the queue.", ["queue"], _keyed(pending))
    yield _by("kept_out_jobs", "Jobs that may not wait yet: held or blocked.", ["queue"], _keyed(kept_out))
    yield _by(
        "offloading_jobs",
        "Jobs that left for the cloud and wait for machines.",
        ["queue"],
        _keyed(offloading),
    )
    yield _by("running_jobs", "Jobs with a run that may be alive.", ["queue", "site"], running.items())
    yield _by("overdue_jobs", "Queued jobs that should have left by now.", ["queue"], _keyed(queues | late))


def _decisions(told: counters.DecisionCounters, waited: Mapping[str, counters.Waits]) -> Iterator[Metric]:
    waits = HistogramMetricFamily(
        "starburst_admission_wait_time_seconds",
        "How long jobs stood in the queue before they were first given a place, by where that was.",
        labels=["queue", "site"],
    )
    for queue, by_site in sorted(waited.items()):
        for site, kept in sorted(by_site.items()):
            waits.add_metric([queue, site], _buckets(counters.BOUNDS_S, kept.counts), kept.sum_s)
    yield waits
    kinds = dict.fromkeys(REASONS, 0) | told.decisions  # a first count of 1 is an increase only after a 0
    yield _count("decisions", "Decisions by kind.", ["kind"], _keyed(kinds))
    reasons = dict.fromkeys(WHY_OFFLOAD, 0) | told.offloads
    yield _count("offloaded_jobs", "Jobs that left for the cloud.", ["reason"], _keyed(reasons))
    returned = told.decisions.get("returning", 0)
    yield _count("returned_jobs", "Jobs that were called home from the cloud.", [], [((), returned)])
    yield _count(
        "launch_failures", "Machines that could not be had.", ["offer"], _keyed(told.launch_failures)
    )


def _steps(kept: counters.StepDurations) -> Metric:
    steps = HistogramMetricFamily(
        "starburst_step_duration_seconds",
        "How long the scheduler took for a step: to decide (core), and to store that (commit).",
        labels=["part"],
    )
    for part, took in (("core", kept.core), ("commit", kept.commit)):
        steps.add_metric([part], _buckets(counters.STEP_BOUNDS_S, took.counts), took.sum_s)
    return steps


def _buckets(bounds: Iterable[float], counts: Iterable[int]) -> list[tuple[str, float]]:
    """Cumulative bucket counts, as Prometheus defines them."""
    return list(zip([*map(str, bounds), "+Inf"], accumulate(counts), strict=True))


def _machines(conn: Connection, unreachable: int) -> Iterator[Metric]:
    phases = dashboard_queries.machine_phases(conn)
    shown = {(phase, offer): 0 for _, offer in phases for phase in LIVE_INSTANCES} | phases
    yield _by("instances", "Rented machines that have not ended.", ["phase", "offer"], shown.items())
    yield _gauge("unreachable_instances", "Machines that run but do not answer.", unreachable)


def _money(spent: Mapping[str, counters.Spent], owed: Mapping[tuple[str, str], int]) -> Iterator[Metric]:
    """Both for everybody who has either: a first bill is an increase only after a 0."""
    labels, nobody = ["queue", "user"], dict.fromkeys(owed, 0)
    settled = nobody | {(queue, user): n for queue, users in spent.items() for user, n in users.items()}
    open_bills = dict.fromkeys(settled, 0) | dict(owed)
    yield _count("cloud_cost_dollars", "Bills of machines that have ended.", labels, _dollars(settled))
    yield _by(
        "cloud_unsettled_dollars",
        "Bills so far of machines that have not ended.",
        labels,
        _dollars(open_bills),
    )


def _dollars(bills: Mapping[tuple[str, str], int]) -> Values:
    return [(key, micro_usd / MICRO) for key, micro_usd in bills.items()]


def _keyed(counts: Mapping[str, int]) -> Values:
    return [((key,), count) for key, count in counts.items()]


def _gauge(name: str, text: str, value: float | Decimal) -> Metric:
    return GaugeMetricFamily(f"starburst_{name}", text, value=float(value))


def _if_known(name: str, text: str, value: float | Decimal | None) -> Metric:
    """Without a sample for None: each scrape describes every metric."""
    return _by(name, text, [], [] if value is None else [((), float(value))])


def _by(name: str, text: str, labels: list[str], values: Values) -> Metric:
    family = GaugeMetricFamily(f"starburst_{name}", text, labels=labels)
    for key, value in sorted(values):
        family.add_metric(key, value)
    return family


def _count(name: str, text: str, labels: list[str], values: Values) -> Metric:
    family = CounterMetricFamily(f"starburst_{name}", text, labels=labels)
    for key, value in sorted(values):
        family.add_metric(key, value)
    return family
