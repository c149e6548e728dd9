"""The golden tasks are tasks to SkyPilot itself, where it is installed; the lab's CI stage has it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parent / "check_schema.py"


@pytest.mark.skipif(
    importlib.util.find_spec("sky") is None,
    reason="SkyPilot is not installed here: run check_schema.py beside this with a Python that has it",
)
def test_skypilot_takes_every_golden_task():
    done = subprocess.run([sys.executable, CHECK], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
