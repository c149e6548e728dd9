"""Options of the scheduler, and the decisions of one scheduling cycle."""

from __future__ import annotations

from dataclasses import dataclass, field

from chakra_plugin.scheduling.gangs import Gang, owner_key
from chakra_plugin.scheduling.queue import Disposition
from starburst.kube import names
from starburst.kube.objects import PodView
from starburst.kube.volumes.demand import VolumeChoice


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Options of the scheduler."""

    scheduler: str = names.CHAKRA
    placement: str = "best-fit"
    preempt: bool = False
    #: Seconds for which members of a gang keep their assignments while their bindings fail.
    gang_timeout_s: float = 300.0
    #: Pods of these namespaces only; none is all.
    namespaces: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Bind:
    """A binding to send."""

    pod: PodView
    node: str
    rank: int | None
    #: The disposition of the pod when this was decided.
    disposition: Disposition
    #: Epoch seconds: when the pod was first seen to wait, and when this was decided.
    since: float
    decided_at: float
    #: What is written, and waited for, before it is sent: the volumes of its unbound claims.
    volumes: VolumeChoice | None = None
    #: The address of the first pod of its gang, if the pod asks for it.
    master: str = ""

    @property
    def group(self) -> object:
        """What its rank counts in: its gang, or the uid of its owner."""
        return self.gang or owner_key(self.pod)

    @property
    def gang(self) -> Gang | None:
        """The gang that the pod is a member of."""
        return self.disposition if isinstance(self.disposition, Gang) else None


@dataclass(frozen=True, slots=True)
class Preemption:
    """Pods to delete so that a pod fits on a node."""

    pod: PodView
    node: str
    victims: tuple[PodView, ...]


@dataclass(slots=True)
class Cycle:
    """The decisions of one cycle."""

    binds: list[Bind] = field(default_factory=list)
    preemptions: list[Preemption] = field(default_factory=list)
    #: How many groups were tried and fit nowhere.
    failed: int = 0
