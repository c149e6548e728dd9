"""Parameters of a simulation: cluster, policies and cloud, as on the command line. Times in hours.

The unit of the core's clock is `Settings.unit_s`: by default here an hour (`CLOCK_UNIT_S`), because the
published results were computed in hours, and times that tie in hours need not tie in seconds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from math import inf, isinf, isnan
from typing import Any

from sim.errors import SimulationError
from starburst.core.model.settings import Settings
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.policy.disciplines.registry import DISCIPLINES
from starburst.policy.fair import Queue
from starburst.policy.ordering import ORDERS
from starburst.policy.placement import PLACEMENTS
from starburst.policy.waiting import WAITING

HOUR_S = 3600.0
#: Real seconds in one second of the core's clock.
CLOCK_UNIT_S = HOUR_S
#: Fields that name a policy, with its choices.
CHOICES = {
    "waiting": tuple(WAITING),
    "budget_mode": ("open", "calibrated"),
    "hopeless": ("wait", "leave"),
    "backfill_rule": ("easy", "artifact"),
    "order": tuple(ORDERS),
    "binpack": tuple(PLACEMENTS),
    "runtime_estimates": ("right", "given", "limits", "none"),
}
#: Smallest values of fields that may not be 0.
AT_LEAST = {"nodes": 1, "max_slowdown": 1}


@dataclass(frozen=True, slots=True)
class Spec:
    """Parameters of one simulation."""

    nodes: int = 64
    gpus_per_node: int = 8
    cpus_per_node: float = 96
    #: GiB; jobs request none if the trace has no memory column.
    memory_gib_per_node: float = 1e6
    waiting: str = "compute"
    #: The waiting policy's factor in hours (per GPU, …) or as a ratio; None derives it from the budget.
    factor: float | None = None
    budget_percent: float = 25.0
    #: "open" or "calibrated": whether the factor is adjusted to the budget actually spent.
    budget_mode: str = "open"
    #: "wait" or "leave": handling of a job that, by estimates, cannot start before its deadline.
    hopeless: str = "wait"
    #: Jobs without GPUs offload on arrival.
    cpu_offload: bool = False
    #: Shorter jobs offload on arrival; 0 is off.
    no_short_jobs_h: float = 0.0
    #: Star-Wait: a cloud run of this length is stopped and the job returns; None is never.
    t_max_h: float | None = None
    #: Upper bound of all waits.
    max_wait_h: float = inf
    #: No job waits so long that it takes more than this times its estimated run time.
    max_slowdown: float | None = None
    order: str = "fifo"
    #: No effect on orders that are disciplines, which are never strict.
    out_of_order: bool = False
    backfill: bool = False
    #: "easy" (Lifka 1995) or "artifact": as in the simulator published with Starburst.
    backfill_rule: str = "easy"
    binpack: str = "first-fit"
    queue_cap: int | None = None
    #: Number of jobs at each end of the trace that run but are not counted.
    warmup: int = 0
    #: What the scheduler is told of run times: the "right" ones, what users have "given", that as the time
    #: "limits" of jobs without estimates, or "none".
    runtime_estimates: str = "right"
    #: Right estimates are off by up to this many percent, uniformly distributed.
    estimate_error: float = 0.0
    #: A job that will offload does so on arrival: shows the cost of waiting in vain.
    oracle: bool = False
    #: Additional hours of a cloud run for the transfer of its data.
    data_gravity_h: float = 0.0
    #: Seconds from the offload decision to the start of the cloud run; billed.
    cloud_delay_s: float = 0.0
    price_per_gpu_hour: float = 2.5
    seed: int = 0
    #: Under the order "fair": queues and their shares; other queues have 1.
    shares: tuple[tuple[str, float], ...] = ()

    def check(self) -> None:
        """Check that the parameters can be simulated.

        Raises:
            SimulationError: a line per problem, by the names of the command line's options.
        """
        problems = [
            f"{option(field.name)}: {problem}"
            for field in fields(self)
            if (problem := _problem(field.name, getattr(self, field.name)))
        ]
        if self.backfill and self.order in DISCIPLINES:
            problems.append(f"--backfill: is for a strict queue, which {self.order} is not; leave out one")
        if self.backfill and self.out_of_order:
            problems.append("--backfill: is for a strict queue; leave out --out-of-order or --backfill")
        if self.backfill_rule != "easy" and not self.backfill:
            problems.append(f"--backfill-rule: {self.backfill_rule}: has no effect without --backfill")
        if self.backfill and self.backfill_rule == "artifact" and self.hopeless != "wait":
            problems.append("--backfill-rule: artifact: jobs with a reservation stay; leave out --hopeless")
        if self.waiting == "star" and self.t_max_h is None:
            problems.append(
                "--waiting: star waits after a return only; give --t-max, for instance --t-max 0.25"
            )
        if self.budget_mode == "calibrated" and not self.budget_percent:
            problems.append("--budget: 0: must be more than 0 where it is calibrated; no-wait spends nothing")
        if self.estimate_error and self.runtime_estimates != "right":
            problems.append(
                "--estimate-error: is how far right estimates are off; leave it out, or --runtime-estimates"
            )
        if self.shares and self.order != "fair":
            problems.append(f"--share: has no effect under --order {self.order}; write --order fair")
        if problems:
            raise SimulationError("\n".join(problems))

    @property
    def has_idle_budget(self) -> bool:
        """Whether the budget changes nothing: a factor takes its place. A calibrated one counts beside it."""
        return self.factor is not None and self.budget_mode == "open"

    @property
    def title(self) -> str:
        """A short description for display."""
        policy = WAITING[self.waiting]
        per_gpu = " h/GPU" if self.waiting in ("resource", "star") else ""
        unit = per_gpu or " h" * policy.factor_in_hours
        factor = "" if self.factor is None else f"{policy.symbol} {self.factor:g}{unit}"
        budget = "" if self.has_idle_budget else f"P {self.budget_percent:g} %"
        how = f"{' out of order' * self.out_of_order}{' with backfill' * self.backfill}"
        discipline = DISCIPLINES.get(self.order)
        order = discipline.title if discipline else f"{self.order.upper()}{how}"
        shares = [factor, budget] if policy.symbol else []
        return ", ".join(filter(None, [policy.title, *shares, order, self.binpack]))

    def as_dict(self) -> dict[str, Any]:
        """Stable keys, as in `-o json`; infinity becomes null."""
        return {field: None if value == inf else value for field, value in asdict(self).items()}

    def settings(self, unit_s: float = CLOCK_UNIT_S) -> Settings:
        """The core's settings, on a clock of which a second lasts `unit_s` real seconds."""
        hour = HOUR_S / unit_s
        factor = self.factor
        if factor is not None and WAITING[self.waiting].factor_in_hours:
            factor *= hour
        return replace(
            Settings.on_clock(unit_s),
            waiting=self.waiting,
            factor=factor,
            budget_percent=self.budget_percent,
            budget_mode=self.budget_mode,
            hopeless=self.hopeless,
            max_wait_s=self.max_wait_h * hour,
            max_slowdown=self.max_slowdown,
            order=self.order,
            out_of_order=self.out_of_order,
            max_passes=0,  # as published
            backfill=self.backfill,
            placement=self.binpack,
            queue_limit=self.queue_cap,
            offload_cpu_only=self.cpu_offload,
            short_job_s=self.no_short_jobs_h * hour,
            returns="never" if self.t_max_h is None else "t-max",
            t_max_s=(self.t_max_h or 0.0) * hour,
            queues=tuple(Queue(name, share) for name, share in self.shares),
        )

    def cluster(self) -> tuple[Node, ...]:
        """Identical nodes, named by index."""
        capacity = Resources.of(self.gpus_per_node, self.cpus_per_node, self.memory_gib_per_node)
        return tuple(Node(str(index), capacity) for index in range(self.nodes))


def option(field: str) -> str:
    """A field's option on the command line."""
    return "--" + field.removesuffix("_percent").removesuffix("_h").removesuffix("_s").replace("_", "-")


def _problem(field: str, value: object) -> str:
    """The problem of a field's value and its remedy; "" if there is none."""
    if isinstance(value, str):
        return _unknown(value, CHOICES[field])
    if value is None or isinstance(value, bool | tuple):
        return ""
    assert isinstance(value, int | float)
    least = AT_LEAST.get(field, 0)
    if isnan(value) or (isinf(value) and field != "max_wait_h"):
        return f"{value}: must be a finite number"
    return "" if value >= least else f"{value}: must be at least {least}"


def _unknown(value: str, choices: tuple[str, ...]) -> str:
    if value in choices:
        return ""
    close = get_close_matches(value, choices, 1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{value!r}: {hint}choose one of {', '.join(choices)}"
