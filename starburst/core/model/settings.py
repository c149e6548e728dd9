"""Parameters of the scheduler: policies by name, their numbers, and the unit of its clock."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf

from starburst.domain.money import Money
from starburst.policy.caps import Cap
from starburst.policy.fair import Queue


@dataclass(frozen=True, slots=True)
class Settings:
    """Parameters of the core. Names are keys of the policies' registries.

    All times of the core (`now`, fields and arguments that end in `_s` or `_at`) are seconds of the core's
    clock. Live, that clock runs in real time. The simulator's runs 3,600 times as fast: an hour of a trace is
    one second of the clock, because the published results depend on ties between binary fractions of hours.
    `unit_s` states that rate once, and `clock_s` converts every constant that is meant in real seconds.

    Raises:
        ValueError: a feature that counts money or learns in real seconds, on a clock of another unit.
    """

    #: Real seconds in one second of the core's clock.
    unit_s: float = 1.0

    waiting: str = "compute"
    #: P: how much longer jobs may take on average, percent. Gives the factor unless `factor` is set.
    budget_percent: float = 25.0
    #: "open": the factor is what P gives in theory; "calibrated": it follows what is really spent of P.
    budget_mode: str = "open"
    #: The waiting policy's factor, fixed; SI units (see policy/waiting.py).
    factor: float | None = None
    #: No wait that the policy gives is longer than this.
    max_wait_s: float = inf
    #: A job that, by estimates, cannot start before its wait ends: "wait" all the same, or "leave" at once.
    hopeless: str = "wait"
    order: str = "fifo"
    #: Go on past a job that does not fit; the orders that are disciplines always do.
    out_of_order: bool = True
    #: A job that waits without end is passed by so many later ones at most, then nodes are kept for it
    #: (core/steps/starvation.py); 0 is no limit. Not under the orders that are disciplines.
    max_passes: int = 1000
    #: In strict order, let later jobs run that do not delay the first (EASY).
    backfill: bool = False
    placement: str = "best-fit"
    #: Q_max: beyond it the last job leaves at once; None is no limit.
    queue_limit: int | None = None
    #: Jobs without GPUs leave at once.
    offload_cpu_only: bool = True
    #: Jobs shorter than this leave at once (No-Short-Jobs); 0 is off.
    short_job_s: float = 0.0
    returns: str = "if-it-pays"
    #: T_max: a cloud run this old is looked at for coming home.
    t_max_s: float = 900.0
    #: CPUs that cost as much as one GPU (paper, W_cpu : W_gpu = 1 : 50).
    cpus_per_gpu: float = 50.0
    #: What E[r] and T are before there is history, and how many jobs that belief counts as.
    prior_size: float = 1.0
    prior_runtime_s: float = 3600.0
    prior_jobs: float = 20.0
    #: An offer whose launch failed is left alone this long.
    offer_pause_s: float = 300.0
    #: How jobs that leave together share machines (policy/packing/registry.py), and how long the first of
    #: them waits for others.
    packer: str = "none"
    pack_window_s: float = 0.0
    #: How often the packer is asked whether running cloud jobs should move together; 0 is never. Only jobs
    #: move that save their progress and have run at least so long since their last start.
    pack_period_s: float = 0.0
    move_min_run_s: float = 600.0
    #: Seconds without progress that a move is taken to cost: stop, save, load, start. About the mean over
    #: Eva's workloads, which range from 9 to 162 s (Eva, Table 7).
    move_s: float = 60.0
    #: A machine that nobody gets through to is given this long before it is ended.
    unreachable_s: float = 600.0
    #: No run that is told to stop gets a longer grace, whatever its job asks for.
    max_grace_s: float = 600.0
    #: A job whose runs were lost (not preempted) this often has failed.
    max_losses: int = 6
    #: What may be spent in the cloud (core/steps/budget.py); no two with one name.
    caps: tuple[Cap, ...] = ()
    #: No machine is rented that costs more dollars per hour, or nobody knows what; None is no limit.
    max_rate: Money | None = None
    #: The queues there are, no two with one name; none is any that jobs name, all alike.
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

    def clock_s(self, real_s: float) -> float:
        """A duration in real seconds, on the core's clock."""
        return real_s / self.unit_s
