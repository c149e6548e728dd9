"""What containers reach of their machine, as the agent asks root for it; the engine is a stand-in."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.agent import firewall, start_task
from starburst.clouds.sky.agent.containers import egress, group
from starburst.clouds.sky.agent.containers.engine import Engine
from starburst.clouds.sky.agent.separation import RootRefusedError
from starburst.runs.supervisor import cgroups
from tests.clouds.sky.container_task import ContainerTask


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerTask:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(cgroups, "mount", lambda: (tmp_path / "cgroup", "/"))
    return ContainerTask(tmp_path)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What root was asked for, with success."""
    requests: list[dict[str, Any]] = []

    def ask_root(verb: str, request: dict[str, Any]) -> dict[str, Any]:
        requests.append({"verb": verb, **request})
        return {"why": ""}

    monkeypatch.setattr(egress, "ask_root", ask_root)
    return requests


def parent_of(task: ContainerTask) -> list[str]:
    call = task.engine.called("create")
    return [call[at + 1] for at, word in enumerate(call) if word == "--cgroup-parent"]


@pytest.mark.parametrize(
    ("driver", "parent", "name"),
    [
        ("cgroupfs", "/starburst-containers", "starburst-containers"),
        ("systemd", "starburst.slice", "starburst.slice"),
    ],
)
def test_a_container_is_made_in_the_group_that_the_firewall_knows(
    task: ContainerTask, asked: list[dict[str, Any]], driver: str, parent: str, name: str
) -> None:
    task.engine.put("info", json.dumps({"CgroupVersion": "2", "CgroupDriver": driver}))
    assert task.run() == 0
    assert parent_of(task) == [parent]
    place = str(task.home / "cgroup" / name)
    closed = {"verb": "close", "parent": parent, "directory": place, "match": ["--path", name]}
    assert asked
    assert all(each == closed for each in asked), "a slow run asks for it again"
    assert egress.why_open() == ""


def test_with_groups_of_version_1_it_is_the_class_of_its_packets(
    task: ContainerTask, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "net_cls", lambda: task.home / "net_cls")
    task.engine.put("info", json.dumps({"CgroupVersion": "1", "CgroupDriver": "cgroupfs"}))
    assert task.run() == 0
    assert asked[0]["match"] == ["--cgroup", "0x5b0001"]
    found = group.container_group(Engine("docker", ("docker",)))
    (task.home / "net_cls").mkdir()
    group.make(found)
    assert (found.directory / "net_cls.classid").read_text() == str(0x5B0001)


def test_a_machine_that_cannot_tell_containers_apart_runs_them_and_says_so(
    task: ContainerTask, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "net_cls", lambda: None)
    task.engine.put("info", json.dumps({"CgroupDriver": "cgroupfs"}))
    assert task.run() == 0
    assert (parent_of(task), asked) == ([], [])
    assert egress.why_open() == "containers: its control groups are of version 1, without net_cls"


def test_a_machine_whose_user_is_not_root_says_so_until_it_can(
    task: ContainerTask, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_verb: str, _request: dict[str, Any]) -> dict[str, Any]:
        raise RootRefusedError("sudo: a password is required")

    task.engine.put("info", json.dumps({"CgroupVersion": "2", "CgroupDriver": "systemd"}))
    with monkeypatch.context() as patch:
        patch.setattr(egress, "ask_root", refuse)
        assert task.run() == 0
    assert parent_of(task) == []
    assert egress.why_open() == "containers: sudo: a password is required"
    task.engine.put("said", "")
    assert task.run() == 0
    assert parent_of(task) == ["starburst.slice"]
    assert egress.why_open() == ""


def test_what_begins_to_listen_later_is_closed_once(
    task: ContainerTask, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = {22}
    monkeypatch.setattr(firewall, "listening", lambda: frozenset(ports))
    task.engine.put("info", json.dumps({"CgroupVersion": "2", "CgroupDriver": "cgroupfs"}))
    closed = egress.Egress(Engine("docker", ("docker",)))
    assert closed.close() == "/starburst-containers"
    closed.close_again()
    assert len(asked) == 1
    ports.add(8266)
    closed.close_again()
    closed.close_again()
    assert len(asked) == 2


def test_what_a_container_listens_on_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "id").mkdir()
    (tmp_path / "id" / "cgroup.procs").write_text(f"{os.getpid()}\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert port in firewall.listening()
        assert port not in firewall.listening(group.sockets(tmp_path))


def test_a_machine_without_an_engine_starts_no_container_and_one_with_an_engine_does(
    task: ContainerTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert start_task.why_no_containers() == ""
    task.engine.put("dead", "")
    assert "Cannot connect to the Docker daemon" in start_task.why_no_containers()
    monkeypatch.setenv("PATH", str(task.home))
    assert start_task.why_no_containers() == "the machine has no container engine, neither docker nor podman"
