"""A trace in columns: arrivals, durations and demands of jobs. Times in hours.

Hours are the simulator's unit of time throughout. The unit affects results: events that tie in whole seconds
need not tie as binary fractions of hours, and the published results were computed in hours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from starburst.domain.resources import Resources

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Trace:
    """Jobs in order of arrival; each column has one entry per job."""

    ids: list[str]
    arrival_h: Floats
    duration_h: Floats
    gpus: Ints
    #: CPUs and GiB of the whole job.
    cpus: Floats
    memory_gib: Floats
    #: Number of distinct nodes requested; a one-node job with more GPUs than a node has is split.
    nodes: Ints
    #: Cost in the cloud, GPU-hours.
    cost: Floats
    #: Queue of each job; None puts all jobs into one queue.
    queues: list[str] | None = None
    #: User of each job, "" where the source does not tell; None if it tells of none.
    users: list[str] | None = None
    #: Run times as their users estimated them, NaN where one gave none; None if the source tells of none.
    estimate_h: Floats | None = None
    #: Hours that a job may wait, whatever the policy says; NaN leaves it to the policy.
    max_wait_h: Floats | None = None
    #: Under the order "priority", jobs of higher priority come first; 0 if None.
    priority: Ints | None = None
    #: What figures call it; "" if it has no name.
    name: str = ""
    #: Made for another cluster: its jobs take the fewest nodes of each that is simulated (`readers.fits`).
    foreign: bool = False

    def __len__(self) -> int:
        return len(self.ids)

    def spread(self, index: int) -> bool:
        """Whether a job takes as many distinct nodes as it requests."""
        return self.nodes.item(index) > 1

    def tasks(self, index: int, gpus_per_node: int) -> tuple[Resources, ...]:
        """A job as a gang: n nodes share its GPUs; a large one-node job becomes full nodes and the rest.

        Each task requests cpus / nodes and memory / nodes, as in the published simulator.
        """
        gpus, nodes = self.gpus.item(index), self.nodes.item(index)
        return _gang(gpus, nodes, self.cpus.item(index), self.memory_gib.item(index), gpus_per_node)


@lru_cache(maxsize=4096)
def _gang(gpus: int, nodes: int, cpus: float, memory_gib: float, gpus_per_node: int) -> tuple[Resources, ...]:
    """Cached, as traces have many jobs of few demands."""
    if nodes > 1:
        share, rest = divmod(gpus, nodes)
        sizes = [share + (rank < rest) for rank in range(nodes)]
    else:
        whole, rest = divmod(gpus, gpus_per_node) if gpus_per_node else (0, gpus)
        sizes = [gpus_per_node] * whole + [rest] * bool(rest) or [0]
    return tuple(Resources.of(size, cpus / nodes, memory_gib / nodes) for size in sizes)
