"""Brings the laboratory up and its environment in, for this session only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.sky_lab.lab import SCRIPT, environment


@pytest.fixture(scope="session", autouse=True)
def laboratory() -> Iterator[None]:
    lacking = ""
    if not SCRIPT.is_file():
        lacking = "the laboratory is not here: set STARBURST_SHARED to the folder that has skylab/skylab"
    elif find_spec("sky") is None:
        lacking = "SkyPilot is not installed: pip install 'skypilot[aws]==0.14.1'"
    if lacking and "STARBURST_REQUIRE_SHARED" in os.environ:
        pytest.fail(lacking)
    if lacking:
        pytest.skip(lacking)
    with pytest.MonkeyPatch.context() as patch:
        for key, value in environment().items():
            patch.setenv(key, value)
        yield
