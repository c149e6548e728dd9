"""Tasks with an image, and values of Secrets, by the agent as on a rented machine."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress

import pytest

from starburst.clouds.sky.runs.docker import container
from starburst.domain.job import Workload
from starburst.domain.resources import Resources
from tests.clouds.sky.agent_machine import NAME, Machine, spec, text
from tests.clouds.sky.fake_engine import FakeEngine

pytestmark = pytest.mark.processes

ENV = {"PLAIN": "yes", "KEY": "x\ny"}


def test_a_task_with_an_image_runs_through_the_engine_and_its_container_is_removed(machine: Machine) -> None:
    engine = FakeEngine(machine.home / "bin")
    engine.runs('echo "in $KEY $TOKEN"', 3)
    machine.has_gpus(3)
    made = container(
        "sb-a-1-0", Workload(("train", "@DIR@ $x"), image="me/train:2"), Resources.of(1, 2, 4), ENV
    )
    boxed = {**spec(gpus=1, cpus=0, docker=made), "secrets": {"TOKEN": "s3cret"}}
    login = {"registry": "r.io", "username": "ann", "password": "hush3d"}
    state = machine.exchange(lease_s=100, specs={NAME: {**boxed, "logins": [login]}})
    assert (machine.dir / "logins.json").stat().st_mode & 0o077 == 0
    machine.finish()
    state = machine.exchange()
    assert (state["exit"]["exit_code"], text(state)) == (3, "in x\ny s3cret\n")
    assert (state["started"], state["over"], state["waits"]) == (True, True, "")
    created = "|".join(engine.called("create"))
    assert '|--gpus|"device=0"|--entrypoint=train|--|me/train:2|@DIR@ $x' in created
    assert f"|--env-file|{machine.dir}/env|-v|{machine.home}/starburst/checkpoints/a:" in created
    assert f"|--env-file|{machine.dir}/secrets.env|-e|KEY|" in created
    assert ["rm", "-f", "-v", "sb-a-1-0"] in engine.said, "with the volumes that its image declares"
    assert (machine.dir / "env").read_text().startswith("PLAIN=yes\n")
    assert (machine.dir / "env").stat().st_mode & 0o077 == 0
    left = [path for path in machine.home.rglob("*") if path.is_file() and path.name != "log"]
    assert not any(word in path.read_bytes() for path in left for word in (b"s3cret", b"hush3d"))


def test_a_task_that_waits_for_its_image_has_not_started_and_says_why(machine: Machine) -> None:
    engine = FakeEngine(machine.home / "bin")
    (machine.home / "bin" / "image").unlink()
    engine.put("pull", "sleep 60")
    made = container("sb-a-1-0", Workload(("train",), image="me/train:2"), Resources(), {})
    machine.exchange(lease_s=100, specs={NAME: spec(docker=made)})
    machine.start()
    state = machine.until("waits")
    assert (state["waits"], state["started"]) == ('Pulling image "me/train:2"', False)
    machine.exchange(stops={NAME: 5.0})
    state = machine.until("over")
    assert state["exit"]["ended_by"] == "stop"


def test_a_login_is_gone_with_its_task_also_if_all_of_it_was_killed_in_its_pull(machine: Machine) -> None:
    engine = FakeEngine(machine.home / "bin")
    (machine.home / "bin" / "image").unlink()
    engine.put("pull", "sleep 60")
    made = container("sb-a-1-0", Workload(("train",), image="me/train:2"), Resources(), {})
    login = {"registry": "r.io", "username": "ann", "password": "hush3d"}
    machine.exchange(lease_s=100, specs={NAME: {**spec(docker=made), "logins": [login]}})
    machine.start()
    held = machine.dir / "registry" / "config.json"
    machine.until_exists(held)
    session = json.loads((machine.dir / "started.json").read_text())["shim"]
    for pid in (*machine.runners(), session):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    machine.until("over")
    assert not held.exists()


def test_how_a_container_ended_is_in_its_exit(machine: Machine) -> None:
    engine = FakeEngine(machine.home / "bin")
    engine.runs("true", 137, oom=True)
    made = container("sb-a-1-0", Workload(("train",), image="me/train:2"), Resources(), {})
    machine.exchange(lease_s=100, specs={NAME: spec(docker=made)})
    machine.finish()
    exit_ = machine.exchange()["exit"]
    assert (exit_["exit_code"], exit_["message"]) == (137, "OOMKilled: a process ran out of memory")


def test_no_variable_of_a_job_is_one_of_what_makes_its_container(machine: Machine) -> None:
    engine = FakeEngine(machine.home / "bin")
    engine.runs('echo "in $LD_AUDIT"; unset LD_AUDIT')
    made = container("sb-a-1-0", Workload(("train",), image="me/train:2"), Resources(), {})
    boxed = {**spec(docker=made), "secrets": {"LD_AUDIT": "/checkpoints/theirs.so"}}
    machine.exchange(lease_s=100, specs={NAME: boxed})
    machine.finish()
    assert text(machine.exchange()) == "in /checkpoints/theirs.so\n"  # and the loader says nothing


def test_a_variable_that_can_only_be_handed_on_by_the_client_is_none_that_it_reads(machine: Machine) -> None:
    engine = FakeEngine(machine.home / "bin")
    env = {"LD_PRELOAD": "/checkpoints/theirs.so\n"}
    made = container("sb-a-1-0", Workload(("train",), image="me/train:2"), Resources(), env)
    machine.exchange(lease_s=100, specs={NAME: spec(docker=made)})
    machine.finish()
    state = machine.exchange()
    why = "a value with line ends cannot be given as LD_PRELOAD; choose another name"
    assert (state["exit"]["ended_by"], state["exit"]["message"], text(state)) == (
        "refusal",
        f"CreateContainerConfigError: {why}",
        "",
    )
    assert "create" not in [call[0] for call in engine.said]


def test_values_of_secrets_are_in_a_file_of_their_own_until_the_task_starts(machine: Machine) -> None:
    machine.exchange(
        lease_s=100, specs={NAME: {**spec("sh", "-c", 'echo "in $KEY"'), "secrets": {"KEY": "x\ny"}}}
    )
    kept = machine.dir / "secrets.json"
    assert kept.stat().st_mode & 0o077 == 0
    assert "x\\ny" not in (machine.dir / "spec.json").read_text()
    machine.finish()
    assert text(machine.exchange()) == "in x\ny\n"
    assert not kept.exists()
    left = [path for path in machine.home.rglob("*") if path.is_file() and path.name != "log"]
    assert not any(b"x\\ny" in path.read_bytes() for path in left)


def test_values_of_secrets_of_a_task_that_was_stopped_before_it_began_are_gone(machine: Machine) -> None:
    machine.exchange(lease_s=100, specs={NAME: {**spec("true"), "secrets": {"KEY": "x"}}})
    assert machine.exchange(stops={NAME: 1.0})["over"]
    assert not (machine.dir / "secrets.json").exists()
