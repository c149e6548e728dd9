"""What listens on a rented machine, and what of it a task with an account of its own can reach."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from starburst.clouds.sky.agent import firewall, run_task


class Supervisor:
    """A process that is looked at so many times before it ends."""

    def __init__(self, looks: int) -> None:
        self.left = looks
        self.limits: list[float | None] = []

    def wait(self, timeout: float | None = None) -> int:
        self.limits.append(timeout)
        self.left -= 1
        if self.left < 0:
            return 0
        raise subprocess.TimeoutExpired("supervise", timeout or 0)


@pytest.fixture
def closings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []
    monkeypatch.setattr(firewall, "close", lambda: done.append("closed") or "")
    return done


def test_ports_that_open_while_a_task_runs_apart_are_closed_to_it_once(
    monkeypatch: pytest.MonkeyPatch, closings: list[str], tmp_path: Path
) -> None:
    seen = iter([{22}, {22}, {22, 8266}, {22, 8266}, {22}])
    monkeypatch.setattr(firewall, "listening", lambda _theirs=(): frozenset(next(seen)))
    supervisor = Supervisor(4)
    run_task.attend(cast("Any", supervisor), str(tmp_path), apart=True)
    assert closings == ["closed"]
    assert supervisor.limits == [run_task.LISTEN_S] * 5


def test_a_task_that_shares_the_machine_is_only_waited_for(closings: list[str], tmp_path: Path) -> None:
    supervisor = Supervisor(0)
    run_task.attend(cast("Any", supervisor), str(tmp_path), apart=False)
    assert (closings, supervisor.limits) == ([], [None])


def test_the_metadata_of_each_cloud_is_closed_and_name_servers_at_its_address_are_not() -> None:
    closed = {address for addresses in firewall.METADATA.values() for address in addresses}
    assert {"169.254.169.254", "fd00:ec2::254", "fd20:ce::254"} <= closed
    assert "168.63.129.16" in closed  # Azure's WireServer
    assert all("! --dport 53" in rule for rule in firewall.rules(tuple(closed), frozenset()))


def test_ports_are_closed_in_as_many_rules_as_iptables_needs() -> None:
    ports = frozenset(range(100, 100 + firewall.PORTS_A_RULE + 1))
    chain = firewall.rules(("192.0.2.1",), ports)
    assert chain[0] == "-A STARBURST -d 192.0.2.1 -p tcp ! --dport 53 -j REJECT --reject-with tcp-reset"
    assert [len(rule.split("--dports ")[1].split()[0].split(",")) for rule in chain[1:]] == [15, 1]
