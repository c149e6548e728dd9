"""Variables that tell each task of a run its peers, as distributed programs read them (PyTorch, SkyPilot).

A node in these variables is a task, as a pod is, whether tasks share a machine or not: a program sees the
same on pods, on rented machines and on embedded sites. Each task sees only its own GPUs, so its local rank
is 0.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Sequence
from zlib import crc32

from starburst.runs.ports import Run

#: Where torchrun lets its processes meet unless its options say otherwise. By itself it takes 29500, and so
#: would fail beside another one on the machine; pods have a network each.
TORCHRUN_PORT = "PET_MASTER_PORT"
#: The variables of tasks that their user may set instead.
PEER_VARIABLES = frozenset(
    (
        TORCHRUN_PORT,
        *("SKYPILOT_NODE_IPS", "SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES", "SKYPILOT_NUM_GPUS_PER_NODE"),
        *("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "NNODES", "NODE_RANK"),
    )
)
#: Where rank 0 may listen: neither ports of outgoing connections nor those that Ray and SkyPilot take.
FIRST_PORT, PORTS = 20_000, 10_000
#: Where rank 0 listens in a network of its own, as a pod has it: PyTorch's default.
POD_PORT = 29_500


def peer_variables(run: Run, rank: int, hosts: Sequence[str], port: int) -> dict[str, str]:
    """Variables of one task; `hosts` are the addresses of all tasks by rank, rank 0 listens on `port`.

    Of PyTorch's variables a job of one task has the port of torchrun only: programs that find the others
    wait for peers.
    """
    size = len(run.slots)
    gpus = next(slot.resources.gpus for slot in run.slots if slot.rank == rank)
    found = {
        "SKYPILOT_NODE_IPS": "\n".join(hosts),
        "SKYPILOT_NODE_RANK": str(rank),
        "SKYPILOT_NUM_NODES": str(size),
        "SKYPILOT_NUM_GPUS_PER_NODE": str(gpus),
        TORCHRUN_PORT: str(port),
    }
    return found if not run.is_gang else found | gang_variables(hosts[0], port, size, str(rank))


def gang_variables(master: str, port: int, size: int, rank: str) -> dict[str, str]:
    """Variables by which the tasks of a gang find each other."""
    return {
        "MASTER_ADDR": master,
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(size),
        "RANK": rank,
        "LOCAL_RANK": "0",
        "NNODES": str(size),
        "NODE_RANK": rank,
    }


def master_port(run: Run, taken: Collection[int] = (), is_free: Callable[[int], bool] | None = None) -> int:
    """A port for the first task that no other run has; where the search begins depends on the run."""
    first = crc32(f"{run.job.id}/{run.attempt}".encode()) % PORTS
    ports = (FIRST_PORT + (first + step) % PORTS for step in range(PORTS))
    free = (port for port in ports if port not in taken and (is_free is None or is_free(port)))
    return next(free, FIRST_PORT + first)


def is_free_here(port: int) -> bool:
    """Whether nothing listens on this port of this machine."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
