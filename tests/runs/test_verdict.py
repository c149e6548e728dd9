"""How a run ended, from how its tasks did."""

from __future__ import annotations

import pytest

from starburst.core.model.events import RunEnd
from starburst.runs.outcome import verdict
from starburst.runs.supervisor import exits
from starburst.runs.supervisor.exits import Exit


def an_exit(code: int | None, at: float = 10.0, by: str = exits.ITSELF, message: str = "") -> Exit:
    return Exit(code, None, by, message, 0.0, at)


ASKED = {"end": "stopped", "message": "", "grace_s": 5.0, "at": 20.0}
KILLED = None
BY_STOP = an_exit(143, 21, exits.STOP)


@pytest.mark.parametrize(
    ("exits", "asked", "end", "code"),
    [
        pytest.param([an_exit(0), an_exit(0)], None, RunEnd.EXITED, 0, id="all well"),
        pytest.param([an_exit(2, 9), an_exit(1, 8)], None, RunEnd.EXITED, 1, id="first failure in time"),
        pytest.param([an_exit(0, 9), BY_STOP], ASKED, RunEnd.STOPPED, 143, id="stopped"),
        pytest.param([an_exit(0, 21, exits.STOP)], ASKED, RunEnd.STOPPED, 0, id="stopped in good order"),
        pytest.param([an_exit(0, 9)], ASKED, RunEnd.EXITED, 0, id="over before the stop"),
        pytest.param([an_exit(0, 9), BY_STOP], None, RunEnd.LOST, None, id="stopped, and nobody knows why"),
        pytest.param(
            [an_exit(0, 9, exits.STOP)], None, RunEnd.LOST, None, id="in good order, nobody knows why"
        ),
        pytest.param([an_exit(1, 9), BY_STOP], ASKED, RunEnd.EXITED, 1, id="failed before the stop"),
        pytest.param([an_exit(1, 21), BY_STOP], ASKED, RunEnd.STOPPED, 143, id="failed because of the stop"),
        pytest.param([KILLED, an_exit(143, 11, exits.STOP)], None, RunEnd.LOST, None, id="a shim killed"),
        pytest.param([KILLED], ASKED, RunEnd.STOPPED, None, id="a shim killed while stopping"),
        pytest.param([an_exit(None, by=exits.REFUSAL)], None, RunEnd.REFUSED, None, id="refused"),
        pytest.param([an_exit(137, by=exits.LEASE)], None, RunEnd.LOST, None, id="lease passed"),
        pytest.param([an_exit(0, by=exits.TIME_LIMIT)], None, RunEnd.OUT_OF_TIME, 124, id="time limit"),
    ],
)
def test_the_end_of_a_run(
    exits: list[Exit | None], asked: dict[str, object] | None, end: RunEnd, code: int | None
) -> None:
    told = verdict(("job", 1), exits, asked)
    assert (told.end, told.exit_code) == (end, code)


@pytest.mark.parametrize(
    ("exits", "asked", "end"),
    [
        pytest.param([an_exit(0), BY_STOP], None, RunEnd.EXITED, id="the others were ended"),
        pytest.param(
            [an_exit(0), an_exit(1, 11)], None, RunEnd.EXITED, id="another failed when it was left alone"
        ),
        pytest.param([an_exit(0), KILLED], None, RunEnd.EXITED, id="another was lost"),
        pytest.param(
            [an_exit(0, 21, exits.STOP), BY_STOP], ASKED, RunEnd.STOPPED, id="it was stopped itself"
        ),
        pytest.param([KILLED, an_exit(0)], None, RunEnd.LOST, id="it was lost"),
    ],
)
def test_the_success_of_the_task_that_decides_is_that_of_the_run(
    exits: list[Exit | None], asked: dict[str, object] | None, end: RunEnd
) -> None:
    assert verdict(("job", 1), exits, asked, (0,)).end is end


def test_a_task_that_decides_and_fails_gives_its_code() -> None:
    assert verdict(("job", 1), [an_exit(3), BY_STOP], None, (0,)).exit_code == 3
