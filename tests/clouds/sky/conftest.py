"""The machine of tests that run the agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clouds.sky.agent_machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "home")
