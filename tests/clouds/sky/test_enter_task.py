"""A person's command beside a task of a machine has what the task has, and ends with its own code."""

from __future__ import annotations

import os
import subprocess

import pytest

from starburst.clouds.sky.access.ports import Access, SkyUnreachableError
from starburst.clouds.sky.journal import FileJournal
from starburst.clouds.sky.machines.entry import MachineEntry, save_machine
from starburst.clouds.sky.machines.naming import Naming
from starburst.clouds.sky.runs.docker import container
from starburst.clouds.sky.runs.entry import RankEntry, RunEntry, save_run
from starburst.clouds.sky.runs.whereabouts import login_of
from starburst.domain.job import Workload
from starburst.domain.resources import Resources
from tests.clouds.sky.agent_machine import NAME, Machine, spec
from tests.clouds.sky.fake_engine import FakeEngine

pytestmark = pytest.mark.processes

SAYS = ("sh", "-c", 'echo "$COLOUR:$CUDA_VISIBLE_DEVICES:$(id -u)"; pwd; exit 7')


def enter(machine: Machine, *command: str) -> subprocess.CompletedProcess[str]:
    argv = machine.argv("enter", NAME, *command)
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=machine.env())


@pytest.mark.parametrize(
    "apart", [False, pytest.param(True, marks=pytest.mark.skipif(os.geteuid() != 0, reason="root"))]
)
def test_it_has_the_variables_the_gpus_the_directory_and_the_account_of_the_task(
    machine: Machine, apart: bool
) -> None:
    machine.keeps_nobody_apart("" if apart else "it has no sudo")
    machine.has_gpus(3)
    machine.exchange(
        lease_s=100, specs={NAME: spec("sh", "-c", "id -u; echo up; sleep 600", gpus=2, COLOUR="blue")}
    )
    machine.start()
    machine.until_it_says("up")
    done = enter(machine, *SAYS)
    assert done.returncode == 7, done.stderr
    colour, gpus, uid = done.stdout.splitlines()[0].split(":")
    assert (colour, gpus) == ("blue", "0,1")
    assert (int(uid) != os.getuid()) == apart
    assert done.stdout.splitlines()[1].endswith(f"{NAME}/work")
    missing = enter(machine, "/no/such")
    assert (missing.returncode, missing.stderr) == (125, "error: /no/such: No such file or directory\n")
    machine.exchange(stops={NAME: 0.0})
    machine.wait()
    over = enter(machine, "true")
    assert (over.returncode, over.stderr) == (125, "error: it does not run now\n")


def test_in_a_container_it_is_the_engines(machine: Machine) -> None:
    engine = FakeEngine(machine.home / "bin")
    engine.put("exec", 'echo "inside"; exit 3')
    engine.runs(f'while [ ! -e "{machine.home}/stop" ]; do sleep 0.05; done')
    made = container("sb-a-1-0", Workload(("train",), image="me/train:2"), Resources.of(0, 2, 4), {})
    machine.exchange(lease_s=100, specs={NAME: {**spec(docker=made), "secrets": {}, "logins": []}})
    machine.start()
    machine.until("started")
    machine.until_exists(engine.bin / "said")
    done = enter(machine, "ls", "-l")
    while done.returncode == 125:  # its container does not run yet
        assert done.stderr == "error: its container does not run yet\n"
        done = enter(machine, "ls", "-l")
    assert (done.returncode, done.stdout) == (3, "inside\n")
    assert engine.called("exec") == ["exec", "-i", "sb-a-1-0", "ls", "-l"]
    (machine.home / "stop").touch()
    machine.wait()


def test_where_a_task_is_comes_from_the_journal(machine: Machine) -> None:
    journal, naming = FileJournal(machine.home / "notes"), Naming("starburst", "ours")
    head, worker = Access("10.0.0.1", "ubuntu", "key"), Access("10.0.0.2", "ubuntu", "key")
    up = MachineEntry("i-000001", "m", False, 1.0, access=head, ready=True, nodes=2, workers=[worker])
    save_machine(journal, up)
    save_run(journal, RunEntry("a", 2, [RankEntry("i-000001"), RankEntry("i-000001", node=1)]))
    found = [login_of(journal, naming, "a", 2, rank) for rank in (0, 1)]
    assert [(one.access.host, one.task) for one in found] == [("10.0.0.1", "a/2/0"), ("10.0.0.2", "a/2/1")]
    assert found[1].node == f"{found[0].node}-node1"
    up.ended_at = 5.0
    save_machine(journal, up)
    for job, rank in (("a", 0), ("a", 2), ("b", 0)):
        with pytest.raises(SkyUnreachableError, match="its machine is not known, or is gone"):
            login_of(journal, naming, job, 2, rank)
