"""A home of before is put back while machines are rented: a reaper ends them; some two minutes.

What is killed or cut off while the home stays is in `test_day.py`; `make rounds` does all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sky_lab.plan import plan
from tests.sky_lab.round import Round, left_of

#: SkyPilot and its libraries warn of themselves.
pytestmark = [pytest.mark.sky, pytest.mark.filterwarnings("ignore")]

#: The quickest in which the scheduler dies in a launch, and its home of before is restored.
FIRST = int(os.environ.get("STARBURST_LEAK_FIRST", "19"))
ROUNDS = int(os.environ.get("STARBURST_LEAK_ROUNDS", "1"))


@pytest.fixture(scope="module")
def rounds() -> Iterator[list[Round]]:
    done: list[Round] = []
    yield done
    assert not left_of(done)


@pytest.mark.parametrize("number", range(FIRST, FIRST + ROUNDS))
def test_a_round_of_kills_ends_with_nothing_rented_and_every_job_done_once(
    number: int, rounds: list[Round], tmp_path: Path
) -> None:
    one = Round(plan(number), tmp_path / "round")
    rounds.append(one)
    wrong = one.run()
    log = "\n".join((one.root / "up.log").read_text().splitlines()[-40:])
    assert not wrong, "\n".join([*wrong, str(one.plan), *one.story, log])
