"""The table of a job's phases: each row occurs, no other does, and the documentation shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from starburst.core.model.events import CancelRequested, RunEnd, RunEnded
from starburst.core.model.settings import Settings
from starburst.core.steps import transitions
from starburst.core.steps.transitions import TRANSITIONS, InvalidTransitionError, to
from starburst.domain.job import Phase
from tests.builders import HOUR, Desk, job, offer
from tests.core.test_chaos import MOVERS_THINGS, OFFERS, SIZES, THINGS, Chaos

ROOT = Path(__file__).parents[2]
#: Random scripts that are played at most until every row was seen, and those that showed all rows last time.
SCRIPTS, USUAL = 400, (7, 55, 101, 75, 5, 58, 299)


class Seen(dict[tuple[Phase, Phase], object]):
    """The hooks of each row; notes which rows are looked up."""

    def __init__(self, hooks: dict[tuple[Phase, Phase], object]) -> None:
        super().__init__(hooks)
        self.rows: set[tuple[Phase, Phase]] = set()

    def __getitem__(self, row: tuple[Phase, Phase]) -> object:
        self.rows.add(row)
        return super().__getitem__(row)


def _random_settings(random: Random) -> Settings:
    return Settings(
        waiting=random.choice(["no-wait", "constant"]),
        factor=0.2 * HOUR,
        hopeless=random.choice(["wait", "leave"]),
        queue_limit=random.choice([None, 2]),
        returns=random.choice(["never", "t-max", "if-it-pays"]),
        t_max_s=300.0,
        max_losses=random.choice([1, 6]),
        packer=random.choice(["none", "stratus"]),
        pack_window_s=random.choice([0.0, 30.0]),
        pack_period_s=60.0,
        move_min_run_s=30.0,
        unreachable_s=200.0,
    )


def _play(seed: int) -> None:
    random, movers = Random(seed), seed % 3 == 0
    chaos = Chaos(_random_settings(random), SIZES if movers else OFFERS)
    things = MOVERS_THINGS if movers else THINGS
    for _ in range(80):
        chaos.step(random.choice(things), random.randint(0, 60))


def _on_its_way_home() -> Desk:
    """A job that is told to stop in the cloud, as there is room on the cluster again."""
    desk = Desk(4, returns="if-it-pays", t_max_s=0.25 * HOUR, waiting="no-wait")
    desk.submit(job("busy", 4))
    desk.started("busy")
    desk.submit(job("a", 2, hours=5, retries=1))
    desk.offload("a")
    desk.wait(HOUR / 3)
    desk.ended("busy")
    assert desk.phase("a") == "stopping"
    return desk


def _released_too_early() -> None:
    desk = Desk(1)
    desk.submit(job("a"), job("b", after_ok=("a",), hold=True))
    desk.release("b")
    assert desk.phase("b") == "blocked"


def test_every_row_occurs_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(transitions._HOOKS)
    monkeypatch.setattr(transitions, "_HOOKS", seen)
    _on_its_way_home().cancel("a")
    _on_its_way_home().ended("a", code=3)
    _released_too_early()
    for seed in (*USUAL, *range(SCRIPTS)):
        _play(seed)  # a row that is not in the table raises
        if seen.rows == set(TRANSITIONS):
            break
    missing = {(old.value, new.value) for old, new in set(TRANSITIONS) - seen.rows}
    assert not missing


def test_a_transition_that_is_not_in_the_table_tells_the_story_of_the_job() -> None:
    desk = Desk(1)
    desk.submit(job("a"))
    desk.started("a")
    desk.ended("a")
    told = re.escape("a (attempt 1) cannot go from succeeded to running")
    with pytest.raises(InvalidTransitionError, match=told):
        to(desk.scheduler.state, desk["a"], Phase.RUNNING)
    assert desk.phase("a") == "succeeded"


def test_the_end_of_a_job_is_final() -> None:
    assert not [row for row in TRANSITIONS if row[0].is_end]


def test_only_the_table_assigns_phases() -> None:
    """`record.phase = ...` occurs once below core; machines have phases of their own."""
    found = []
    for path in (ROOT / "starburst").rglob("*.py"):
        for line in path.read_text().splitlines():
            if re.search(r"\b(record|job)\.phase = ", line):
                found.append(path.name)
    assert found == ["transitions.py"]


def test_stale_events_are_counted_and_reported() -> None:
    desk = Desk(1, offers=(offer(),))
    desk.submit(job("a"))
    before = desk.scheduler.state.stale_events
    stale = RunEnded("a", 7, RunEnd.EXITED, 0)
    desk.scheduler.handle([stale, CancelRequested("b")], desk.now)
    state = desk.scheduler.state
    assert state.stale_events == before + 2
    assert [event for event, _ in state.changes.ignored] == [stale, CancelRequested("b")]


def test_the_documentation_shows_the_table() -> None:
    """docs/states.md holds the drawing below; on a change of the table print it with `python -m`."""
    assert "\n".join(drawing()) in (ROOT / "docs" / "states.md").read_text()


def drawing() -> Iterator[str]:
    """The table as Markdown: a diagram and the reason of each row."""
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield "    [*] --> queued"
    yield from (f"    {old.value} --> {new.value}" for old, new in TRANSITIONS)
    yield from (f"    {phase.value} --> [*]" for phase in Phase if phase.is_end)
    yield "```"
    yield ""
    yield "| From | To | Why |"
    yield "|---|---|---|"
    yield from (f"| {old.value} | {new.value} | {why} |" for (old, new), why in TRANSITIONS.items())


if __name__ == "__main__":
    print("\n".join(drawing()))
