"""Finds the reference cases: job lists and the results published for them. They are not in here."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(os.environ.get("STARBURST_SHARED") or Path(__file__).parents[2] / "shared")
CASES = SHARED / "cases" / "starburst"

needs_references = pytest.mark.skipif(
    not (CASES / "expected.json").is_file() and "STARBURST_REQUIRE_SHARED" not in os.environ,
    reason="the reference cases are not here: set STARBURST_SHARED to the folder that has cases/starburst",
)


@cache
def rows(file: str) -> list[dict[str, str]]:
    """A CSV file of the cases."""
    with (CASES / file).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


@cache
def expected() -> Mapping[str, Any]:
    """Case → its runs, each with the spec it was made with and what came out."""
    result: Mapping[str, Any] = json.loads((CASES / "expected.json").read_text(encoding="utf-8"))
    return result
