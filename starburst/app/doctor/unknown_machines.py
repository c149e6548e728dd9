"""Checks of running machines that SkyPilot does not know or that do not keep jobs apart."""

from __future__ import annotations

from starburst.app.config.home import Home
from starburst.app.doctor.doctor import DoctorCheck, ok, warn
from starburst.app.doctor.forgotten_machines import MEND, forgotten, notes_of_running, told

#: The remedy for machines whose jobs run as one account.
APART = (
    "jobs without an image see each other's files there; choose an image of SkyPilot's whose user has sudo, "
    "with iptables, or give queues machines of their own"
)


def machine_checks(home: Home) -> list[DoctorCheck]:
    """SkyPilot knows the running machines, and their clouds can be asked for them."""
    up = notes_of_running(home)
    if not up:
        return []
    mend = "where Starburst runs: credentials that may describe instances"
    lost, unseen = forgotten(home), sorted(note.id for note in up if note.at is None)
    found = [warn("instances", told(lost), MEND)] if lost else []
    if unseen:
        blind = (
            f"the cloud does not tell of {', '.join(unseen)} here: one that SkyPilot forgets and that is "
            "silent counts as gone long after its lease only"
        )
        found.append(warn("instances", blind, mend))
    found += [
        warn("instances", f"{note.id} does not keep jobs apart: {note.together}", APART)
        for note in up
        if note.together
    ]
    return found or [ok("instances", f"{len(up)} up, known to SkyPilot and seen in their cloud")]
