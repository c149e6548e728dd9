"""A trace in columns: what arrived when, how long it ran, what it needed. Times in hours.

Hours are the simulator's unit of time throughout. It matters: completions and arrivals that tie exactly in
whole seconds do not as hours in binary, and the published results were made with hours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from starburst.domain.resources import Resources

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Trace:
    """Jobs in order of arrival; all columns have one entry per job."""

    ids: list[str]
    arrival_h: Floats
    duration_h: Floats
    gpus: Ints
    #: CPUs and GiB of the whole job.
    cpus: Floats
    memory_gib: Floats
    #: Nodes it is to run on; one that needs more GPUs than a node has is split anyway.
    nodes: Ints
    #: What it costs in the cloud, in GPU-hours.
    cost: Floats
    #: Whose queue each is in; None if nobody says, which is one queue.
    queues: list[str] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def tasks(self, index: int, gpus_per_node: int) -> tuple[Resources, ...]:
        """A job as a gang: n nodes share its GPUs; a job of one node that needs more is split 8, 8, …, rest.

        Every task asks for cpus / nodes and memory / nodes, as the published simulator does.
        """
        gpus, nodes = int(self.gpus[index]), int(self.nodes[index])
        if nodes > 1:
            share, rest = divmod(gpus, nodes)
            sizes = [share + (rank < rest) for rank in range(nodes)]
        else:
            whole, rest = divmod(gpus, gpus_per_node) if gpus_per_node else (0, gpus)
            sizes = [gpus_per_node] * whole + [rest] * bool(rest) or [0]
        cpus, memory_gib = self.cpus[index] / nodes, self.memory_gib[index] / nodes
        return tuple(Resources.of(size, cpus, memory_gib) for size in sizes)
