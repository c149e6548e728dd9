"""How long a cloud tells of a machine that has ended, and what that leaves in doubt of a launch."""

from __future__ import annotations

from starburst.clouds.sky.machines.machine import COARSE_S, RentedMachine

#: Wall seconds for which a cloud tells of what has ended; EC2 does for about an hour.
RETAINED_S = 3000.0


def may_have_ended_untold(machine: RentedMachine) -> bool:
    """Whether an intent is so old that its cloud may have forgotten a machine of it that has ended."""
    clock = machine.context.clock
    return clock.wall() >= clock.pace.wall_time(machine.entry.asked_at) + RETAINED_S


def note_blank(machine: RentedMachine) -> None:
    """Note that the cloud finds nothing of an intent: it has made nothing until now.

    That holds if no two answers are farther apart than the cloud remembers. The time is rounded down to ten
    minutes, so that the entry seldom changes.
    """
    entry, clock = machine.entry, machine.context.clock
    blank_until = entry.asked_at if entry.blank_until is None else entry.blank_until
    if clock.wall() < clock.pace.wall_time(blank_until) + RETAINED_S:
        coarse = clock.pace.scheduler_time(clock.wall() // COARSE_S * COARSE_S)
        entry.blank_until = max(coarse, blank_until)


def forgotten_end(machine: RentedMachine) -> float | None:
    """When what a launch may have made was over, if its cloud, that finds nothing, may have forgotten it.

    Scheduler seconds, at the latest: before what a cloud tells of, and what nobody ever saw has ended itself
    as a machine does whose lease is not renewed. None: it made nothing.
    """
    entry, context, pace = machine.entry, machine.context, machine.context.clock.pace
    up_at = pace.wall_time(entry.asked_at) + context.settings.launch_limit_s
    told_until = up_at if entry.blank_until is None else max(up_at, pace.wall_time(entry.blank_until))
    told_from = context.clock.wall() - RETAINED_S
    if not entry.asked or told_from < told_until:
        return None
    return pace.scheduler_time(min(told_from, up_at + machine.survival_s))
