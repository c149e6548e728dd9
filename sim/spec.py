"""What is simulated: the cluster, the policies and the cloud, as on the command line. Times in hours."""

from __future__ import annotations

from dataclasses import dataclass

from starburst.core.settings import Settings
from starburst.domain.node import Node
from starburst.domain.resources import Resources


@dataclass(frozen=True, slots=True)
class Spec:
    """Parameters of one simulation."""

    nodes: int = 64
    gpus_per_node: int = 8
    cpus_per_node: float = 96
    #: GiB; without a figure in the trace no job asks for any.
    memory_gib_per_node: float = 1e6
    waiting: str = "compute"
    #: The waiting policy's factor in hours (per GPU, …) or as a ratio; None derives it from the budget.
    factor: float | None = None
    budget_percent: float = 25.0
    #: Jobs without GPUs leave at arrival.
    cpu_offload: bool = False
    #: Shorter jobs leave at arrival; 0 is off.
    no_short_jobs_h: float = 0.0
    #: Star-Wait: a cloud run of this length is stopped and comes home; None is never.
    t_max_h: float | None = None
    #: No wait is longer than this.
    max_wait_h: float = float("inf")
    order: str = "fifo"
    out_of_order: bool = False
    backfill: bool = False
    binpack: str = "first-fit"
    queue_cap: int | None = None
    #: Jobs at the beginning and the end of the trace that run but do not count.
    warmup: int = 0
    #: Estimates are off by up to this many percent, evenly spread.
    estimate_error: float = 0.0
    #: A job that will leave knows so at its arrival and leaves then: what waiting in vain costs.
    oracle: bool = False
    #: Hours that a job in the cloud takes longer, since its data must get there.
    data_gravity_h: float = 0.0
    #: Seconds from the decision to leave until the job runs in the cloud; billed.
    cloud_delay_s: float = 0.0
    price_per_gpu_hour: float = 2.5
    seed: int = 0

    def settings(self) -> Settings:
        """For the core, whose clock runs in hours here."""
        return Settings(
            waiting=self.waiting,
            factor=self.factor,
            budget_percent=self.budget_percent,
            max_wait_s=self.max_wait_h,
            order=self.order,
            out_of_order=self.out_of_order,
            backfill=self.backfill,
            placement=self.binpack,
            queue_limit=self.queue_cap,
            offload_cpu_only=self.cpu_offload,
            short_job_s=self.no_short_jobs_h,
            returns="never" if self.t_max_h is None else "t-max",
            t_max_s=self.t_max_h or 0.0,
            prior_runtime_s=1.0,
        )

    def cluster(self) -> tuple[Node, ...]:
        """Homogeneous nodes, named by index."""
        capacity = Resources.of(self.gpus_per_node, self.cpus_per_node, self.memory_gib_per_node)
        return tuple(Node(str(index), capacity) for index in range(self.nodes))
