"""A machine of the on-prem cluster."""

from __future__ import annotations

from dataclasses import dataclass

from starburst.domain.constraints import Taint
from starburst.domain.resources import Resources


@dataclass(frozen=True, slots=True)
class Node:
    """A node and what jobs may use of it."""

    name: str
    capacity: Resources
    labels: tuple[tuple[str, str], ...] = ()
    #: False while cordoned or unreachable: nothing new is placed; what runs there goes on.
    schedulable: bool = True
    #: Keep away jobs that do not tolerate them.
    taints: tuple[Taint, ...] = ()
