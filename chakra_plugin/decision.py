"""Which node a pod goes to, or, as kube-scheduler says it, why none: filter, then score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from starburst.core.capacity import amount
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.policy.placement import PLACEMENTS


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node and what is free on it."""

    node: Node
    free: Resources


@dataclass(frozen=True, slots=True)
class Decision:
    """The chosen node, or None and the message of the FailedScheduling event."""

    node: str | None
    message: str


def choose(
    demand: Resources,
    selector: Sequence[tuple[str, str]],
    candidates: Sequence[Candidate],
    placement: str = "best-fit",
) -> Decision:
    """Filter by node state, labels and room, score what is left; ties go to the first candidate."""
    rejected: Counter[str] = Counter()
    fitting = []
    for candidate in candidates:
        reasons = _rejections(demand, selector, candidate)
        rejected.update(reasons)
        if not reasons:
            fitting.append(candidate)
    if not fitting:
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(rejected.items()))
        return Decision(None, f"0/{len(candidates)} nodes are available: {why or 'there are none'}.")
    score = PLACEMENTS[placement]
    want = amount(demand)
    best = min(fitting, key=lambda c: score(amount(c.free), amount(c.node.capacity), want))
    return Decision(best.node.name, f"assigned to {best.node.name}")


def _rejections(demand: Resources, selector: Sequence[tuple[str, str]], candidate: Candidate) -> list[str]:
    node, free = candidate.node, candidate.free
    if not node.schedulable:
        return ["node(s) were unschedulable"]
    if any(pair not in node.labels for pair in selector):
        return ["node(s) didn't match Pod's node selector"]
    if demand.gpus and demand.gpu_type and demand.gpu_type != node.capacity.gpu_type:
        return [f"node(s) had no {demand.gpu_type} GPU"]
    return [
        f"Insufficient {name}"
        for name, asked, left in (
            ("nvidia.com/gpu", demand.gpus, free.gpus),
            ("cpu", demand.cpu_milli, free.cpu_milli),
            ("memory", demand.memory_mib, free.memory_mib),
        )
        if asked > left
    ]
