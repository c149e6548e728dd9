"""Rows of listings; their field names are the keys of `-o json`.

Times are scheduler seconds, amounts micro-dollars; None means not applicable (deadline: never).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: Phase of a job that the scheduler has not taken up yet.
SUBMITTED = "submitted"


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in a listing."""

    id: str
    name: str
    user: str
    queue: str
    need: str
    phase: str
    submitted_at: float
    #: Order of arrival; None until the scheduler takes the job up.
    seq: int | None = None
    site: str | None = None
    #: Nodes or instances of its present or last run.
    runs_on: str = ""
    attempt: int = 0
    deadline: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    message: str = ""
    cloud_micro_usd: int = 0
    #: Instances that the job pays for and that have not ended yet.
    open_bills: int = 0


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A line of the decision log."""

    seq: int
    at: float
    subject: str
    event: str
    kind: str
    reason: str
    numbers: dict[str, Any]
