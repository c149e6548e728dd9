"""Messages of the bus and their topics."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starburst.store.listings.row_types import DecisionRow, JobRow

#: Serializers of rows; the keys are those of `-o json` of the commands.
DecisionKeys = Callable[[DecisionRow], dict[str, object]]
JobKeys = Callable[[JobRow], dict[str, object]]


@dataclass(frozen=True, slots=True)
class Message:
    """A message to publish. A retained message without a payload clears the topic's retained message."""

    topic: str
    payload: bytes
    retain: bool = False


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one cluster."""

    cluster: str

    @property
    def status(self) -> str:
        """Whether the scheduler is connected: `online` or `offline`, retained."""
        return f"starburst/{self.cluster}/status"

    @property
    def gap(self) -> str:
        """Gaps: ranges of decisions that are missing from the log."""
        return f"starburst/{self.cluster}/gap"

    def job_events(self, job_id: str) -> str:
        """Decisions about a job."""
        return f"starburst/{self.cluster}/jobs/{_level(job_id)}/events"

    def job_state(self, job_id: str) -> str:
        """State of a job, retained."""
        return f"starburst/{self.cluster}/jobs/{_level(job_id)}/state"

    def instance_events(self, instance_id: str) -> str:
        """Decisions about an instance."""
        return f"starburst/{self.cluster}/instances/{_level(instance_id)}/events"

    def hint(self, kind: str, user: str | None = None) -> str:
        """Hints of a kind: of one user, of any one user ("+"), or without a user (None)."""
        return f"starburst/{self.cluster}/hints/{kind if user is None else f'{user}/{kind}'}"


def encode(value: dict[str, Any]) -> bytes:
    """A payload: compact JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _level(name: str) -> str:
    """A name as one topic level; special characters are percent-encoded."""
    return quote(name, safe="")
