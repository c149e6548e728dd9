"""What must be true between two steps, asked after every step of a live controller."""

from __future__ import annotations

from dataclasses import dataclass

from starburst.app.daemon.observers import CommittedStep
from starburst.core.scheduler import Scheduler
from starburst.core.views.validate import validate


@dataclass(frozen=True)
class Validated:
    """A watcher that ends the controller at the first step after which the state contradicts itself."""

    scheduler: Scheduler

    def stepped(self, _step: CommittedStep) -> None:
        validate(self.scheduler.state)

    def close(self) -> None:
        validate(self.scheduler.state)
