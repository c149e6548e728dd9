"""A task's log is bounded on its machine, however it runs, and comes home with its end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.runs.docker import container
from starburst.clouds.sky.runs.logs import OVER, TaskLogs
from starburst.core.model.events import RunEnded
from starburst.domain.job import Workload
from starburst.domain.resources import Resources
from starburst.runs.supervisor.log_pump import MAX_LOG, TAIL
from tests.clouds.sky.agent_machine import NAME, Machine, spec
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.fake_engine import FakeEngine
from tests.clouds.sky.life import Life, play, ready, run_of

pytestmark = pytest.mark.processes

MOST = 1000
TALKS = "seq 1 50000; echo the last words >&2; exit 3"
LOUD = len("".join(f"{number}\n" for number in range(1, 50001)))


def in_container(machine: Machine) -> dict[str, Any]:
    engine = FakeEngine(machine.home / "bin")
    engine.runs(TALKS.removesuffix("; exit 3"), 3)
    return spec(docker=container("sb-a-1-0", Workload(("train",), image="me/train:2"), Resources(), {}))


def together(machine: Machine) -> dict[str, Any]:
    machine.keeps_nobody_apart()
    return spec("sh", "-c", TALKS)


def apart(machine: Machine) -> dict[str, Any]:
    if os.geteuid() != 0:
        pytest.skip("only root keeps tasks apart without sudo")
    return spec("sh", "-c", TALKS)


@pytest.mark.parametrize("how", [in_container, together, apart])
def test_no_task_writes_more_than_its_log_may_have_and_its_last_words_are_kept(
    machine: Machine, how: Any
) -> None:
    task = {**how(machine), "max_log": MOST}
    machine.exchange(lease_s=100, specs={NAME: task})
    machine.finish()
    state = machine.exchange(look={NAME: None})
    assert state["exit"]["exit_code"] == 3
    log = (machine.dir / "log").read_bytes()
    assert LOUD > MOST + OVER >= len(log) > MOST + TAIL
    assert log.startswith(b"1\n2\n3\n")
    assert log.endswith(b"50000\nthe last words\n")
    assert f"max_log is reached, {MOST} bytes".encode() in log


def test_what_a_machine_kept_of_a_log_comes_home_whole(machine: Machine, tmp_path: Path) -> None:
    machine.keeps_nobody_apart()
    machine.exchange(lease_s=100, specs={NAME: {**spec("sh", "-c", TALKS), "max_log": MOST}})
    machine.finish()
    there, home = machine.dir / "log", tmp_path / "log"
    TaskLogs(tmp_path, MOST + OVER).write(home, 0, there.read_bytes())
    assert home.read_bytes() == there.read_bytes()


@pytest.mark.parametrize("how", [in_container, together, apart])
def test_a_task_that_comes_without_a_bound_has_one(machine: Machine, how: Any) -> None:
    machine.exchange(lease_s=100, specs={NAME: how(machine)})
    machine.finish()
    assert json.loads((machine.dir / "spec.json").read_text())["max_log"] == MAX_LOG


def test_the_bound_of_the_home_is_sent_to_machines(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("a", 10))
        await life.heard(RunEnded)
        assert sky.vms[0].tasks["a/1/0"].spec["max_log"] == MAX_LOG

    play(tmp_path, story)
