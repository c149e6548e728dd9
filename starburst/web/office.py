"""What a request is answered from."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from starburst.app.home import Home
from starburst.app.reports import Inbox
from starburst.store import queries
from starburst.store.store import Store


@dataclass(frozen=True, slots=True)
class Office:
    """A home and its store, which any thread may ask."""

    home: Home
    store: Store
    #: The scheduler's, for what runs say of themselves.
    inbox: Inbox = field(default_factory=Inbox)

    def now(self) -> float:
        """The scheduler's time."""
        return queries.pace(self.store).scheduler_time(time.time())
