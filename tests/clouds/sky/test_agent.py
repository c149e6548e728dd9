"""The agent, as on a rented machine: real processes under a home directory of their own (15 s in all)."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from starburst.clouds.sky.agent.protocol import LOG_BYTES
from starburst.clouds.sky.agent.task_account import MAX_FILES
from tests.clouds.sky.agent_machine import NAME, Machine, spec, text

pytestmark = pytest.mark.processes

ENV = {"PLAIN": "yes", "KEY": "x\ny"}


def test_a_task_runs_with_its_environment_gpus_and_directories_and_tells_how_it_ended(
    machine: Machine,
) -> None:
    own = "$WHO $CUDA_VISIBLE_DEVICES $STARBURST_CHECKPOINT_DIR"
    shell = f'echo "{own}"; pwd; ls "$STARBURST_CHECKPOINT_DIR"; exit 3'
    machine.has_gpus(4)
    state = machine.exchange(lease_s=100, specs={NAME: spec("sh", "-c", shell, gpus=2, WHO="me")})
    assert not state["began"]
    machine.finish()
    state = machine.exchange()
    assert (state["over"], state["exit"]["exit_code"], state["exit"]["ended_by"]) == (True, 3, "itself")
    assert text(state) == f"me 0,1 {machine.home}/starburst/checkpoints/a\n{machine.dir}/work\n"


def test_a_task_without_gpus_sees_none(machine: Machine) -> None:
    machine.exchange(lease_s=100, specs={NAME: spec("sh", "-c", 'echo "[$CUDA_VISIBLE_DEVICES]"')})
    machine.has_gpus(2)
    machine.finish()
    assert text(machine.exchange()) == "[]\n"


def test_what_is_started_by_several_exchanges_runs_once(machine: Machine) -> None:
    machine.exchange(lease_s=100, specs={NAME: spec("sh", "-c", "echo once; sleep 0.3")})
    argv, ask = machine.argv("exchange"), json.dumps({"starts": [NAME]})
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    exchanges = [subprocess.Popen(argv, env=machine.env(), text=True, **pipes) for _ in range(3)]
    for process in exchanges:
        process.communicate(ask)
    machine.finish()
    assert text(machine.exchange()) == "once\n"


def test_no_gpu_is_given_twice_and_one_that_is_given_back_is_given_again(machine: Machine) -> None:
    machine.has_gpus(2)
    names = ["a/1/0", "b/1/0", "c/1/0"]
    shell = "echo $CUDA_VISIBLE_DEVICES; until [ -e go ]; do sleep 0.02; done"
    specs = {name: spec("sh", "-c", shell, gpus=1) for name in names}
    machine.exchange(lease_s=100, specs=specs, starts=names, look=dict.fromkeys(names))
    runs = machine.home / "starburst" / "runs"
    told = machine.exchange(starts=["c/1/0"], look={"c/1/0": 0}, of="c/1/0")
    assert (told["began"], told["trouble"]) == (False, "0 of 2 GPUs are free, and 1 are needed")
    (runs / "b/1/0" / "work" / "go").touch()
    machine.wait("b/1/0")
    assert machine.exchange(starts=["c/1/0"], look={"c/1/0": 0}, of="c/1/0")["began"]
    for name in ("a/1/0", "c/1/0"):
        (runs / name / "work" / "go").touch()
        machine.wait(name)
    given = [(runs / name / "log").read_text() for name in names]
    assert given == ["0\n", "1\n", "1\n"]


def test_a_gpu_that_a_task_of_an_older_version_has_is_not_given(machine: Machine) -> None:
    machine.has_gpus(2)
    older = machine.home / "starburst" / "runs" / "old" / "1" / "0"
    older.mkdir(parents=True)
    (older / "spec.json").write_text(json.dumps({"env": {"CUDA_VISIBLE_DEVICES": "0"}, "command": ["x"]}))
    with open(older / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        machine.exchange(lease_s=100, specs={NAME: spec("sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES", gpus=1)})
        machine.finish()
    assert text(machine.exchange()) == "1\n"


def test_a_driver_that_does_not_answer_is_said_and_tasks_without_gpus_run(machine: Machine) -> None:
    machine.program("nvidia-smi", "echo 'Failed to initialize NVML'; exit 18")
    specs = {NAME: spec("true", gpus=1), "b/1/0": spec("true")}
    state = machine.exchange(lease_s=100, specs=specs, starts=[NAME])
    assert (state["began"], state["trouble"]) == (False, "nvidia-smi failed: Failed to initialize NVML\n")
    machine.finish("b/1/0")


def test_a_task_whose_runner_dies_before_it_begins_says_so_and_is_tried_again(machine: Machine) -> None:
    checkpoints = machine.home / "starburst" / "checkpoints"
    machine.exchange(lease_s=100, specs={NAME: spec("true")})
    checkpoints.touch()  # in place of the directory
    machine.finish()
    state = machine.exchange(starts=[NAME])
    assert "its runner died before it began: " in state["trouble"]
    assert "File exists" in state["trouble"] or "Not a directory" in state["trouble"]
    machine.wait()
    checkpoints.unlink()
    machine.finish()
    assert machine.exchange()["exit"]["exit_code"] == 0


def test_a_task_that_is_stopped_gets_sigterm_and_its_grace(machine: Machine) -> None:
    machine.exchange(
        lease_s=100,
        specs={
            NAME: spec("sh", "-c", "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
        },
    )
    machine.start()
    machine.until_it_says("ready")
    machine.exchange(stops={NAME: 10.0})
    state = machine.until("over")
    assert (state["exit"]["ended_by"], text(state).split()[-1]) == ("stop", "saved")


def test_a_task_that_does_not_mind_sigterm_is_killed_when_its_grace_is_over(machine: Machine) -> None:
    machine.exchange(
        lease_s=100, specs={NAME: spec("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done")}
    )
    machine.start()
    machine.until_it_says("ready")
    machine.exchange(stops={NAME: 0.2})
    assert machine.until("over")["exit"]["signal"] == signal.SIGKILL


def test_no_task_begins_while_the_machine_cannot_be_closed_to_it(machine: Machine) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    machine.keeps_nobody_apart("")  # as was found out: it does keep tasks apart
    machine.program("iptables-restore", "echo 'Another app holds the lock' >&2; exit 4")
    machine.exchange(lease_s=100, specs={NAME: spec("true")})
    machine.finish()
    state = machine.exchange(starts=[NAME])
    assert state["trouble"].endswith("closed to the job: iptables: Another app holds the lock")
    machine.wait()
    machine.program("iptables-restore", "exit 0")
    machine.finish()
    assert machine.exchange()["exit"]["exit_code"] == 0


def test_a_task_stopped_before_it_began_never_begins(machine: Machine) -> None:
    state = machine.exchange(lease_s=100, specs={NAME: spec("sh", "-c", "echo ran")}, stops={NAME: 5.0})
    assert (state["over"], state["exit"]["ended_by"]) == (True, "stop")
    machine.finish()
    assert text(machine.exchange()) == ""


def test_a_task_whose_supervisors_were_killed_is_over_without_an_exit_and_nothing_of_it_lives(
    machine: Machine,
) -> None:
    machine.keeps_nobody_apart()
    machine.exchange(
        lease_s=100, specs={NAME: spec("sh", "-c", "env -i setsid sleep 60 & echo $!; sleep 60")}
    )
    machine.start()
    machine.until("started")
    while not text(machine.exchange()):
        time.sleep(0.02)
    shim_pid = json.loads((machine.dir / "started.json").read_text())["shim"]
    for pid in (*machine.runners(), shim_pid):
        os.kill(pid, signal.SIGKILL)
    state = machine.until("over")
    assert state["exit"] is None
    stray = Path(f"/proc/{text(state).strip()}/stat")
    assert not stray.exists() or stray.read_text().rpartition(")")[2].split()[0] == "Z"


def test_when_the_lease_passes_the_tasks_end(machine: Machine) -> None:
    machine.exchange(lease_s=1.5, specs={NAME: spec("sleep", "60")})
    machine.finish()
    assert machine.exchange()["exit"]["ended_by"] == "lease"
    machine.exchange(lease_s=100)
    until = json.loads((machine.home / "starburst" / "lease.json").read_text())["until"]
    assert until < time.time(), "a lease that has passed stays so"


def test_tasks_have_cpus_of_their_own_while_there_are_enough(machine: Machine) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    shell = "grep Cpus_allowed_list /proc/self/status | cut -f2; sleep 1"
    names = ["a/1/0", "b/1/0"]
    machine.exchange(lease_s=100, specs={name: spec("sh", "-c", shell, cpus=0.5) for name in names})
    machine.finish(*names)
    seen = [(machine.home / "starburst" / "runs" / name / "log").read_text().strip() for name in names]
    assert len(set(seen)) == 2
    assert all(cpu.isdigit() for cpu in seen)


def test_a_crash_leaves_no_core_file_and_many_files_may_be_open(machine: Machine) -> None:
    machine.keeps_nobody_apart()
    machine.exchange(lease_s=100, specs={NAME: spec("sh", "-c", "ulimit -c; ulimit -Hc; ulimit -n")})
    machine.finish()
    *cores, files = map(int, text(machine.exchange()).split())
    assert cores == [0, 0]
    assert files in (MAX_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]), "or they cannot be raised"


def test_output_comes_in_parts_and_says_when_there_is_more(machine: Machine) -> None:
    machine.exchange(lease_s=100, specs={NAME: spec("sh", "-c", f"head -c {LOG_BYTES + 5} /dev/zero")})
    machine.finish()
    first = machine.exchange()
    assert (len(text(first)), first["more"]) == (LOG_BYTES, True)
    rest = machine.exchange(look={NAME: LOG_BYTES})
    assert (len(text(rest)), rest["more"]) == (5, False)
