"""Whether a machine lives, of what SkyPilot, its cloud and the machine itself say. Silence is no end.

SkyPilot's listing is what SkyPilot remembers: a cluster goes from it when SkyPilot's database is lost, or the
tags of its instance are. So what counts is, in this order: the cloud's word on the instance's id; that a
refreshed listing has the machine; that it answers; and at last that a switch which was known to be armed must
have ended it.
"""

from __future__ import annotations

from enum import Enum

from starburst.clouds.sky.access.ports import ClusterState, Presence


class Liveness(str, Enum):
    """Of a machine that was up."""

    LIVES = "lives"
    STOPPED = "stopped"  # what ran there is dead, and it can be ended
    GONE = "gone"
    UNKNOWN = "unknown"  # nobody says that it is gone


def by_cloud(presence: Presence | None) -> Liveness:
    """By the cloud's word alone; None if it could not be asked."""
    if presence is Presence.RUNNING:
        return Liveness.LIVES
    if presence is Presence.STOPPED:
        return Liveness.STOPPED
    return Liveness.GONE if presence is Presence.ENDED else Liveness.UNKNOWN


def verdict(
    presence: Presence | None, listed: ClusterState | None, *, answers: bool, surely_over: bool
) -> Liveness:
    """By all that is known.

    `listed` is of a refreshed listing, `answers` of a call after it. `surely_over`: somebody whose word
    counts has ended it, SkyPilot or the machine's own switch; an answer of the machine says otherwise.
    """
    told = by_cloud(presence)
    if told is not Liveness.UNKNOWN:
        return told
    if answers:
        return Liveness.LIVES
    if presence is Presence.ENDING:
        return Liveness.UNKNOWN
    if presence is Presence.ABSENT:
        return Liveness.GONE
    if listed is not None:
        return Liveness.STOPPED if listed is ClusterState.STOPPED else Liveness.LIVES
    return Liveness.GONE if surely_over else Liveness.UNKNOWN
