"""Starburst's instruction for a pod: none, to hold it, or the nodes of its job in the order of ranks."""

from __future__ import annotations

from dataclasses import dataclass

from chakra_plugin.scheduling.gangs import owner_key
from starburst.kube import names
from starburst.kube.objects import JobView, PodView


@dataclass(frozen=True, slots=True)
class Directive:
    """Bind to these nodes only."""

    #: By rank.
    nodes: tuple[str, ...]
    #: Pods of one group share the ranks.
    group: str
    #: The completion index, which is the rank, if the pod has one.
    index: int | None


@dataclass(frozen=True, slots=True)
class Hold:
    """Leave the pod unbound."""

    why: str
    #: Whether an event reports it: not for what the next event of a watch resolves.
    told: bool


HELD = Hold("held for Starburst, which decides when and where it runs", told=True)
UNKNOWN_JOB = Hold("its Job is not known yet", told=False)


def directive_of(pod: PodView, job: JobView | None) -> Directive | Hold | None:
    """The instruction for a pod; `job` is its owner, None if it has none or that is not known yet."""
    if pod.owner is not None and pod.owner.kind == "Job" and job is None:
        return UNKNOWN_JOB
    text = pod.annotations.get(names.NODES, "") or (job.annotations.get(names.NODES, "") if job else "")
    nodes = tuple(name.strip() for name in text.split(",")) if text.strip() else ()
    if nodes:
        return Directive(nodes, owner_key(pod), pod.index)
    return HELD if managed(pod, job) else None


def managed(pod: PodView, job: JobView | None) -> bool:
    """Whether the pod is of a queue or job of Starburst."""
    labels = [pod.labels, job.labels if job else {}]
    return any(name in each for each in labels for name in (names.QUEUE, names.JOB))
