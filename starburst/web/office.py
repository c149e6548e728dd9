"""What a request is answered from."""

from __future__ import annotations

import time
from dataclasses import dataclass

from starburst.app.home import Home
from starburst.store import queries
from starburst.store.store import Store


@dataclass(frozen=True, slots=True)
class Office:
    """A home and its store, which any thread may ask."""

    home: Home
    store: Store

    def now(self) -> float:
        """The scheduler's time."""
        return queries.pace(self.store).scheduler_time(time.time())
