"""Machines that SkyPilot has forgotten are told of by `doctor`, `status` and `instances`."""

from __future__ import annotations

from pathlib import Path

import pytest

from starburst.app.config.home import Home
from starburst.app.doctor.unknown_machines import machine_checks
from starburst.clouds.sky.access.ports import InstanceRef
from starburst.clouds.sky.journal import FileJournal
from starburst.clouds.sky.machines.entry import MachineEntry, save_machine
from tests.cli.conftest import Cli

AT = InstanceRef("aws", "us-east-1", "i-0abc")


def note(
    home: Path, id_: str, *, forgotten: bool, at: InstanceRef | None = AT, ended_at: float | None = None
) -> None:
    made = MachineEntry(id_, "aws/us-east-1/p3.2xlarge", False, 1.0, ready=True, launched_at=1.0)
    made.forgotten, made.at, made.ended_at = forgotten, at, ended_at
    save_machine(FileJournal(home / "cloud" / "sky" / "notes"), made)


@pytest.mark.parametrize("command", ["status", "instances"])
def test_people_are_told_beside_what_they_asked_for(cli: Cli, home: Path, command: str) -> None:
    note(home, "i-000002", forgotten=True)
    note(home, "i-000001", forgotten=True)
    note(home, "i-000003", forgotten=False)
    note(home, "i-000004", forgotten=True, ended_at=5.0)
    assert "note: SkyPilot has forgotten i-000001, i-000002; they go on" in cli(command).err
    assert "forgotten" not in cli(command, "-o", "json").err


@pytest.mark.parametrize("command", ["status", "instances"])
def test_nothing_is_said_of_machines_that_skypilot_knows(cli: Cli, home: Path, command: str) -> None:
    assert "SkyPilot" not in cli(command).err
    note(home, "i-000003", forgotten=False)
    assert "SkyPilot" not in cli(command).err


def test_doctor_tells_which_machines_are_forgotten_and_which_their_cloud_does_not_show(home: Path) -> None:
    assert machine_checks(Home(home)) == []
    note(home, "i-1", forgotten=False)
    (check,) = machine_checks(Home(home))
    assert check.line == "instances: 1 up, known to SkyPilot and seen in their cloud"
    note(home, "i-2", forgotten=True)
    note(home, "i-3", forgotten=False, at=None)
    lines = [check.line for check in machine_checks(Home(home))]
    assert lines[0].startswith("instances: SkyPilot has forgotten i-2; they go on, and end without SkyPilot")
    assert lines[1].startswith("instances: the cloud does not tell of i-3 here")
