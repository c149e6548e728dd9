"""A root that outlives no test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runs.harness import ending_what_is_left


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with ending_what_is_left(tmp_path):
        yield tmp_path
