"""What is said on the bus, and where."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starburst.store.listings.queries import DecisionRow, JobRow

#: How a row is shown to programs; the same as `-o json` of the commands.
DecisionKeys = Callable[[DecisionRow], dict[str, object]]
JobKeys = Callable[[JobRow], dict[str, object]]


@dataclass(frozen=True, slots=True)
class Message:
    """Something to publish. A retained one without a payload clears what was retained there."""

    topic: str
    payload: bytes
    retain: bool = False


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one cluster."""

    cluster: str

    @property
    def status(self) -> str:
        """Whether the scheduler is there: `online` or `offline`, retained."""
        return f"starburst/{self.cluster}/status"

    @property
    def gap(self) -> str:
        """What is missing from the log."""
        return f"starburst/{self.cluster}/gap"

    def job_events(self, job_id: str) -> str:
        """Every decision on a job."""
        return f"starburst/{self.cluster}/jobs/{_level(job_id)}/events"

    def job_state(self, job_id: str) -> str:
        """How it stands, retained."""
        return f"starburst/{self.cluster}/jobs/{_level(job_id)}/state"

    def instance_events(self, instance_id: str) -> str:
        """Every decision on a rented machine."""
        return f"starburst/{self.cluster}/instances/{_level(instance_id)}/events"

    def hint(self, kind: str, user: str | None = None) -> str:
        """Where hints of a kind come in, of one user ("+" is of each) or for everybody."""
        return f"starburst/{self.cluster}/hints/{kind if user is None else f'{user}/{kind}'}"


def encode(value: dict[str, Any]) -> bytes:
    """A payload: compact JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _level(name: str) -> str:
    """One level of a topic, whatever signs are in the name."""
    return quote(name, safe="")
