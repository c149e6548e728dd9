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

from starburst.clouds.sky.access.agent_archive import ROOT
from starburst.clouds.sky.agent import machine_cgroup
from starburst.runs.supervisor import cgroups
from tests.clouds.sky.agent_machine import Machine, spec, text
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
    made = Machine(tmp_path / "home", NAME)
    made.keeps_nobody_apart()
    return made


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
directory = Path("/a/1/0")
pid = os.fork()
if pid == 0:
    assert machine_cgroup.enter(directory)
    time.sleep(60)
group = machine_cgroup.group_of(directory)
while not (group.exists() and "populated 1" in (group / "cgroup.events").read_text()):
    time.sleep(0.01)
codecs.lookup("ascii")  # its module may be where the user may not read
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
assert cgroups.kill(group)
assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
while cgroups.kill(group):
    time.sleep(0.01)
assert not group.exists()
print(group.parent)
"""


def can_enter(directory: Path) -> bool:
    """Whether this machine has groups, tried by a process that ends."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if machine_cgroup.enter(directory) else 1)
    able = os.waitpid(pid, 0)[1] == 0
    group = machine_cgroup.group_of(directory)
    if group is not None:
        cgroups.remove(str(group))
    return able


def test_limits_are_set_where_controllers_are_to_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a stand-in for the hierarchy: this machine may have its controllers in version 1."""
    monkeypatch.setattr(cgroups, "mount", lambda: (tmp_path, "/"))
    directory = Path("/a/1/0")
    group = machine_cgroup.group_of(directory)
    assert group is not None
    group.mkdir(parents=True)
    for name in ("cgroup.kill", "cpu.max", "memory.max", "memory.oom.group"):
        (group / name).touch()
    assert machine_cgroup.make(directory, os.getuid(), 1.5, 64) == str(group)
    assert (group / "cpu.max").read_text() == "150000 100000"
    assert (group / "memory.max").read_text() == str(64 << 20)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"
    assert (group.parent / "cgroup.subtree_control").read_text() == "+memory"
    machine_cgroup.make(directory, os.getuid(), 0, 0)
    assert (group / "cpu.max").read_text() == (group / "memory.max").read_text() == "max"


def test_a_user_is_given_a_group_by_sudo_and_needs_none_to_use_it(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not can_enter(tmp_path):
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
    assert not machine_cgroup.enter(tmp_path)

    def mounted_nowhere() -> tuple[Path, str]:
        raise LookupError

    monkeypatch.setattr(cgroups, "mount", mounted_nowhere)
    assert not machine_cgroup.enter(tmp_path)
    assert machine_cgroup.group_of(tmp_path) is None
