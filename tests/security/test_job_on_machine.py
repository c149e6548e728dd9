"""What a job does to its files on a rented machine, against the real agent; words that could be options."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.access.answers import ANSWER_BYTES, parse_exchange
from starburst.clouds.sky.agent import task_control
from starburst.clouds.sky.agent.protocol import LOG_BYTES
from starburst.clouds.sky.runs.docker import container
from starburst.core.model.events import (
    RunEnd,
    RunEnded,
)
from starburst.domain.images import is_image
from starburst.domain.job import Workload
from starburst.domain.resources import Resources
from tests.clouds.sky.agent_machine import Machine, spec
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import Life, play, ready, run_of
from tests.translator.manifests import errors
from tests.translator.manifests import job as translated

A, B = "a/1/0", "b/1/0"


# --- a job's files on its machine: the real agent ---------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """One that keeps no jobs apart: there a job can write beside its own directory."""
    made = Machine(tmp_path / "home")
    made.keeps_nobody_apart()
    return made


def all_of(machine: Machine, **ask: Any) -> dict[str, Any]:
    """A whole answer, of two tasks."""
    ask.setdefault("look", {A: 0, B: 0})
    argv = [sys.executable, "-I", str(machine.agent), "exchange"]
    done = subprocess.run(
        argv, input=json.dumps(ask), capture_output=True, text=True, check=True, env=machine.env(), timeout=20
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


HOSTILE = {
    "exit.json is half a fact": "printf '{' >../exit.json",
    "exit.json is another's": "printf '{\"evil\":1}' >../exit.json",
    "exit.json is a directory": "mkdir ../exit.json",
    "exit.json is a pipe": "mkfifo ../exit.json",
    "exit.json is a link": "ln -s /dev/zero ../exit.json",
    "the log is a pipe": "rm ../log; mkfifo ../log",
    "the log is a device": "rm ../log; ln -s /dev/zero ../log",
    "the lock is a directory": "rm ../lock; mkdir ../lock",
    "spec.json is nonsense": "printf x >../spec.json",
    "stop.json is nonsense": "printf '[' >../stop.json",
    "cpus.json is nonsense": 'printf \'{"cpus":"all"}\' >../cpus.json',
}


@pytest.mark.processes
@pytest.mark.parametrize("trick", HOSTILE)
def test_what_a_job_does_to_its_files_hides_neither_its_end_nor_its_neighbours(
    machine: Machine, trick: str
) -> None:
    shell = f"{HOSTILE[trick]}; kill -9 $PPID"
    specs = {A: spec("sh", "-c", shell), B: spec("sh", "-c", "echo fine")}
    all_of(machine, lease_s=100, specs=specs, look={})
    machine.finish(A, B)
    for _ in range(100):  # what is left of the job is ended first
        answer = parse_exchange(all_of(machine), (A, B))
        if answer.tasks[A].over:
            break
    assert not answer.broken
    assert (answer.tasks[A].over, answer.tasks[A].exit) == (True, None)
    neighbour = answer.tasks[B].exit
    assert neighbour is not None
    assert (neighbour.exit_code, answer.tasks[B].log) == (0, b"fine\n")


@pytest.mark.processes
@pytest.mark.parametrize("spoiled", ["{}", '{"docker": null, "gpus": "all", "cpus": 1}'])
def test_a_task_whose_spec_another_job_has_spoiled_is_in_trouble_alone(
    machine: Machine, spoiled: str
) -> None:
    machine.exchange(lease_s=100, specs={A: spec("true"), B: spec("true")})
    (machine.home / "starburst" / "runs" / B / "spec.json").write_text(spoiled)
    answer = all_of(machine, starts=[B], lease_s=100)
    assert "spoiled" in answer["ranks"][B]["trouble"]
    assert (answer["ranks"][A]["known"], answer["ranks"][A]["trouble"], answer["renewed"]) == (True, "", True)


def test_nothing_lives_of_a_job_that_removed_its_directory_once_it_counts_as_over(machine: Machine) -> None:
    started = "until [ -e ~/starburst/runs/a/1/0/started.json ]; do sleep 0.05; done"
    shell = f"{started}; echo $$ >~/pid; rm -rf ~/starburst/runs/a; exec sleep 60"
    all_of(machine, lease_s=100, specs={A: {**spec("sh", "-c", shell), "cwd": "/"}}, look={})
    machine.start(A)
    while not (machine.home / "pid").exists() or (machine.home / "starburst" / "runs" / "a").exists():
        assert machine.runners(A)
        time.sleep(0.02)
    for _ in range(100):
        state = all_of(machine, stops={A: 0.0}, look={A: 0})["ranks"][A]
        if state["over"]:
            break
    assert state["over"]
    pid = int((machine.home / "pid").read_text())
    stat = Path(f"/proc/{pid}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
    for runner in machine.runners(A):
        os.kill(runner, signal.SIGKILL)


@pytest.mark.processes
def test_the_lease_is_renewed_last_and_one_that_nobody_can_read_has_passed(machine: Machine) -> None:
    assert not all_of(machine, lease_s=100, look={})["lapsed"]
    (machine.home / "starburst" / "lease.json").write_text('{"until": "never"}')
    assert all_of(machine, lease_s=100, look={})["lapsed"]


@pytest.mark.processes
def test_a_stop_that_a_job_wrote_itself_gives_it_no_longer_grace(machine: Machine) -> None:
    shell = (
        "trap '' TERM; printf '{\"grace_s\": 1e9}' >../stop.json; touch ../ready; while :; do sleep 0.1; done"
    )
    machine.exchange(lease_s=100, specs={A: spec("sh", "-c", shell)})
    machine.start(A)
    machine.until_exists(machine.home / "starburst" / "runs" / A / "ready")
    machine.exchange(stops={A: 0.1}, look={A: 0})
    machine.wait(A)
    assert machine.exchange(look={A: 0}, of=A)["exit"]["signal"] == signal.SIGKILL


@pytest.mark.parametrize("pid", [-1, 0, 1, True, "1", 10**30])
def test_a_job_cannot_have_the_agent_signal_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pid: Any
) -> None:
    signalled: list[int] = []

    def kill(number: int, _signal: int) -> None:
        if not -(2**31) < number < 2**31:
            raise OverflowError
        signalled.append(number)

    monkeypatch.setattr(task_control.os, "kill", kill)
    (tmp_path / "started.json").write_text(json.dumps({"shim": pid}))
    task_control.tell(str(tmp_path), 1.0)
    assert signalled == []


@pytest.mark.processes
def test_output_is_bounded_however_many_tasks_there_are(machine: Machine) -> None:
    size = LOG_BYTES
    specs = {name: spec("sh", "-c", f"head -c {size} /dev/urandom") for name in (A, B)}
    all_of(machine, lease_s=100, specs=specs, look={})
    machine.finish(A, B)
    answer = all_of(machine)
    assert len(json.dumps(answer)) < ANSWER_BYTES / 2
    parts = parse_exchange(answer, (A, B)).tasks
    assert [(len(part.log), part.more) for part in parts.values()] == [(size // 2, True)] * 2


# --- words of a job that could be options -----------------------------------------------------------------


@pytest.mark.parametrize(
    "image",
    [
        "--volume=/:/host",
        "-v=/:/host",
        "",
        "busybox --privileged",
        "busybox\n--privileged",
        "Busybox",
        "a//b",
        "../b",
        "b:" + "x" * 129,
        "x" * 600,
    ],
)
def test_what_is_no_name_of_an_image_is_refused(image: str) -> None:
    assert not is_image(image)


@pytest.mark.parametrize(
    "image",
    [
        "busybox",
        "me/train:2",
        "localhost:5000/local/busybox:entry",
        "nvcr.io/nvidia/pytorch:24.05-py3",
        "[::1]:5000/a_b/c__d-e.f",
        "ghcr.io/Org.example/x".lower(),
        "busybox@sha256:" + "0" * 64,
        "registry.example.com:5000/a/b:v1.2_3@sha256:" + "f" * 64,
    ],
)
def test_names_of_images_are_taken(image: str) -> None:
    assert is_image(image)


def test_no_word_of_a_job_stands_where_an_option_could() -> None:
    workload = Workload(("--privileged", "--pid=host"), image="busybox", working_dir="--rm")
    rest = container("n", workload, Resources(), {})["rest"]
    assert rest == ["--workdir=--rm", "--entrypoint=--privileged", "--", "busybox", "--pid=host"]


def test_a_manifest_with_such_an_image_is_refused_at_submission() -> None:
    told = errors(translated("CONTAINER/image", "--volume=/:/host"))
    assert "is no name of an image: write it as registry/repository:tag" in str(told)


def test_a_run_of_such_an_image_is_refused_before_any_machine_hears_of_it(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        made = run_of("a", 10)
        workload = Workload(made.workload.command, image="--volume=/:/host")
        await life.cloud.start(type(made)(made.job, 1, made.slots, workload))
        end = await life.heard(RunEnded)
        assert end.end is RunEnd.REFUSED
        assert "is no name of an image" in end.message
        assert not sky.vms[0].tasks

    play(tmp_path, story)
