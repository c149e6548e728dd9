"""A gang on a SkyPilot cluster of two nodes, with the real SkyPilot: it goes on without its worker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

from tests.sky_lab.test_gangs import story

pytestmark = [pytest.mark.sky, pytest.mark.filterwarnings("ignore")]


def test_a_gang_reduces_over_two_nodes_and_goes_on_without_a_worker(tmp_path: Path) -> None:
    asyncio.run(story(tmp_path, f"lab-{uuid4().hex}", lost=1))
