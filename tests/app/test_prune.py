"""What is long over leaves the disk, nothing else does, and a kill on the way leaves no harm."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import time
from collections.abc import Collection
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from starburst.app.config.home import Home
from starburst.app.daemon.prune import DOOMED, prune
from starburst.clouds.machine_dir import ClosedBill, LaunchFailure, LaunchRecord, MachineDir
from starburst.core.model.events import RunEnd, RunEnded
from starburst.runs.attempt_dir import AttemptDir, attempts_under

DAY_S = 86_400.0
TAGS = {"owner": "starburst", "controller": "us", "intent": "i"}
LAUNCH = LaunchRecord("small", 1, 0.0, 0.0, 0.0)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def an_attempt(root: Path, job: str, number: int = 1, *, ended_days_ago: float | None) -> Path:
    """A run with a log; over unless `ended_days_ago` is None."""
    attempt = AttemptDir.of(root, job, number)
    attempt.claim([{"lease": None, "where": "node", "gpus": []}])
    (attempt.path / "0" / "log").write_text("done\n")
    if ended_days_ago is not None:
        attempt.settle(RunEnded(job, number, RunEnd.EXITED, 0))
        age(attempt.path / "end.json", ended_days_ago)
    return attempt.path


def a_machine(
    home: Home, intent: str, fact: LaunchRecord | LaunchFailure | ClosedBill, *, ended_days_ago: float
) -> Path:
    machine = MachineDir.of(home.machines, "us", intent)
    machine.claim(TAGS, fact)
    if isinstance(fact, LaunchRecord):
        machine.end(ClosedBill(0.0, 1.0))
    for name in ("ended.json", "failed.json"):
        if (machine.path / name).exists():
            age(machine.path / name, ended_days_ago)
    return machine.path


def age(file: Path, days: float) -> None:
    at = time.time() - days * DAY_S
    os.utime(file, (at, at))


def after_30_days(home: Home, jobs: Collection[str] = (), machines: Collection[str] = ()) -> None:
    asyncio.run(prune(home, time.time() - 30 * DAY_S, jobs, machines))


def test_runs_that_ended_long_ago_are_removed_on_both_sites(home: Home):
    old = [
        an_attempt(home.cluster, "old", ended_days_ago=31),
        an_attempt(home.cluster, "mixed", 1, ended_days_ago=31),
        an_attempt(home.cloud / "runs", "old", 2, ended_days_ago=31),
    ]
    kept = [
        an_attempt(home.cluster, "mixed", 2, ended_days_ago=29),
        an_attempt(home.cloud / "runs", "new", ended_days_ago=29),
        an_attempt(home.cloud / "runs", "runs", ended_days_ago=None),
    ]
    with capture_logs() as logs:
        after_30_days(home)
    assert [path.exists() for path in old] == [False] * 3
    assert [path.exists() for path in kept] == [True] * 3
    assert not (home.cluster / "old").exists()
    assert logs == [{"event": "pruned", "log_level": "info", "directories": 3}]


def test_runs_of_jobs_that_go_on_are_kept_for_their_end_may_not_have_been_heard_of(home: Home):
    path = an_attempt(home.cluster, "a", ended_days_ago=31)
    after_30_days(home, jobs={"a"})
    assert path.exists()


def test_a_run_whose_supervisor_lives_is_kept_whatever_its_files_say(home: Home):
    path = an_attempt(home.cluster, "a", ended_days_ago=31)
    with (path / "0" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        after_30_days(home)
        assert path.exists()
    after_30_days(home)
    assert not path.exists()


def test_logs_that_another_cluster_keeps_there_are_not_ours_to_remove(home: Home):
    log = home.cluster / "pod" / "1" / "0" / "log"
    log.parent.mkdir(parents=True)
    log.write_text("epoch 1\n")
    age(log, 365)
    after_30_days(home)
    assert log.exists()


def test_machines_that_ended_long_ago_are_removed_whatever_became_of_them(home: Home):
    facts = {"ran": LAUNCH, "failed": LaunchFailure("sold out", sold_out=True), "never": ClosedBill(0.0, 0.0)}
    old = [a_machine(home, name, fact, ended_days_ago=31) for name, fact in facts.items()]
    new = [a_machine(home, f"{name}-new", fact, ended_days_ago=29) for name, fact in facts.items()]
    after_30_days(home)
    assert [path.exists() for path in (*old, *new)] == [False] * 3 + [True] * 3


def test_machines_that_live_or_that_the_store_still_counts_are_kept(home: Home):
    counted = a_machine(home, "i-000001", LAUNCH, ended_days_ago=31)
    alive = MachineDir.of(home.machines, "us", "i-000002")
    alive.claim(TAGS, LAUNCH)
    age(alive.path / "launch.json", 365)
    after_30_days(home, machines={"i-000001"})
    assert counted.exists()
    assert alive.path.exists()


def test_checkpoints_are_the_users_own(home: Home):
    an_attempt(home.cluster, "a", ended_days_ago=31)
    saved = home.checkpoints / "a" / "model.pt"
    saved.parent.mkdir(parents=True)
    saved.touch()
    after_30_days(home)
    assert saved.exists()


def test_a_kill_on_the_way_leaves_nothing_that_looks_like_a_run_and_the_next_round_cleans_up(
    home: Home, monkeypatch: pytest.MonkeyPatch
):
    an_attempt(home.cluster, "a", ended_days_ago=31)
    machine = a_machine(home, "i-1", LAUNCH, ended_days_ago=31)

    def killed(path: Path) -> None:
        (path / "end.json").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as killing:
        killing.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            after_30_days(home)
    assert attempts_under(home.cluster) == []
    assert [path.name for path in (home.cluster / "a").iterdir()] == [f"{DOOMED}1"]
    after_30_days(home)
    assert not list(home.cluster.iterdir())
    assert not machine.exists()


def test_a_home_in_which_nothing_ran_is_no_error(home: Home):
    with capture_logs() as logs:
        after_30_days(home)
    assert not logs


def test_a_tree_that_is_too_deep_for_python_goes_and_keeps_nobody_elses_there(home: Home):
    """A job can make one; at a start of the scheduler it must not be in the way, again and again."""
    deep = an_attempt(home.cluster, "deep", ended_days_ago=31)
    old = an_attempt(home.cluster, "old", ended_days_ago=31)
    here = os.open(deep, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    after_30_days(home)
    assert not deep.exists()
    assert not old.exists()
    assert not (home.cluster / "deep").exists()


def test_what_cannot_be_removed_is_said_and_the_rest_goes(home: Home, monkeypatch: pytest.MonkeyPatch):
    stuck = an_attempt(home.cluster, "a", ended_days_ago=31)
    old = an_attempt(home.cluster, "b", ended_days_ago=31)
    rename = Path.rename

    def failing(path: Path, to: Path) -> Path:
        if path == stuck:
            raise PermissionError(1, "Operation not permitted", str(path))
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", failing)
    with capture_logs() as logs:
        after_30_days(home)
    assert (stuck.exists(), old.exists()) == (True, False)
    assert [entry["event"] for entry in logs] == ["prune-failed", "pruned"]
