"""The phases of a job."""

from __future__ import annotations

from enum import Enum


class Phase(str, Enum):
    """Phase of a job; the transitions are `TRANSITIONS` of core/steps/transitions.py."""

    HELD = "held"  # kept out of the queue by its user until it is released
    BLOCKED = "blocked"  # a prerequisite is not met: another job, a turn in its array, or a pause
    QUEUED = "queued"
    OFFLOADING = "offloading"  # its instances are chosen or launching
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"  # its run counts as alive until its end is confirmed
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_end(self) -> bool:
        """Whether the phase is final."""
        return self in ENDS

    @property
    def is_alive(self) -> bool:
        """Whether a run of the job may exist somewhere."""
        return self in ALIVE


#: Phases with a run; a tuple, because its membership test compares by identity first.
ALIVE = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING)
ENDS = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED})


def is_over(phase: str) -> bool:
    """Whether a phase, given by name, is final."""
    return phase in {end.value for end in ENDS}
