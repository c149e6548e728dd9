"""A hostile job on the embedded sites: what it can reach as whom it runs, and what its lies can do."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from starburst.app.config.home import Home
from starburst.app.config.run_as import RunsJobs, cannot_separate
from starburst.app.doctor.embedded_checks import site_check
from starburst.clouds.sky.access.agent_archive import agent_archive
from starburst.core.model.events import RunEnd, RunEnded
from starburst.domain.job import ANYBODY, OWNER, Site, Submitter
from starburst.runs import accounts
from starburst.runs.accounts import LEAST_UID, RunAs, RunAsSandbox, TaskDirs
from starburst.runs.ports import Run
from starburst.runs.processes import ProcessRunner
from starburst.runs.supervisor import seclusion
from starburst.runs.supervisor.exits import load_exit
from starburst.runs.supervisor.files import write_json
from starburst.store import tokens
from starburst.store.store import Store
from tests.runs.harness import (
    PLACES,
    ending_what_is_left,
    is_alive,
    log,
    rank_dir,
    shell,
    until,
    untimed,
    watching,
)

pytestmark = pytest.mark.processes

IS_ROOT = os.geteuid() == 0
SYSTEM_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")


KEY = "hunter2-of-the-scheduler"


def account() -> str:
    """A Unix account of this machine that is nobody's in particular."""
    return next(entry.pw_name for entry in pwd.getpwall() if entry.pw_uid >= LEAST_UID)


MODES = {
    "auto": RunsJobs(),
    "pool": RunsJobs(run_as="pool", pool="61000-61001"),
    "submitter": RunsJobs(run_as="submitter"),
    "sandbox": RunsJobs(run_as="sandbox"),
}


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> RunsJobs:
    section = MODES[request.param]
    told = site_check("cluster", section, "embedded")
    if told.status.value == "fail" or (section.is_auto and cannot_separate()):
        pytest.skip(told.line)
    return section


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home with a store, where others may look for it; and a secret in the scheduler's environment."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    root = Path(tempfile.mkdtemp(prefix="hostile-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    root.chmod(0o711)
    monkeypatch.setenv("STARBURST_HOME", str(root))
    Store.open(root / "starburst.db").close()
    try:
        with ending_what_is_left(root):
            yield root
    finally:
        shutil.rmtree(root)


def runner_of(root: Path, run_as: RunAs) -> ProcessRunner:
    return ProcessRunner(root / "runs", root / "checkpoints", Site.CLUSTER, run_as=run_as)


def by(user: str, run: Run) -> Run:
    return replace(run, job=replace(run.job, user=user))


def outcome(root: Path, section: RunsJobs, script: str, user: str | None = None) -> RunEnded:
    """Run a script as this site does."""
    user = user or (account() if section.run_as == "submitter" else "eve")

    async def main() -> RunEnded:
        runner = runner_of(root, section.runs_as(Home(root)))
        async with watching(runner) as reports:
            runner.start(by(user, shell(script)), PLACES)
            return await reports.ended()

    return asyncio.run(main())


def test_a_job_that_is_kept_apart_works_as_any_other(home: Path, mode: RunsJobs) -> None:
    script = (
        "set -e; echo $CUDA_VISIBLE_DEVICES:$STARBURST_RANK > $STARBURST_CHECKPOINT_DIR/step;"
        "[ ! -d $HOME ] || touch $HOME/cache; touch here $STARBURST_REPORT;"
        "echo to-err > /dev/stderr; sh -c 'echo said >&2'; exit 7"
    )
    assert untimed(outcome(home, mode, script)) == RunEnded("job", 1, RunEnd.EXITED, 7), log(home)
    assert log(home) == "to-err\nsaid\n"
    assert (home / "checkpoints" / "job" / "step").read_text() == ":0\n"
    assert (rank_dir(home).path / "work" / "here").exists()


@pytest.mark.skipif(bool(cannot_separate()), reason="this machine keeps nobody apart")
def test_unless_the_config_says_otherwise_admins_have_the_schedulers_account_and_others_have_not(
    home: Path,
) -> None:
    async def read(submitter: Submitter, attempt: int) -> str:
        runner = runner_of(home, RunsJobs().runs_as(Home(home)))
        run = by("eve", shell(f"cat {home}/starburst.db | wc -c", attempt=attempt))
        async with watching(runner) as reports:
            runner.start(replace(run, workload=replace(run.workload, submitter=submitter)), PLACES)
            await reports.ended("job", attempt)
        return log(home, "job", attempt).splitlines()[-1]

    assert int(asyncio.run(read(OWNER, 1))) > 0
    assert asyncio.run(read(ANYBODY, 2)) == "0"


def test_it_sees_nothing_of_the_scheduler(home: Path, mode: RunsJobs) -> None:
    """Not its environment, its store, nor a process of it; so it cannot make itself a token."""
    script = f"""
        tr '\\0' '\\n' < /proc/$PPID/environ; env
        ls {home} {home}/runs {home}/runs/job/1/0; cat {home}/starburst.db {home}/runs/job/1/0/spec.json
        cat /proc/[0-9]*/comm; kill -0 {os.getpid()} && echo LI""VES
        cd ../..; ls
        STARBURST_HOME={home} {sys.executable} -m starburst token create evil --role admin
    """
    outcome(home, mode, script)
    said = log(home)
    for secret in (KEY, "AWS_SECRET", "SQLite", "grace_s", "pytest", "LIVES", "starburst_"):
        assert secret not in said, said
    with Store.open(home / "starburst.db") as store:
        assert tokens.listed(store) == []


def test_it_reads_no_file_of_another_users_job_and_kills_no_process_of_it(home: Path, mode: RunsJobs) -> None:
    if mode.run_as == "submitter" and len({entry.pw_uid for entry in pwd.getpwall()} - {0}) < 2:
        pytest.skip("this machine has one account")
    secret = home / "checkpoints" / "victim" / "weights"
    victim = (
        "umask 0; echo precious > $STARBURST_CHECKPOINT_DIR/weights; echo precious > data; "
        "chmod -R 777 . $STARBURST_CHECKPOINT_DIR; exec sleep 600"
    )
    run = rank_dir(home, "victim").path
    attack = (
        f"cat {secret} {run / 'work' / 'data'} {run / 'log'}; echo more >> {secret};"
        "kill -9 -1; kill -9 $VICTIM; ls /proc | grep -c '^[0-9]'; cat /proc/$VICTIM/environ; exit 0"
    )

    async def main() -> None:
        runner = runner_of(home, mode.runs_as(Home(home)))
        user = account() if mode.run_as == "submitter" else "ada"
        async with watching(runner) as reports:
            runner.start(by(user, shell(victim, job_id="victim")), PLACES)
            await until(lambda: secret.exists() and os.stat(secret).st_size > 0)
            await until(lambda: len(sleepers()) == 1)
            (pid,) = sleepers()
            eve = account() if mode.run_as == "submitter" else "eve"
            runner.start(by(eve, shell(attack, env={"VICTIM": str(pid)})), PLACES)
            await reports.ended()
            assert is_alive(pid)
            runner.stop("victim", 1, 0)
            await reports.ended("victim")
        assert secret.read_text() == "precious\n"
        assert "precious" not in log(home)

    asyncio.run(main())


def sleepers() -> list[int]:
    """Processes of the victim that do nothing but sleep."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            sleeps = (path / "cmdline").read_bytes() == b"sleep\x00600\x00"
            if sleeps and b"STARBURST_JOB=victim\0" in (path / "environ").read_bytes():
                found.append(int(path.name))
    return found


def test_a_job_of_a_sandbox_sees_as_little_though_it_has_the_schedulers_account(home: Path) -> None:
    """The shim as another account starts it, with a Python that it may read; root's own is often hidden."""
    python = next((path for path in SYSTEM_PYTHONS if Path(path).exists()), None)
    if not IS_ROOT or python is None:
        pytest.skip("needs root, to be somebody else, and a Python of the system")
    rank, agent = home / "runs" / "job" / "1" / "0", home / "agent.pyz"
    nobody = pwd.getpwnam("nobody")
    shared = home.with_name(f"{home.name}-memory")  # in /dev/shm, as what another job has there
    for path in (home / "secret", shared):
        path.write_text("precious")
    agent.write_bytes(agent_archive())
    rank.mkdir(parents=True)
    dirs = TaskDirs(*(rank / name for name in ("work", "home", "report", "checkpoints", "tmp")))
    run = shell("true")
    plan = RunAsSandbox(home).account(by("eve", run), dirs).seclusion
    assert plan is not None
    plan["hide"] = [str(home)]
    script = (
        f"cat {home}/secret {shared}; ls -a {home}; ls /tmp | wc -l; cd ..; ls; touch {home}/x;"
        f"kill -9 {os.getpid()}; cat /proc/[0-9]*/comm; umount -l {home};"
        f"unshare -Urm sh -c 'umount -l {home}; cat {home}/secret';"
        "echo HOME=$HOME; touch $HOME/ok && exit 9"
    )
    spec = {
        "command": ["sh", "-c", script],
        "cwd": str(dirs.work),
        "env": {"PATH": os.defpath, "HOME": str(dirs.home)},
        "grace_s": 1.0,
        "time_limit_s": 60.0,
        "lease": None,
        "max_log": 1 << 20,
        "seclusion": plan,
    }
    write_json(rank / "spec.json", spec)
    for path in (home, *home.rglob("*")):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    told = subprocess.run(
        [python, "-I", "-S", str(agent), "supervise", str(rank)],
        user=nobody.pw_uid,
        group=nobody.pw_gid,
        extra_groups=[],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    shared.unlink()
    end = load_exit(rank / "exit.json")
    assert end is not None, told
    if "kept apart" in end.message:
        pytest.skip(end.message)
    assert end.exit_code == 9, told
    assert "precious" not in told.stdout
    assert f"HOME={dirs.home}" in told.stdout
    assert not (home / "x").exists()


def test_a_job_of_a_sandbox_has_no_socket_by_which_others_run_something_for_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "RUNTIME", f"{home}-{{}}")
    runtime = Path(f"{home}-{os.geteuid()}")  # where systemd of the scheduler's own account listens
    runtime.mkdir()
    try:
        dirs = TaskDirs(*(home / name for name in ("work", "home", "report", "checkpoints", "tmp")))
        plan = RunAsSandbox(home).account(by("eve", shell("true")), dirs).seclusion
    finally:
        runtime.rmdir()
    assert plan is not None
    assert str(runtime) in plan["hide"]
    assert [os.path.realpath("/run"), seclusion.ENGINES] in plan["without"]
