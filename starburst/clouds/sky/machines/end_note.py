"""The end of a machine is told once it is in the journal, and tried until it is.

A restart that knew nothing of an end that was told could rent a machine for that intent again.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Protocol

import structlog

from starburst.clouds.sky.context import SkyContext

log = structlog.get_logger()

#: Wall seconds between two tries.
PAUSE_S = 10.0


class EndedMachine(Protocol):
    """What is over, and has not told it yet."""

    context: SkyContext
    #: Whether the journal has its end, if it is over.
    end_is_noted: bool

    @property
    def id(self) -> str:
        """The id of the intent to rent it."""

    def save(self) -> None:
        """Write its entry to the journal."""

    def report_state(self) -> None:
        """Report how it stands."""


def is_noted(machine: EndedMachine) -> bool:
    """Whether the journal has the end of a machine; if not, that is told as soon as it has."""
    if not machine.end_is_noted and not _noted(machine):
        machine.context.tasks.ensure(("end note", machine.id), partial(_note, machine))
    return machine.end_is_noted


async def _note(machine: EndedMachine) -> None:
    while not _noted(machine):
        await asyncio.sleep(PAUSE_S)
    machine.report_state()


def _noted(machine: EndedMachine) -> bool:
    try:
        machine.save()
    except OSError as error:  # the disk is full
        log.error("end-not-noted", instance=machine.id, error=str(error))
    else:
        machine.end_is_noted = True
    return machine.end_is_noted
