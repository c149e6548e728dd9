"""How to schedule, and what a round decides."""

from __future__ import annotations

from dataclasses import dataclass, field

from chakra_plugin.gangs import Gang
from chakra_plugin.scheduling_queue import Disposition
from starburst.kube import names
from starburst.kube.objects import PodView


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """How to schedule."""

    scheduler: str = names.CHAKRA
    placement: str = "best-fit"
    preempt: bool = False
    #: Seconds for which members of a gang keep their places while their bindings fail.
    gang_timeout_s: float = 300.0
    #: Pods of these namespaces only; none is all.
    namespaces: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Bind:
    """A binding to send."""

    pod: PodView
    node: str
    rank: int | None
    #: As it was when this was decided.
    standing: Disposition
    #: Epoch seconds: when the pod was first seen to wait, and when this was decided.
    since: float
    decided_at: float

    @property
    def gang(self) -> Gang | None:
        """The gang it is a member of."""
        return self.standing if isinstance(self.standing, Gang) else None


@dataclass(frozen=True, slots=True)
class Preemption:
    """Pods to delete, for a pod that will have its room on a node."""

    pod: PodView
    node: str
    victims: tuple[PodView, ...]


@dataclass(slots=True)
class Cycle:
    """What one round decided."""

    binds: list[Bind] = field(default_factory=list)
    preemptions: list[Preemption] = field(default_factory=list)
    #: Shapes and gangs that were tried and fit nowhere.
    failed: int = 0
