"""The section `limits` of starburst.yaml."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from starburst.app.config.fields import MOST, Section
from starburst.app.config.queues import QueueConfig
from starburst.store.quota import Quota
from translator.manifests.hints import MAX_PRIORITY

LimitCount = Annotated[int, Field(ge=0, le=MOST)]


class LimitsConfig(Section):
    """How much users may hand in. 0 is no limit, but for the priority."""

    tasks_per_submission: LimitCount = Field(
        100_000,
        description="tasks of all jobs of one submission, all of arrays and gangs; 0 is no limit",
    )
    pending_per_user: LimitCount = Field(
        100_000, description="jobs of one user that wait, wherever they were submitted; 0 is no limit"
    )
    pending_per_queue: LimitCount = Field(
        200_000, description="jobs of one queue that wait, unless the queue has a max_pending; 0 is no limit"
    )
    priority: Annotated[int, Field(ge=0, le=MAX_PRIORITY)] = Field(
        100, description="the highest starburst.io/priority of who is no admin"
    )

    def quota(self, queues: list[QueueConfig]) -> Quota:
        """The quota as a store value."""
        own = {queue.name: queue.max_pending for queue in queues if queue.max_pending is not None}
        return Quota(self.pending_per_user, self.pending_per_queue, own)
