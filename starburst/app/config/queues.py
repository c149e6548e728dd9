"""The section `queues` of starburst.yaml."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo

from starburst.app.config.fields import MOST, Namespace, ObjectName, Positive, Section
from starburst.policy.fair import MOST_PRIORITY, Queue, named_twice


class QueueConfig(Section):
    """A queue that jobs may be submitted to."""

    name: Namespace = Field(description="as in starburst.io/queue")
    share: Positive = Field(
        1.0, description="under policy.order: fair, its part of the cluster beside other queues that want it"
    )
    priority: int = Field(
        0,
        ge=-MOST_PRIORITY,
        le=MOST_PRIORITY,
        description="under policy.order: fair, queues of a higher one go first",
    )
    budget_percent: float | None = Field(
        None, gt=0, le=10_000, allow_inf_nan=False, description="P of its jobs; null is policy.budget_percent"
    )
    max_pending: int | None = Field(
        None,
        ge=0,
        le=MOST,
        description="of its jobs so many may wait; 0 is no limit, null is limits.pending_per_queue",
    )

    namespaces: list[Namespace] = Field(
        [],
        description="in Kubernetes: where its jobs may go, besides cluster.namespace and namespaces",
    )
    secrets: list[ObjectName] = Field(
        [], description="in Kubernetes: Secrets that its jobs may use; those of admins may use any"
    )

    def queue(self) -> Queue:
        """The queue as a core value."""
        return Queue(self.name, self.share, self.priority, self.budget_percent)


def _of_use(entries: list[QueueConfig], info: ValidationInfo) -> list[QueueConfig]:
    """Refuse `share` and `priority` under orders that ignore them."""
    policy = info.data.get("policy")
    order = "fair" if policy is None else policy.order  # an invalid policy has its own error
    for entry in entries if order != "fair" else ():
        for name in ("share", "priority"):
            value = getattr(entry, name)
            if value != QueueConfig.model_fields[name].default:
                raise ValueError(
                    f"{entry.name}: {name} {value:g} has no effect under policy.order: {order}; "
                    f"write policy.order: fair, or remove it"
                )
    return entries


def _of_kubernetes(entries: list[QueueConfig], info: ValidationInfo) -> list[QueueConfig]:
    cluster = info.data.get("cluster")
    for entry in entries if cluster is not None and cluster.kind != "kubernetes" else ():
        for name in ("namespaces", "secrets"):
            if getattr(entry, name):
                raise ValueError(
                    f"{entry.name}: {name} has no effect without cluster.kind: kubernetes; remove it"
                )
    return entries


def _once(entries: list[QueueConfig]) -> list[QueueConfig]:
    twice = named_twice(queues_of(entries))
    if twice is not None:
        raise ValueError(f"there are two queues {twice!r}; keep one")
    return entries


QueuesConfig = Annotated[
    list[QueueConfig], AfterValidator(_once), AfterValidator(_of_use), AfterValidator(_of_kubernetes)
]


def queues_of(entries: Iterable[QueueConfig]) -> tuple[Queue, ...]:
    """The queues as core values."""
    return tuple(entry.queue() for entry in entries)
