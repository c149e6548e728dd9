"""Cases of a test that `make test` leaves to `make volume`."""

from __future__ import annotations

import pytest


def part_in_volume(cases: int, usual: int) -> list[object]:
    """0 to `cases` - 1, those from `usual` on marked `volume`."""
    volume = {True: (pytest.mark.volume,), False: ()}
    return [pytest.param(case, marks=volume[case >= usual]) for case in range(cases)]
