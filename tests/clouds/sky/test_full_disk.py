"""A machine whose disk is full: its lease is renewed, what runs there goes on, nothing starts there."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from starburst.runs.supervisor import files
from tests.clouds.sky.agent_machine import let_accounts_reach

ALONE = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.mark.processes
@pytest.mark.parametrize("how", ["apart", "together"])
def test_a_neighbour_that_fills_the_disk_costs_nobody_else_a_job(tmp_path: Path, how: str) -> None:
    """The real agent on a small disk of its own."""
    unshare = shutil.which("unshare")
    if os.geteuid() != 0 or unshare is None:
        pytest.skip("needs root and util-linux, to mount a small disk for itself")
    let_accounts_reach(tmp_path / "home")
    told = subprocess.run(
        [unshare, *ALONE, sys.executable, "-m", "tests.clouds.sky.full_disk", str(tmp_path / "home"), how],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    if "mount" in told.stderr and "Traceback" not in told.stderr:
        pytest.skip(f"this machine mounts nothing: {told.stderr.strip()}")
    assert told.stdout == "well\n", told.stderr[-3000:]
