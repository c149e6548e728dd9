"""A node of the cluster."""

from __future__ import annotations

from dataclasses import dataclass

from starburst.domain.constraints import Taint
from starburst.domain.resources import Resources


@dataclass(frozen=True, slots=True)
class Node:
    """A node and its capacity for jobs."""

    name: str
    capacity: Resources
    labels: tuple[tuple[str, str], ...] = ()
    #: False while cordoned or unreachable: no task is placed there; runs there go on.
    schedulable: bool = True
    #: Exclude jobs that do not tolerate them.
    taints: tuple[Taint, ...] = ()
