"""Whether a machine lives, by what SkyPilot, its cloud and the machine itself say.

Silence is not an end, nor is a missing row in SkyPilot's listing: SkyPilot lists what it remembers, and
forgets a cluster when its database or the tags of its instance are lost. What counts is, in this order: what
the cloud says of the instance's id; that a refreshed listing has the machine; that the machine answers; and
last, that its shutdown switch was armed and must have ended it by now.
"""

from __future__ import annotations

from enum import Enum

from starburst.clouds.sky.access.ports import ClusterState, Presence


class Liveness(str, Enum):
    """How a machine that was up stands."""

    LIVES = "lives"
    STOPPED = "stopped"  # its processes are dead, its disk is left; it can be terminated
    GONE = "gone"
    UNKNOWN = "unknown"  # no source that counts says that it is gone


def by_cloud(presence: Presence | None) -> Liveness:
    """How a machine stands by its cloud alone; `presence` is None if the cloud could not be asked."""
    if presence is Presence.RUNNING:
        return Liveness.LIVES
    if presence is Presence.STOPPED:
        return Liveness.STOPPED
    return Liveness.GONE if presence is Presence.ENDED else Liveness.UNKNOWN


def liveness_of(
    presence: Presence | None, listed: ClusterState | None, *, answers: bool, surely_over: bool
) -> Liveness:
    """How a machine stands by all sources.

    `listed` comes from a refreshed listing, `answers` from a call made after it. `surely_over`: SkyPilot took
    the machine down, or its own switch must have; an answer of the machine refutes that.
    """
    by_id = by_cloud(presence)
    if by_id is not Liveness.UNKNOWN:
        return by_id
    if answers:
        return Liveness.LIVES
    if presence is Presence.ENDING:
        return Liveness.UNKNOWN
    if presence is Presence.ABSENT:
        return Liveness.GONE
    if listed is not None:
        return Liveness.STOPPED if listed is ClusterState.STOPPED else Liveness.LIVES
    return Liveness.GONE if surely_over else Liveness.UNKNOWN
