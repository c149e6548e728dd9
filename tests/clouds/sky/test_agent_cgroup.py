"""A control group per task on a machine: what dropped every other mark dies with its run (real processes)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from starburst.clouds.sky.agent import machine_cgroup
from starburst.clouds.sky.agent.build import ROOT
from starburst.runs.supervisor import cgroups
from tests.clouds.sky.test_agent import Machine, spec, text
from tests.runs.harness import is_alive

pytestmark = pytest.mark.processes

#: Of no other test that runs at the same time: processes are known by it, too.
NAME = "grouped/1/0"
NOBODY = 65534
#: A process with a session of its own, an empty environment and a lower limit: no mark but its group is left.
UNMARKED = """
import os, resource, signal, time
pid = os.fork()
if pid == 0:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_RTTIME, (1 << 40, 1 << 40))
    os.execve("/bin/sleep", ["sleep", "600"], {})
print(pid, flush=True)
"""
FORGED = {
    "exit_code": 0,
    "signal": None,
    "ended_by": "itself",
    "message": "",
    "started_at": 1.0,
    "ended_at": 2.0,
}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "home", NAME)


def started(machine: Machine, code: str) -> Path:
    """A task whose code runs, and its group; skips where this machine gives it none."""
    machine.exchange(lease_s=100, specs={NAME: spec(sys.executable, "-c", UNMARKED + code)})
    machine.start()
    machine.until("started")
    group = json.loads((machine.dir / "spec.json").read_text())["cgroup"]
    if group is None:
        machine.exchange(stops={NAME: 0.0})
        machine.wait()
        pytest.skip("this machine gives tasks no control groups of version 2")
    while not text(machine.exchange()):
        time.sleep(0.02)
    return Path(group)


def test_a_process_without_any_other_mark_dies_when_its_supervisor_was_killed(machine: Machine) -> None:
    group = started(machine, "time.sleep(600)")
    pid = int(text(machine.exchange()))
    supervisor = json.loads((machine.dir / "started.json").read_text())["shim"]
    (machine.dir / "spec.json").unlink()  # the group is found without it
    for pid in (*machine.runners(), supervisor):
        with suppress(ProcessLookupError):  # the supervisor's parent is gone, and it may be by now
            os.kill(pid, signal.SIGKILL)
    assert machine.until("over")["exit"] is None
    assert not is_alive(pid)
    assert not group.exists()


def test_an_exit_that_a_job_wrote_itself_gives_it_no_second_life(machine: Machine) -> None:
    forge = f"open('../exit.json', 'w').write({json.dumps(FORGED)!r}); os.kill(os.getppid(), 9)"
    group = started(machine, f"time.sleep(1); {forge}; time.sleep(600)")
    pid = int(text(machine.exchange()))
    machine.wait()
    machine.until("over")
    assert not is_alive(pid)
    assert not group.exists()


def test_the_group_of_a_task_that_ended_in_good_order_is_removed(machine: Machine) -> None:
    group = started(machine, "time.sleep(0.3)")
    machine.wait()
    assert machine.exchange()["exit"]["exit_code"] == 0
    assert not group.exists()


#: As root, which acts as sudo: hand the group to a user who cannot make one; then, as that user, use it.
DELEGATED = f"""
import codecs, os, signal, time
from pathlib import Path
from starburst.clouds.sky.agent import machine_cgroup
from starburst.runs.supervisor import cgroups
machine_cgroup.NAME = "starburst-test-" + str(os.getpid())
os.getuid, os.geteuid = lambda: {NOBODY}, lambda: {NOBODY}
assert machine_cgroup.enter()
codecs.lookup("ascii")  # its module may be where the user may not read
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
directory = Path("/a/1/0")
group = cgroups.group_of(directory)
assert group == str(machine_cgroup.group_of(directory)), group
pid = os.fork()
if pid == 0:
    cgroups.join(group)
    time.sleep(60)
while not (Path(group).exists() and "populated 1" in Path(group, "cgroup.events").read_text()):
    time.sleep(0.01)
assert cgroups.kill(Path(group))
assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
while cgroups.kill(Path(group)):
    time.sleep(0.01)
assert not Path(group).exists()
print(Path(group).parent)
"""


def test_a_user_is_given_a_group_by_sudo_and_needs_none_to_use_it(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not machine_cgroup.enter():
        pytest.skip("needs root, and control groups of version 2")
    sudo = tmp_path / "sudo"
    sudo.write_text('#!/bin/sh\n[ "$1" = -n ] && shift && exec "$@"\n')
    sudo.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", DELEGATED],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    group = Path(done.stdout.strip())
    assert group.stat().st_uid == NOBODY
    group.rmdir()


def test_without_sudo_or_version_2_tasks_have_no_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no sudo here
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    assert not machine_cgroup.enter()

    def mounted_nowhere() -> tuple[Path, str]:
        raise LookupError

    monkeypatch.setattr(cgroups, "mount", mounted_nowhere)
    assert not machine_cgroup.enter()
    assert machine_cgroup.group_of(tmp_path) is None
