"""A day in small (`make day`): its verdict sees what it is to see, and a very small one is lived through."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import asdict
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from starburst.domain.job import Phase
from starburst.runs.attempt_dir import log_path
from starburst.runs.supervisor.exits import ITSELF, Exit
from starburst.store.listings.row_types import JobRow
from tests.sky_lab.containers import engines
from tests.sky_lab.day import neighbours
from tests.sky_lab.day.day import Day
from tests.sky_lab.day.faults import ENGINE_KILLED, FAULTS, faults
from tests.sky_lab.day.jobs import (
    FROM,
    GIGABYTE,
    IMAGE,
    IN_CONTAINERS,
    KINDS,
    LOG_BYTES,
    MAX_LOG,
    SAVED,
    PlannedJob,
    kinds,
)
from tests.sky_lab.day.outcomes import NOT_HOME, said, wrong_memory, wrong_outcome, wrong_steps
from tests.sky_lab.day.plan import DayPlan, plan_day
from tests.sky_lab.day.verdict import (
    NOTED_S,
    UNNOTED_S,
    bill,
    may_live_until,
    price_list,
    stolen,
    too_many,
    wrong_copies,
)
from tests.sky_lab.deployment import Deployment
from tests.sky_lab.ec2 import Instance, disks_left, made_twice
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


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ([(0, 10), (10, 20), (20, None)], ""),
        ([(0, 10), (5, 20), (10, None)], ""),
        ([(0, 11), (5, 20), (10, None)], "3 machines were rented at one time, and 2 are allowed"),
        ([(0, None), (5, None), (6, None)], "3 machines were rented at one time, and 2 are allowed"),
    ],
)
def test_more_machines_than_the_account_may_have_are_seen(times: list[tuple[int, int]], said: str) -> None:
    machines = [Instance(f"i{n}", f"i-{n}", "p3.8xlarge", True, *each) for n, each in enumerate(times)]
    assert "; ".join(too_many(machines, 2)) == said
    twice = [Instance("b", one.intent, one.type, True, one.launched_at, one.ended_at) for one in machines]
    assert "; ".join(too_many([*machines, *twice], 2)) == said  # that is told by its own verdict


def test_a_disk_that_is_attached_or_of_no_machine_is_left() -> None:
    first, second = ("i-1", "vol-1", False), ("i-1", "vol-2", False)
    assert not list(disks_left([first], ["i-1"]))
    assert len(list(disks_left([("i-1", "vol-1", True)], ["i-1"]))) == 1
    assert list(disks_left([first, second], ["i-1"])) == ["vol-2, a disk of i-1, is left"]
    assert len(list(disks_left([first], []))) == 1


@pytest.mark.parametrize(
    ("phase", "message", "limited", "wrong"),
    [
        (Phase.FAILED, "OOMKilled: it used more than its memory", True, False),
        (Phase.FAILED, "exit code 1", True, True),
        (Phase.SUCCEEDED, "", True, True),
        (Phase.SUCCEEDED, "", False, False),
        (Phase.FAILED, "exit code 1", False, True),
    ],
)
def test_a_limit_of_memory_is_kept_where_one_is_made(
    phase: Phase, message: str, limited: bool, wrong: bool
) -> None:
    assert bool(list(wrong_memory(phase.value, message, limited=limited))) == wrong


def outcome(kind: str, tmp_path: Path, phase: Phase = Phase.SUCCEEDED, message: str = "") -> list[str]:
    """What is wrong with a job `a` of this kind, whose home and whose machine i-1 are below this path."""
    planned = PlannedJob("a", next(each for each in KINDS if each.name == kind), 0.0, 10, None)
    at = cast("Deployment", SimpleNamespace(home=SimpleNamespace(cloud=tmp_path)))
    row = JobRow("a", "a", "", "", "", phase.value, 0.0, attempt=1, message=message)
    return list(wrong_outcome(at, planned, row, [copy(1)], set()))


@pytest.mark.parametrize(("kind", "short_of"), [("logs", LOG_BYTES), ("gigabyte", MAX_LOG)])
def test_a_log_that_lacks_something_or_has_too_much_is_seen(kind: str, short_of: int, tmp_path: Path) -> None:
    log = log_path(tmp_path / "runs", "a", 1)
    log.parent.mkdir(parents=True)
    for size, wrong in ((short_of - 1, 1), (short_of + 50, 0), (GIGABYTE, 1)):
        log.touch()
        os.truncate(log, size)
        assert len(outcome(kind, tmp_path)) == wrong, size


@pytest.mark.parametrize("group", ["/sys/fs/cgroup/starburst/a", None])
def test_whether_a_machine_made_a_limit_of_memory_is_what_its_agent_was_told(
    group: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKYLAB_HOME", str(tmp_path))
    (run_dir(tmp_path, "a/1/0", "") / "spec.json").write_text(json.dumps({"cgroup": group}))
    assert bool(outcome("memory", tmp_path)) is (group is not None)
    assert bool(outcome("memory", tmp_path, Phase.FAILED, "OOMKilled: memory")) is (group is None)


@pytest.mark.parametrize(
    ("ends_with", "states", "wrong"),
    [(0, ["running"], 0), (0, ["terminated"], 1), (0, ["terminated", "running"], 0), (1, ["terminated"], 0)],
)
def test_a_persons_cluster_that_came_up_and_was_ended_is_seen(
    ends_with: int, states: list[str], wrong: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {f"i-{number}": state for number, state in enumerate(states)}
    monkeypatch.setattr(neighbours, "of_cluster", lambda _name: there)
    launch = subprocess.Popen(["sh", "-c", f"exit {ends_with}"])
    launch.wait()
    found = neighbours.Neighbours([neighbours.Person("sb-x-debug0", launch)])
    assert len(list(found.wrong())) == wrong


@pytest.mark.parametrize(
    ("logs", "silenced", "wrong"),
    [
        ([f"{FROM} 0\n"], set(), 0),
        ([f"{FROM} 0\n{SAVED} 7\n", f"{FROM} 7\n"], set(), 0),
        ([f"{FROM} 0\n{SAVED} 7\n", f"{FROM} 0\n"], set(), 1),
        ([f"{FROM} 0\n{SAVED} 7\n", f"{FROM} 7\n", f"{FROM} 7\n"], set(), 0),  # the second one was lost
        ([f"{FROM} 0\n{SAVED} 7\n", f"{FROM} 0\n"], {1}, 0),
        ([f"{FROM} 0\n{SAVED} 7\n{NOT_HOME}: no answer\n", f"{FROM} 0\n"], set(), 0),
        (["", f"{FROM} 3\n"], set(), 1),
    ],
)
def test_a_job_that_does_not_go_on_from_what_it_saved_is_seen(
    logs: list[str], silenced: set[int], wrong: int
) -> None:
    assert len(list(wrong_steps(logs, silenced))) == wrong
    assert said(f"x{SAVED} 3\n", SAVED) is None


def test_a_full_day_holds_every_kind_of_job_and_every_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYLAB_DOCKER", "1")
    for seed in (1, 2, 3):
        day = plan_day(seed, 100, 1800.0, 36, 90.0)
        assert {job.kind.name for job in day.jobs} == {kind.name for kind in (*KINDS, *IN_CONTAINERS)}
        assert {one.fault.name for one in day.faults} == {fault.name for fault in (*FAULTS, ENGINE_KILLED)}


def test_a_day_can_have_some_kinds_only() -> None:
    day = plan_day(1, 4, 60.0, 4, 10.0, only=["disk full", "preempted", "plain"])
    assert {one.fault.name for one in day.faults} == {"disk full", "preempted"}
    assert {job.kind.name for job in day.jobs} == {"plain"}
    assert len({job.kind.name for job in plan_day(1, 4, 60.0, 4, 10.0, only=["disk full"]).jobs}) == 4


#: The small form: what it holds is drawn as all of a day is; the seed is one whose day is short.
SEED, SMALL_MACHINES = 49402, 3


def small_day() -> DayPlan:
    """Six jobs within ten seconds, of thirty seconds at most, and four things that go wrong."""
    return plan_day(SEED, jobs=6, span_s=10.0, wrong=4, longest_s=30.0)


def test_the_small_day_has_a_spy_and_an_image_and_loses_machines_and_schedulers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SKYLAB_DOCKER", "1")
    day = small_day()
    assert suits(day), (kinds(), faults())
    assert small_day() == day


#: What takes a minute or more on two CPUs.
SLOW = {"SkyPilot's database lost", "a person's cluster beside ours", "another home on the account"}


def suits(day: DayPlan) -> bool:
    """Whether a plan has all that the small day is to have, and takes minutes only."""
    names = [job.kind.name for job in day.jobs]
    wrong = [one.fault for one in day.faults]
    there = {fault.name for fault in wrong}
    long = {job.spot for job in day.jobs if job.beats >= 100 and not job.kind.cancelled}
    return bool(
        sum(job.kind.spies for job in day.jobs) == 1
        and any(job.kind.image == IMAGE and Phase.SUCCEEDED in job.kind.ends for job in day.jobs)
        and sum(job.kind.gpus > 0 for job in day.jobs) == 1
        and "gpu8" not in names
        and {True, False} <= long  # two machines, for what may not be spot has one of its own
        and wrong[0].of_machine
        and there & {"API server killed", "scheduler killed"}
        and not there & SLOW
        and wrong[-1].name in {"terminated by hand", "preempted"}
        and all(one.away_s <= 25.0 for one in day.faults)
    )


def test_a_small_day_ends_with_every_job_done_once_and_the_bill_of_the_cloud(tmp_path: Path) -> None:
    with engines():
        day = Day(small_day(), tmp_path / "day", machines=SMALL_MACHINES, patience=3.0)
        wrong = day.run()
    log = (day.root / "up.log").read_text().splitlines()[-40:]
    assert not wrong, "\n".join([*day.report(), *log])
    planned = {one.fault.name for one in day.plan.faults[:-1]}  # when the last one is due, all may be over
    assert day.happened >= planned, day.report()
