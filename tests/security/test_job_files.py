"""What a job leaves in its supervisor's files is its own loss: of no other run, not of the scheduler's."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest

from starburst.core.model.events import RunEnd, RunEnded, SiteSynced
from starburst.runs import processes
from starburst.runs.inherited_limits import OPEN_FILES, UMASK
from starburst.runs.supervisor import cgroups
from tests.runs.conftest import root as root  # noqa: PLC0414 - a fixture
from tests.runs.harness import PLACES, a_runner, is_alive, log, rank_dir, shell, until, watching

pytestmark = pytest.mark.processes

LOST = RunEnded("job", 1, RunEnd.LOST, message="its supervisor was killed")
SOUND = {"exit_code": 0, "signal": None, "ended_by": "itself", "message": "", "started_at": 1, "ended_at": 2}
LIES = [
    '{"evil":1}',
    "[1]",
    "{",
    "null",
    "[" * 3000,
    json.dumps({**SOUND, "ended_by": ["x"]}),
    json.dumps({**SOUND, "exit_code": "0"}),
    json.dumps({**SOUND, "ended_at": "never"}),
    json.dumps({**SOUND, "message": "\x1b]0;x\x07"}),
]


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_in_exit_json_ends_that_run_alone_and_no_restart_minds_it(root: Path, lie: str) -> None:
    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(shell("sleep 600", job_id="neighbour"), PLACES)
            runner.start(shell('printf %s "$LIE" > ../exit.json; kill -9 $PPID', env={"LIE": lie}), PLACES)
            assert await reports.ended() == LOST
            await reports.started("neighbour")
        again = a_runner(root)
        async with watching(again) as reports:
            assert LOST in reports.events
            again.stop("neighbour", 1, 0)
            assert (await reports.ended("neighbour")).end is RunEnd.STOPPED

    asyncio.run(main())


HOSTILE = [
    "echo '[1]' > ../started.json",
    'echo \'{"shim": "x"}\' > ../started.json',
    'echo \'{"shim": 1e999, "job": []}\' > ../started.json',
    "echo '[]' > ../spec.json",
    'echo \'{"gpus": ["a"], "where": [], "env": 1}\' > ../spec.json',
    "truncate -s 3G ../spec.json",
    "rm ../spec.json; mkfifo ../spec.json",
    "rm -f ../exit.json; mkfifo ../exit.json",
    "mkdir ../exit.json",
    "ln -s /dev/zero ../exit.json",
    "rm ../lock; mkfifo ../lock",
    "rm ../lock; mkdir ../lock",
    "mkdir ../../7 ../../7x ../../../9x ../../../x; echo 1 > ../../8",
    'echo \'{"end": "glory"}\' > ../../end.json',
    "echo '{\"end\": [1]}' > ../../stop.json",
    "mkdir -p ../../end.json/x",
    "rm -rf ../../../job",
]


@pytest.mark.parametrize("script", HOSTILE)
def test_whatever_a_job_does_to_its_files_others_start_run_and_end(root: Path, script: str) -> None:
    """Also over a restart of the scheduler. What becomes of the run itself is its own affair: but it ends."""

    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(shell(f"{script}; kill -9 $PPID"), PLACES)
            await reports.ended()
            runner.start(shell("exit 3", job_id="other"), PLACES)
            assert (await reports.ended("other")).exit_code == 3
        again = a_runner(root)
        async with watching(again) as reports:
            assert reports.of(SiteSynced)
            again.start(shell("exit 4", job_id="third"), PLACES)
            assert (await reports.ended("third")).exit_code == 4

    asyncio.run(main())


def test_one_run_that_cannot_be_followed_holds_nobody_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whatever is not foreseen the cause is unknown: it is tried again, for that run alone."""
    monkeypatch.setattr(processes, "OVER_S", 0.1)
    seen = processes.verdict

    def broken(key: tuple[str, int], *args: object) -> RunEnded:
        if key[0] == "job" and broken_now:
            raise RuntimeError("a bug")
        return seen(key, *args)  # type: ignore[arg-type]

    broken_now = True
    monkeypatch.setattr(processes, "verdict", broken)

    async def main() -> None:
        nonlocal broken_now
        for job_id in ("other", "third"):  # before and after a restart
            runner = a_runner(root)
            async with watching(runner) as reports:
                runner.start(shell("true"), PLACES)
                runner.start(shell("true", job_id=job_id), PLACES)
                await reports.ended(job_id)
                assert not [end for end in reports.of(RunEnded) if end.job_id == "job"]
        broken_now = False
        async with watching(a_runner(root)) as reports:
            assert (await reports.ended()).exit_code == 0

    asyncio.run(main())


def test_files_of_runs_are_for_their_owner_only(root: Path) -> None:
    async def main() -> None:
        before = os.umask(0)
        try:
            runner = a_runner(root)
            async with watching(runner) as reports:
                runner.start(shell("umask; ulimit -Sn; touch made", env={"KEY": "hunter2"}), PLACES)
                await reports.ended()
        finally:
            os.umask(before)

    asyncio.run(main())
    rank = rank_dir(root).path
    open_to_others = {
        path.name for path in (rank, *rank.iterdir()) if stat.S_IMODE(path.stat().st_mode) & 0o077
    }
    assert open_to_others == set()
    assert log(root) == f"{UMASK:04o}\n{OPEN_FILES}\n", "the job has its user's own, whatever up made of its"


def test_the_supervisor_has_nothing_of_our_environment(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")

    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(shell("tr '\\0' '\\n' < /proc/$PPID/environ; env"), PLACES)
            await reports.ended()

    asyncio.run(main())
    assert "PATH=" in log(root)
    assert "hunter2" not in log(root)


DODGE = (
    "env -i setsid sh -c 'echo $$; exec sleep 600' & echo $$; env -i setsid sh -c 'sleep 600 & echo $!'; wait"
)


@pytest.mark.parametrize("by", ["cgroup", "mark"])
def test_a_second_life_is_impossible(root: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """What left its session and its environment behind dies before its run counts as gone."""
    if by == "mark":
        monkeypatch.setattr(cgroups, "parent", lambda: None)
    elif cgroups.parent() is None:
        pytest.skip("this process may make no control groups of version 2")

    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(shell(DODGE), PLACES)
            await until(lambda: rank_dir(root).shim_pid() is not None and len(log(root).split()) == 3)
            os.kill(rank_dir(root).shim_pid() or 0, 9)
            assert await reports.ended() == LOST
            assert not any(is_alive(int(pid)) for pid in log(root).split())
        group = rank_dir(root).spec()["cgroup"]
        assert (group is None) == (by == "mark")
        assert group is None or not Path(group).exists()

    asyncio.run(main())


def test_a_job_that_stops_its_supervisor_is_stopped_all_the_same(root: Path) -> None:
    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            noted = "until [ -e ../started.json ]; do sleep 0.02; done"
            runner.start(shell(f"{noted}; kill -STOP $PPID; sleep 600"), PLACES)
            await until(
                lambda: (rank_dir(root).path / "log").exists() and rank_dir(root).shim_pid() is not None
            )
            shim = Path(f"/proc/{rank_dir(root).shim_pid()}/stat")
            await until(lambda: shim.read_text().rpartition(")")[2].split()[0] == "T")
            runner.stop("job", 1, 0)
            assert (await reports.ended()).end is RunEnd.STOPPED

    asyncio.run(main())


def test_a_group_that_the_job_names_is_not_killed(root: Path) -> None:
    rank = rank_dir(root)
    assert cgroups.recorded("/sys/fs/cgroup/system.slice", rank.path) is None
    assert cgroups.recorded("starburst-x", rank.path) is None
    assert cgroups.recorded(7, rank.path) is None
