"""Tasks find each other: by variables, by a hosts file, and over a socket."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from starburst.runs.peers import FIRST_PORT, PORTS, master_port, peer_variables
from tests.runs.allreduce import ALL_REDUCE
from tests.runs.harness import PLACES, a_run, a_runner, log, watching


def test_a_task_of_a_gang_knows_the_others() -> None:
    run = a_run("true", gpus=(2, 2))
    assert peer_variables(run, 1, ["10.0.0.1", "10.0.0.2"], 20_001) == {
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "20001",
        "WORLD_SIZE": "2",
        "RANK": "1",
        "LOCAL_RANK": "0",
        "NNODES": "2",
        "NODE_RANK": "1",
        "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2",
        "SKYPILOT_NODE_RANK": "1",
        "SKYPILOT_NUM_NODES": "2",
        "SKYPILOT_NUM_GPUS_PER_NODE": "2",
        "PET_MASTER_PORT": "20001",
    }


def test_a_program_of_one_task_is_not_told_of_others() -> None:
    found = peer_variables(a_run("true", gpus=(4,)), 0, ["10.0.0.1"], 20_001)
    assert found.pop("PET_MASTER_PORT") == "20001", "beside another torchrun on the machine"
    assert {name.partition("_")[0] for name in found} == {"SKYPILOT"}


def test_the_last_task_of_an_elastic_gang_is_told_that_it_is_alone() -> None:
    run = a_run("true", gpus=(2, 2))
    found = peer_variables(replace(run, slots=run.slots[:1]), 0, ["10.0.0.1"], 20_001)
    assert (found["NNODES"], found["WORLD_SIZE"], found["MASTER_ADDR"]) == ("1", "1", "10.0.0.1")


def test_runs_get_different_ports_and_the_same_run_the_same() -> None:
    run, other = a_run("true", gpus=(0, 0)), a_run("true", gpus=(0, 0), job_id="other")
    port = master_port(run)
    assert FIRST_PORT <= port < FIRST_PORT + PORTS
    assert master_port(run) == port != master_port(other)
    assert master_port(run, taken={port}) not in (port, 0)
    assert master_port(run, is_free=lambda number: number % PORTS == 7) % PORTS == 7


@pytest.mark.processes
def test_tasks_of_a_gang_reduce_over_a_socket_and_read_the_hosts_file(root: Path) -> None:
    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            runner.start(a_run(sys.executable, "-c", ALL_REDUCE, gpus=(1, 1, 1)), PLACES)
            assert (await reports.ended()).exit_code == 0

    asyncio.run(main())
    assert {log(root, rank=rank).splitlines()[-1] for rank in range(3)} == {"sum 6 of 3 hosts"}


@pytest.mark.processes
def test_the_users_own_values_win(root: Path) -> None:
    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            run = a_run(
                "sh", "-c", "echo $MASTER_ADDR $RANK $WORLD_SIZE", gpus=(0, 0), env={"MASTER_ADDR": "mine"}
            )
            runner.start(run, PLACES)
            assert (await reports.ended()).exit_code == 0

    asyncio.run(main())
    assert [log(root, rank=rank) for rank in (0, 1)] == ["mine 0 2\n", "mine 1 2\n"]


@pytest.mark.processes
def test_each_machine_of_an_instance_has_gpus_of_its_own(root: Path) -> None:
    async def main() -> None:
        runner = a_runner(root)
        async with watching(runner) as reports:
            run = a_run("sh", "-c", "echo $CUDA_VISIBLE_DEVICES", gpus=(2, 2), where="n2")
            apart = replace(run, slots=tuple(replace(slot, node=slot.rank) for slot in run.slots))
            runner.start(apart, PLACES)
            assert (await reports.ended()).exit_code == 0

    asyncio.run(main())
    assert [log(root, rank=rank) for rank in (0, 1)] == ["0,1\n", "0,1\n"]
