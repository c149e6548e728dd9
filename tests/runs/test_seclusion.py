"""A task that is kept apart starts, stops and ends as any other; and keeps its account."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from starburst.core.model.events import RunEnd, RunEnded
from starburst.domain.job import Adopted, Site
from starburst.runs.accounts import (
    NoAccountError,
    RunAs,
    RunAsPool,
    RunAsSelf,
    RunAsSubmitter,
    TaskDirs,
    outermost,
    seclusion_problem,
)
from starburst.runs.ports import Run
from starburst.runs.processes import ProcessRunner
from tests.runs.harness import PLACES, Reports, a_run, log, rank_dir, shell, until, untimed, watching

pytestmark = pytest.mark.processes

FIRST = 61_000


def a_pool(root: Path, last: int = FIRST + 1) -> RunAsPool:
    return RunAsPool(root, root / "accounts", FIRST, last)


def dirs_of(root: Path) -> TaskDirs:
    return TaskDirs(*(root / name for name in ("work", "home", "report", "checkpoints", "tmp")))


def by(user: str, **kwargs: object) -> Run:
    run = a_run("true", **kwargs)  # type: ignore[arg-type]
    return replace(run, job=replace(run.job, user=user))


@pytest.fixture
def apart(root: Path) -> RunAs:
    """A pool of ids, where this machine can have it."""
    if os.geteuid() != 0:
        pytest.skip("only root gives jobs another account")
    pool = a_pool(root)
    plan = pool.account(by("trial"), dirs_of(root / "trial")).seclusion
    assert plan is not None
    why = seclusion_problem(plan)
    if why:
        pytest.skip(f"this machine does not let us: {why}")
    return pool


def outcome(
    root: Path, run_as: RunAs, run: Run, then: Callable[[ProcessRunner, Reports], None] | None = None
) -> RunEnded:
    """Start, and do something once it has said so on its log."""

    async def main() -> RunEnded:
        runner = ProcessRunner(root / "runs", root / "checkpoints", Site.CLUSTER, run_as=run_as)
        async with watching(runner) as reports:
            runner.start(run, PLACES)
            if then is not None:
                await until(lambda: (rank_dir(root).path / "log").exists() and "up" in log(root))
                then(runner, reports)
            return await reports.ended("job", run.attempt)

    return asyncio.run(main())


def stop(grace_s: float) -> Callable[[ProcessRunner, Reports], None]:
    return lambda runner, _reports: runner.stop("job", 1, grace_s)


def test_it_ends_with_its_code_and_by_its_signals(root: Path, apart: RunAs) -> None:
    assert outcome(root, apart, shell("exit 7")).exit_code == 7
    end = outcome(root, apart, shell("kill -SEGV $$", attempt=2))
    assert end.exit_code == 128 + signal.SIGSEGV
    exit_ = rank_dir(root, attempt=2).exit()
    assert exit_ is not None
    assert exit_.signal == signal.SIGSEGV


def test_a_stop_is_sigterm_and_its_grace(root: Path, apart: RunAs) -> None:
    saves = (
        "trap 'echo 7 > $STARBURST_CHECKPOINT_DIR/step; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    )
    assert untimed(outcome(root, apart, shell(saves), stop(60))) == RunEnded("job", 1, RunEnd.STOPPED, 0)
    assert (root / "checkpoints" / "job" / "step").read_text() == "7\n"


def test_a_child_may_still_save_when_the_shell_above_it_is_dead(root: Path, apart: RunAs) -> None:
    save = "sleep 0.2; echo 7 > $STARBURST_CHECKPOINT_DIR/step; exit 0"
    outcome(
        root, apart, shell(f"(trap '{save}' TERM; echo up; while :; do sleep 0.05; done); true"), stop(60)
    )
    assert (root / "checkpoints" / "job" / "step").read_text() == "7\n"


def test_who_ignores_it_is_killed_with_all_children(root: Path, apart: RunAs) -> None:
    before = time.monotonic()
    deaf = "trap '' TERM; env -i setsid sleep 600 & echo up; while :; do sleep 600; done"
    end = outcome(root, apart, shell(deaf), stop(0.3))
    assert untimed(end) == RunEnded("job", 1, RunEnd.STOPPED, 128 + 9)
    assert time.monotonic() - before >= 0.3
    assert not rank_dir(root).kill_strays()


def test_nothing_of_it_outlives_its_supervisor(root: Path, apart: RunAs) -> None:
    def kill(_runner: ProcessRunner, _reports: Reports) -> None:
        os.kill(rank_dir(root).shim_pid() or 0, signal.SIGKILL)

    end = outcome(root, apart, shell("env -i setsid sleep 600 & echo up; sleep 600"), kill)
    assert end.end is RunEnd.LOST
    assert not rank_dir(root).kill_strays()


def test_what_it_leaves_in_the_background_dies_with_it(root: Path, apart: RunAs) -> None:
    assert outcome(root, apart, shell("setsid sleep 600 & exit 0")).exit_code == 0
    assert not rank_dir(root).kill_strays()


def test_signals_to_its_own_group_stay_there(root: Path, apart: RunAs) -> None:
    assert outcome(root, apart, shell("trap 'exit 5' USR1; kill -USR1 0; sleep 9")).exit_code == 5


def test_what_cannot_be_run_is_refused_by_name(root: Path, apart: RunAs) -> None:
    end = outcome(root, apart, a_run("/no/such/program"))
    assert (end.end, end.message) == (
        RunEnd.REFUSED,
        "cannot run '/no/such/program': No such file or directory; correct command of the job",
    )
    (root / "ours").mkdir()
    end = outcome(root, apart, a_run("true", working_dir=str(root / "ours"), attempt=2))
    assert (end.end, end.message) == (
        RunEnd.REFUSED,
        f"cannot run '{root}/ours': No such file or directory; correct workingDir of the job",
    )


def test_its_directories_are_its_own_over_attempts_and_accounts(root: Path, apart: RunAs) -> None:
    """Checkpoints of runs as the scheduler are handed over when users are kept apart from now on."""
    step = "$STARBURST_CHECKPOINT_DIR/d/step"
    outcome(root, RunAsSelf(), shell(f"mkdir $STARBURST_CHECKPOINT_DIR/d; echo 1 > {step}"))
    outsider = root / "outsider"
    outsider.write_text("not to be touched")
    (root / "checkpoints" / "job" / "link").symlink_to(outsider)
    end = outcome(root, apart, shell(f"echo 2 >> {step}; id -u", attempt=2))
    assert end.exit_code == 0, log(root, attempt=2)
    uid = int(log(root, attempt=2))
    assert FIRST <= uid <= FIRST + 1
    checkpoints = root / "checkpoints" / "job"
    assert (checkpoints / "d" / "step").read_text() == "1\n2\n"
    assert (checkpoints.stat().st_uid, checkpoints.stat().st_mode & 0o777) == (uid, 0o700)
    assert outsider.stat().st_uid == os.geteuid()


# --- whom -------------------------------------------------------------------------------------------------


def uid_of(run_as: RunAs, run: Run, root: Path) -> int:
    plan = run_as.account(run, dirs_of(root)).seclusion
    assert plan is not None
    return int(plan["uid"])


def test_each_user_of_a_pool_has_an_id_for_good(tmp_path: Path) -> None:
    pool = a_pool(tmp_path)
    assert [uid_of(pool, by(user), tmp_path) for user in ("ada", "eve", "ada")] == [FIRST, FIRST + 1, FIRST]
    assert uid_of(a_pool(tmp_path), by("eve"), tmp_path) == FIRST + 1, "after a restart"
    with pytest.raises(NoAccountError, match="all ids of pool, 61000-61001, are users' already"):
        pool.account(by("bob"), dirs_of(tmp_path))


def test_two_sites_of_a_home_give_no_id_twice(tmp_path: Path) -> None:
    one, other = a_pool(tmp_path), a_pool(tmp_path)
    assert uid_of(one, by("ada"), tmp_path) == FIRST
    assert uid_of(other, by("eve"), tmp_path) == FIRST + 1
    assert uid_of(one, by("eve"), tmp_path) == FIRST + 1


@pytest.mark.parametrize("junk", ["", "x", "60999", "61002", "-1", '{"id": 61000}'])
def test_a_record_that_is_none_of_the_pool_counts_for_nothing(tmp_path: Path, junk: str) -> None:
    (tmp_path / "accounts").mkdir()
    (tmp_path / "accounts" / "user%20ada").write_text(junk)
    assert uid_of(a_pool(tmp_path), by("ada"), tmp_path) == FIRST


@pytest.mark.parametrize("user", ["", "..", "a/b", "ä" * 20, "namespace x"])
def test_any_users_name_makes_one_record(tmp_path: Path, user: str) -> None:
    assert uid_of(a_pool(tmp_path), by(user), tmp_path) == FIRST
    assert len(list((tmp_path / "accounts").iterdir())) == 1


def test_jobs_found_in_a_cluster_go_by_their_namespace(tmp_path: Path) -> None:
    """Their user is what anybody wrote there, so it is nobody's id."""

    def found(namespace: str) -> Run:
        run = by("ada")
        return replace(run, workload=replace(run.workload, adopted=Adopted("Job", namespace, "a", "u")))

    pool = a_pool(tmp_path)
    assert uid_of(pool, by("ada"), tmp_path) == FIRST
    assert uid_of(pool, found("ml"), tmp_path) == FIRST + 1
    with pytest.raises(NoAccountError, match="anybody's to write"):
        RunAsSubmitter(tmp_path).account(found("ml"), dirs_of(tmp_path))


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ("root", "an account of the system"),
        ("daemon", "of the system"),
        ("no-such-user", "has no account"),
        ("", "has no account"),
    ],
)
def test_no_job_runs_as_the_system_or_as_nobody_known(tmp_path: Path, user: str, why: str) -> None:
    with pytest.raises(NoAccountError, match=why):
        RunAsSubmitter(tmp_path).account(by(user), dirs_of(tmp_path))


def test_what_lies_below_a_hidden_directory_is_hidden_with_it(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "ab").mkdir()
    paths = [str(tmp_path / name) for name in ("a/b", "ab", "a", "absent")]
    assert outermost(paths) == [str(tmp_path / "a"), str(tmp_path / "ab")]
