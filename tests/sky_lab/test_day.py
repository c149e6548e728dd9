"""A day in small (`make day`): its verdict sees what it is to see, and a very small one is lived through."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict
from itertools import product
from pathlib import Path

import pytest

from starburst.domain.job import Phase
from starburst.runs.supervisor.exits import ITSELF, Exit
from tests.sky_lab.day.day import Day
from tests.sky_lab.day.faults import FAULTS
from tests.sky_lab.day.jobs import IN_CONTAINERS, KINDS
from tests.sky_lab.day.plan import DayPlan, PlannedFault, PlannedJob
from tests.sky_lab.day.verdict import (
    NOTED_S,
    UNNOTED_S,
    bill,
    may_live_until,
    price_list,
    stolen,
    wrong_copies,
)
from tests.sky_lab.ec2 import Instance, made_twice
from tests.sky_lab.marks import Copy, copies_on, twins

pytestmark = [pytest.mark.sky, pytest.mark.filterwarnings("ignore")]


def copy(attempt: int, vm: str = "i-1", *, at: float = 0.0, ended: bool = True) -> Copy:
    return Copy("a", attempt, vm, at, at + 10.0, ended)


@pytest.mark.parametrize(
    ("attempt", "copies", "silenced", "said"),
    [
        (1, [copy(1)], "", ""),
        (2, [copy(1, ended=False), copy(2, at=20)], "", ""),
        (1, [], "", "came to no end"),
        (2, [copy(1)], "", "attempt 2 counts, and came to no end"),
        (2, [copy(1), copy(2, at=20)], "", "came to its end 2 times"),
        (2, [copy(1), copy(2, "i-2", at=20)], "i-1", ""),
    ],
)
def test_a_job_that_is_lost_or_ends_twice_is_seen(
    attempt: int, copies: list[Copy], silenced: str, said: str
) -> None:
    plain = PlannedJob("a", KINDS[0], 0.0, 10, None)
    wrong = list(wrong_copies(Phase.SUCCEEDED.value, attempt, plain, copies, {silenced}))
    assert bool(wrong) == bool(said)
    assert all(said in what for what in wrong)


def test_a_job_that_fails_is_tried_as_often_as_its_manifest_says() -> None:
    fails = PlannedJob("a", next(kind for kind in KINDS if kind.name == "fails"), 0.0, 10, None)
    tries = [copy(number, at=20.0 * number, ended=False) for number in range(1, 5)]
    verdicts = [list(wrong_copies(Phase.FAILED.value, n, fails, tries[:n], set())) for n in (2, 3, 4)]
    assert [bool(wrong) for wrong in verdicts] == [True, False, True]


def test_two_copies_at_one_time_are_seen() -> None:
    assert not list(twins([copy(1), copy(2, at=10.0)]))
    assert len(list(twins([copy(1), copy(2, "i-2", at=9.0)]))) == 1


def run_dir(tmp_path: Path, name: str, log: str) -> Path:
    """What a task leaves on the disk of a machine i-1; its name is job/attempt/rank."""
    path = tmp_path / "state/vms/i-1/disk/home/ubuntu/starburst/runs" / name
    path.mkdir(parents=True)
    (path / "log").write_text(log)
    return path


def test_a_container_leaves_its_marks_in_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYLAB_HOME", str(tmp_path))
    said = "mark begin 10\nloss is 3, mark that\nmark beat 11\nmark end 12\n"
    run_dir(tmp_path, "plain/1/0", said)
    (run_dir(tmp_path, "boxed/2/0", said) / "container.json").touch()
    (run_dir(tmp_path, "waits/1/0", "") / "container.json").touch()
    assert copies_on({"i-1"}) == [Copy("boxed", 2, "i-1", 10.0, 12.0, True)]


def test_what_a_spy_found_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYLAB_HOME", str(tmp_path))
    run_dir(tmp_path, "spy/1/0", "begin\nstolen file /home/ubuntu/starburst/runs/a/1/0/log\nend\n")
    run_dir(tmp_path, "talks/1/0", "stolen moments\n")
    assert list(stolen({"i-1"}, {"spy"})) == [
        "spy on i-1: stolen file /home/ubuntu/starburst/runs/a/1/0/log",
    ]


def test_what_a_spy_looks_for_is_found_in_others_and_not_in_itself() -> None:
    for spy, other in product([it for it in (*KINDS, *IN_CONTAINERS) if it.spies], KINDS):
        pattern = re.findall(r"grep -\w+ '([^']+)'", spy.script)
        assert len(pattern) == 2
        assert all(re.search(each, str(other.manifest("a", 1, None))) for each in pattern) is not other.spies
        assert not any(re.search(each, str(spy.manifest("b", 1, None))) for each in pattern)


def test_a_child_may_live_until_the_exit_of_its_job_is_noted_however_long_that_takes(tmp_path: Path) -> None:
    file = tmp_path / "exit.json"
    assert may_live_until(file, 50.0) == 50.0 + UNNOTED_S
    file.write_text(json.dumps(asdict(Exit(0, None, ITSELF, "", 10.0, 50.0))))
    os.utime(file, (95.0, 95.0))
    assert may_live_until(file, 50.0) == 95.0 + NOTED_S


@pytest.mark.parametrize(
    ("second_at", "unanswered", "said"),
    [
        (50.0, [], "i-1 had a and b at one time"),
        (100.0, [], ""),  # when the first one had ended
        (50.0, [(5.0, 15.0)], ""),
        (50.0, [(20.0, 60.0)], "i-1 had a and b at one time"),  # the first one's answer came
    ],
)
def test_a_second_machine_of_an_intent_is_seen_unless_skypilot_never_heard_of_the_first(
    second_at: float, unanswered: list[tuple[float, float]], said: str
) -> None:
    first = Instance("a", "i-1", "p3.8xlarge", True, 10.0, 100.0)
    second = Instance("b", "i-1", "p3.8xlarge", True, second_at, None)
    other = Instance("c", "i-2", "p3.8xlarge", True, 20.0, None)
    assert "; ".join(made_twice([other, second, first], unanswered)) == said


def test_a_bill_is_seconds_by_the_price_of_the_type() -> None:
    hour = Instance("i", "i-000001", "p3.8xlarge", True, 0.0, 3600.0)
    assert bill(hour, price_list()) == 3_672_000


#: Kind, fifths of a second, on spot machines. What may not be spot is on a machine of its own.
JOBS: tuple[tuple[str, int, bool | None], ...] = (
    ("gpu4", 150, True),
    ("plain", 150, False),
    ("forks", 20, None),
    ("deaf", 20, None),
    ("logs", 20, None),
    ("spy", 20, None),
)
#: One machine is cut off and another one ended while jobs run there; and what is everybody's dies.
WRONG = (
    ("network cut", 15.0),
    ("API server killed", 3.0),
    ("scheduler killed", 2.0),
    ("terminated by hand", 1.0),
)


def test_a_very_small_day_ends_with_every_job_done_once_and_the_bill_of_the_cloud(tmp_path: Path) -> None:
    by_kind, by_name = {kind.name: kind for kind in KINDS}, {fault.name: fault for fault in FAULTS}
    jobs = [PlannedJob(f"{name}-1", by_kind[name], 0.0, beats, spot) for name, beats, spot in JOBS]
    faults = [PlannedFault(by_name[name], 0.0, away_s) for name, away_s in WRONG]
    day = Day(DayPlan(0, tuple(jobs), tuple(faults)), tmp_path / "day", patience=3.0)
    wrong = day.run()
    log = (day.root / "up.log").read_text().splitlines()[-40:]
    assert not wrong, "\n".join([*day.report(), *log])
    assert day.happened >= {"network cut", "API server killed", "scheduler killed"}, day.report()
