"""Parameters of the scheduler: policies by name, their numbers, and the unit of its clock."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf

from starburst.domain.money import Money
from starburst.policy.caps import Cap
from starburst.policy.fair import Queue
from starburst.policy.waiting import WAITING

#: Default of `Settings.max_failing`.
MAX_FAILING = Money.of(25)


@dataclass(frozen=True, slots=True)
class Settings:
    """Parameters of the core. Names are keys of the policies' registries.

    All times of the core (`now`, fields and arguments that end in `_s` or `_at`) are seconds of the core's
    clock. In live operation that clock runs in real time. In the simulator one second of the clock is one
    hour of the trace, because the published results depend on ties between binary fractions of hours.
    `unit_s` states this rate, and `clock_s` converts constants given in real seconds.

    Raises:
        ValueError: caps, `max_rate` or a packer on a clock whose unit is not one real second.
    """

    #: Real seconds in one second of the core's clock.
    unit_s: float = 1.0

    waiting: str = "compute"
    #: P: allowed increase of the mean completion time, percent. Determines the factor unless `factor` is set.
    budget_percent: float = 25.0
    #: "open": the factor follows from P in theory; "calibrated": it follows the share of P really spent.
    budget_mode: str = "open"
    #: A fixed waiting factor; SI units (see policy/waiting.py).
    factor: float | None = None
    #: Upper limit of the waits that the policy gives.
    max_wait_s: float = inf
    #: No job waits so long for the policy that it takes more than this times its estimated run time; None is
    #: no limit.
    max_slowdown: float | None = None
    #: A job that by estimates cannot start before its deadline: "wait" until then, or "leave" at once. With
    #: an open budget only; under a calibrated one it leaves.
    hopeless: str = "wait"
    order: str = "fifo"
    #: Whether jobs may pass an earlier job that does not fit; under disciplines they always may.
    out_of_order: bool = True
    #: Starts of later jobs after which nodes are reserved for the oldest job without a deadline
    #: (core/steps/starvation.py); 0 is no limit. Not used under disciplines.
    max_passes: int = 1000
    #: In strict order, later jobs may start if they do not delay the first (EASY).
    backfill: bool = False
    placement: str = "best-fit"
    #: Q_max, the queue cap: the excess at the tail leaves at once; None is no limit.
    queue_limit: int | None = None
    #: Jobs without GPUs leave at once.
    offload_cpu_only: bool = True
    #: Jobs shorter than this leave at once (No-Short-Jobs); 0 is off.
    short_job_s: float = 0.0
    returns: str = "if-it-pays"
    #: T_max: run time after which a cloud run is considered for return.
    t_max_s: float = 900.0
    #: CPUs that cost as much as one GPU (paper, W_cpu : W_gpu = 1 : 50).
    cpus_per_gpu: float = 50.0
    #: Prior of E[r] and T, and the number of jobs that it counts as.
    prior_size: float = 1.0
    prior_runtime_s: float = 3600.0
    prior_jobs: float = 20.0
    #: Pause of an offer after a failed launch.
    offer_pause_s: float = 300.0
    #: The packer of jobs that leave together (policy/packing/registry.py), and the pack window, counted from
    #: the first of them.
    packer: str = "none"
    pack_window_s: float = 0.0
    #: Period of consolidation of running cloud jobs; 0 is never. Only checkpointing jobs move, and only after
    #: `move_min_run_s` since their last start.
    pack_period_s: float = 0.0
    move_min_run_s: float = 600.0
    #: Assumed seconds without progress per move: stop, save, load, start. About the mean over Eva's
    #: workloads, which range from 9 to 162 s (Eva, Table 7).
    move_s: float = 60.0
    #: How long an unreachable (or idle unfit) instance is kept before it is ended.
    unreachable_s: float = 600.0
    #: Upper limit of the grace of any stopped run.
    max_grace_s: float = 600.0
    #: Lost runs (not preempted ones) that a job may have; it fails at the next.
    max_losses: int = 6
    #: Caps on cloud spending (core/steps/budget.py), with unique names.
    caps: tuple[Cap, ...] = ()
    #: Highest price per hour of an instance, which also excludes unknown prices; None is no limit.
    max_rate: Money | None = None
    #: Most that consecutive cloud runs of a job that fail at once may cost (core/steps/retries.py).
    max_failing: Money | None = MAX_FAILING
    #: The queues, with unique names; if empty, any queue name is valid and all queues are equal.
    queues: tuple[Queue, ...] = ()

    def __post_init__(self) -> None:
        if self.unit_s != 1 and (self.caps or self.max_rate is not None or self.packer != "none"):
            raise ValueError(
                f"caps, max_rate and packers need a clock in real seconds, not {self.unit_s:g} s"
            )

    @classmethod
    def on_clock(cls, unit_s: float) -> Settings:
        """The defaults, with all durations converted to a clock whose second lasts `unit_s` real seconds."""
        durations = [field.name for field in fields(cls) if field.name.endswith("_s")]
        return cls(**{name: getattr(cls(), name) / unit_s for name in durations} | {"unit_s": unit_s})

    @property
    def calibrates(self) -> bool:
        """Whether the factor follows what is spent of P; a policy without a factor has none to calibrate."""
        return self.budget_mode == "calibrated" and bool(WAITING[self.waiting].symbol)

    @property
    def tests_feasibility(self) -> bool:
        """Whether a job leaves once it cannot start before its deadline."""
        return self.hopeless == "leave" or self.calibrates

    def longest_wait_s(self, runtime_s: float) -> float:
        """Upper limit of the waits that the policy gives to a job with this estimated run time, seconds."""
        if self.max_slowdown is None:
            return self.max_wait_s
        return min(self.max_wait_s, (self.max_slowdown - 1) * runtime_s)

    def clock_s(self, real_s: float) -> float:
        """A duration in real seconds, on the core's clock."""
        return real_s / self.unit_s
