"""The keeper and the switch: looked at by every exchange, and put back; in virtual time, and for real."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from starburst.clouds.sky.agent import dead_man_switch
from starburst.clouds.sky.machines.keepalive import keeper
from starburst.core.model.events import RunEnded, RunStarted
from starburst.runs.supervisor.lease import boot_id, boottime
from tests.app.virtual import run
from tests.clouds.sky.agent_machine import compiled_archive
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import Life, play, ready, run_of

#: Wall seconds in which a process has done what it is started for.
SOON_S = 20.0


def test_a_keeper_that_was_killed_is_put_back(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("a", 600))
        await life.heard(RunStarted)
        (vm,) = sky.vms
        await asyncio.sleep(60)
        assert (vm.kept, vm.keepers) == (True, 1)
        for count in (2, 3):
            vm.kept = False
            await asyncio.sleep(150)
            assert (vm.kept, vm.keepers) == (True, count), "once, for it takes a while to come"
        assert (await life.heard(RunEnded)).exit_code == 0

    play(tmp_path, story)


def test_a_keeper_that_is_on_its_way_is_waited_for(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        (vm,) = sky.vms
        while not vm.keepers:
            await asyncio.sleep(0.1)
        vm.kept = False  # pending in SkyPilot's queue
        await asyncio.sleep(60)
        assert vm.keepers == 1

    play(tmp_path, story)


def test_a_machine_has_its_switch_before_it_takes_runs_and_gets_it_back(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        (vm,) = sky.vms
        assert vm.switch_s is not None
        assert vm.switch_s > 5 * 60, "SkyPilot's autostop comes first"
        assert vm.ends_when_shut_down
        vm.switch_s = None
        await asyncio.sleep(60)
        assert vm.switch_s is not None

    play(tmp_path, story)


def test_a_machine_of_an_older_starburst_is_given_its_switch(tmp_path: Path) -> None:
    async def main() -> None:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home") as first:
            await ready(first)
        sky.vms[0].switch_s, sky.vms[0].kept = None, False
        (path,) = (tmp_path / "home" / "notes").glob("machine*.json")
        noted = json.loads(path.read_text())
        new = ("asked", "access", "at", "armed", "forgotten", "down", "taken_down", "down_at", "halted_at")
        path.write_text(json.dumps({key: value for key, value in noted.items() if key not in new}))
        async with Life(sky, tmp_path / "home"):
            await asyncio.sleep(150)
        assert sky.vms[0].switch_s is not None
        assert sky.vms[0].kept

    run(main())


def test_the_switch_ends_a_machine_that_neither_we_nor_skypilot_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.app.virtual.LIMIT_S", 10_000.0)

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home") as life:
            await ready(life)
        sky.lose_state()
        await asyncio.sleep(900 + 11 * 60)
        vm = sky.vms[0]
        vm.settle(asyncio.get_running_loop().time())
        assert vm.ended_at is not None

    run(main())


# --- the real programs --------------------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home whose `sudo` writes down what it is asked for; systemd and cron of this host are let be."""
    programs = tmp_path / "bin"
    programs.mkdir()
    sudo = f'case "$*" in "-n sh "*) exit 1;; esac; printf "%s\\n" "$*" >>{tmp_path}/told'
    for name, does in {"sudo": sudo, "crontab": "exit 1"}.items():
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    (tmp_path / "agent.pyz").write_bytes(compiled_archive())
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    yield tmp_path
    (tmp_path / "starburst").mkdir(exist_ok=True)
    for pid in switches(tmp_path):
        with suppress(ProcessLookupError):
            os.kill(pid, 9)


def agent(home: Path, verb: str, **ask: object) -> dict[str, object]:
    """What the agent answers."""
    command = [sys.executable, "-I", str(home / "agent.pyz"), verb]
    done = subprocess.run(command, input=json.dumps(ask).encode(), stdout=-1, check=True, timeout=SOON_S)
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def switches(home: Path) -> list[int]:
    """Switches of this home, by who has its lock open."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            files = {os.readlink(f"/proc/{name}/fd/{fd}") for fd in os.listdir(f"/proc/{name}/fd")}
            if str(home / "starburst" / "switch.lock") in files and int(name) != os.getpid():
                found.append(int(name))
    return found


def wait_until(what: str, *files: Path) -> None:
    end = time.monotonic() + SOON_S
    while not any(file.exists() and what in file.read_text() for file in files):
        assert time.monotonic() < end, f"no {what!r}"
        time.sleep(0.05)


def lease(home: Path, until: float) -> None:
    (home / "starburst").mkdir(exist_ok=True)
    (home / "starburst" / "lease.json").write_text(json.dumps({"until": until}))


def test_the_switch_shuts_down_a_machine_whose_lease_passed_long_ago(machine: Path) -> None:
    lease(machine, time.time() - 100)
    assert agent(machine, "exchange", switch={"after_s": 60.0})["armed"]
    wait_until("-n shutdown -h now", machine / "told")


def test_the_switch_lets_a_machine_be_whose_lease_runs_until_it_is_retired(machine: Path) -> None:
    lease(machine, time.time() + 1000)
    assert agent(machine, "exchange", switch={"after_s": 0.0})["armed"]
    (first,) = switches(machine)
    assert agent(machine, "exchange")["armed"]
    assert switches(machine) == [first], "one is enough"
    assert not (machine / "told").exists()
    assert agent(machine, "retire") == {"armed": True}
    wait_until("-n shutdown -h now", machine / "told")


def test_a_switch_that_was_killed_is_started_anew(machine: Path) -> None:
    lease(machine, time.time() + 1000)
    assert agent(machine, "exchange", switch={"after_s": 0.0})["armed"]
    (first,) = switches(machine)
    os.kill(first, 9)
    while first in switches(machine):
        time.sleep(0.02)
    assert agent(machine, "exchange")["armed"]
    assert switches(machine) != [first]


def test_the_switch_goes_by_its_settings_after_they_were_removed(machine: Path) -> None:
    lease(machine, time.time() + 1000)
    assert agent(machine, "exchange", switch={"after_s": 0.0})["armed"]
    time.sleep(0.5)  # its first look
    (machine / "starburst" / "switch.json").unlink()
    lease(machine, time.time() - 1)
    wait_until("-n shutdown -h now", machine / "told")


# --- who starts it when nobody exchanges --------------------------------------------------------------------


@pytest.fixture
def odd_home(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same for code in this process; no path is what systemd, cron or a shell take it for."""
    agent_file = machine / 'it\'s 5% of "$HOME"' / "agent.pyz"
    agent_file.parent.mkdir()
    agent_file.write_bytes((machine / "agent.pyz").read_bytes())
    monkeypatch.setattr(sys, "argv", [str(agent_file)])
    monkeypatch.setattr(dead_man_switch, "PATH", os.environ["PATH"])
    monkeypatch.setattr(dead_man_switch, "SYSTEMD", str(machine / "systemd"))
    monkeypatch.setattr(dead_man_switch, "UNIT", str(machine / "starburst-switch.service"))
    lease(machine, time.time() - 100)
    (machine / "starburst" / "switch.json").write_text('{"after_s": 0}')
    return machine


def program(home: Path, name: str, script: str) -> None:
    (home / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
    (home / "bin" / name).chmod(0o755)


def test_cron_starts_the_switch_each_minute_and_other_lines_of_its_table_stay(odd_home: Path) -> None:
    table = odd_home / "table"
    table.write_text("0 0 * * * its own\n")
    program(
        odd_home, "crontab", f'[ "$1" = -l ] && exec cat {table}; cat >{table}.new; mv {table}.new {table}'
    )
    for _ in range(2):
        assert not dead_man_switch.hand_over(), "it starts nothing now"
    own, ours = table.read_text().splitlines()
    assert own == "0 0 * * * its own"
    assert ours.startswith("* * * * * ")
    command = ours.removeprefix("* * * * * ").replace("\\%", "%")  # as cron reads it
    process = subprocess.Popen(["sh", "-c", command], env={})
    try:
        wait_until("-n shutdown -h now", odd_home / "told")
    finally:
        process.kill()
        process.wait()


def test_systemd_has_the_switch_as_a_unit_that_is_always_restarted(odd_home: Path) -> None:
    (odd_home / "systemd").mkdir()
    program(odd_home, "sudo", 'shift; exec "$@"')
    program(odd_home, "systemctl", f'echo "$*" >>{odd_home}/orders')
    assert dead_man_switch.hand_over()
    orders = (odd_home / "orders").read_text().splitlines()
    name = "starburst-switch.service"
    assert orders == ["daemon-reload", f"--quiet enable {name}", f"--no-block start {name}"]
    unit = (odd_home / name).read_text()
    assert "Restart=always" in unit
    assert "WantedBy=multi-user.target" in unit
    if shutil.which("systemd-analyze"):  # systemd's own reader, which starts nothing
        reader = ["systemd-analyze", "verify", "--man=no", str(odd_home / name)]
        said = subprocess.run(reader, capture_output=True, timeout=SOON_S, check=False).stderr.decode()
        assert name not in said, said
    command = next(line for line in unit.splitlines() if line.startswith("ExecStart="))
    # As systemd.service(5) reads it: specifiers, variables, and quotes.
    words = shlex.split(command.removeprefix("ExecStart=").replace("%%", "%").replace("$$", "$"))
    assert words[:2] == ["/bin/sh", "-c"]
    program(odd_home, "sudo", f'printf "%s\\n" "$*" >>{odd_home}/told')
    process = subprocess.Popen(words, env={})
    try:
        wait_until("-n shutdown -h now", odd_home / "told")
    finally:
        process.kill()
        process.wait()


def test_where_systemd_takes_no_orders_it_starts_nothing(odd_home: Path) -> None:
    (odd_home / "systemd").mkdir()
    program(odd_home, "sudo", "exit 1")
    assert not dead_man_switch.hand_over(), "then an exchange starts it as a process"


def test_without_settings_there_is_no_switch(machine: Path) -> None:
    answer = agent(machine, "exchange", lease_s=1000)
    assert (answer["armed"], answer["kept"]) == (False, False)
    assert not switches(machine)


@pytest.mark.parametrize(
    ("settings", "left_s", "due"),
    [
        (None, -100.0, False),
        ({"after_s": 10.0}, -5.0, False),
        ({"after_s": 10.0}, -10.0, True),
        ({"now": True}, 1e12, True),
        ({"after_s": float("nan")}, -10.0, True),  # what a job has spoiled keeps no machine
        ({"after_s": float("inf")}, -10.0, True),
    ],
)
def test_when_the_switch_ends_a_machine(settings: dict[str, float] | None, left_s: float, due: bool) -> None:
    assert dead_man_switch.is_due(settings, left_s) is due


#: The wall's clock of a machine was set an hour forward, or back, since its lease was renewed.
JUMPS = [3600.0, -3600.0]


def jumped(home: Path, left_s: float, jump_s: float) -> None:
    """A lease with so many seconds left, by the clock that no setting moves."""
    (home / "starburst").mkdir(exist_ok=True)
    both = {"until": time.time() + left_s - jump_s, "boot": boot_id(), "until_boottime": boottime() + left_s}
    (home / "starburst" / "lease.json").write_text(json.dumps(both))


@pytest.mark.parametrize("jump_s", JUMPS)
def test_a_clock_that_is_set_does_not_end_a_machine(machine: Path, jump_s: float) -> None:
    jumped(machine, 1000.0, jump_s)
    for _ in range(2):
        answer = agent(machine, "exchange", switch={"after_s": 0.0}, lease_s=1000)
        assert (answer["armed"], answer["lapsed"]) == (True, False)
    assert not (machine / "told").exists()


@pytest.mark.parametrize("jump_s", JUMPS)
def test_a_clock_that_is_set_does_not_keep_a_machine(machine: Path, jump_s: float) -> None:
    jumped(machine, -1.0, jump_s)
    assert agent(machine, "exchange", switch={"after_s": 0.0}, lease_s=1000)["lapsed"]
    wait_until("-n shutdown -h now", machine / "told")


@pytest.mark.parametrize("jump_s", JUMPS)
def test_a_keeper_goes_by_the_same_clock(machine: Path, jump_s: float) -> None:
    jumped(machine, -1.0, jump_s)
    argv, env = ["bash", "-c", keeper(60.0)], {**os.environ, "HOME": str(machine)}
    assert subprocess.run(argv, env=env, timeout=SOON_S, check=False).returncode == 0
    jumped(machine, 1000.0, jump_s)
    first = subprocess.Popen(argv, env=env)
    try:
        end = time.monotonic() + SOON_S
        while not dead_man_switch.stands("keeper"):
            assert time.monotonic() < end
            time.sleep(0.02)
        with pytest.raises(subprocess.TimeoutExpired):
            first.wait(0.3)
    finally:
        first.kill()
        first.wait()


def test_the_keeper_holds_its_lock_till_the_lease_passes_and_a_second_one_ends(machine: Path) -> None:
    lease(machine, time.time() + 1000)
    first = subprocess.Popen(["bash", "-c", keeper(60.0)], env={**os.environ, "HOME": str(machine)})
    try:
        end = time.monotonic() + SOON_S
        while not dead_man_switch.stands("keeper"):
            assert time.monotonic() < end
            time.sleep(0.05)
        second = subprocess.run(["bash", "-c", keeper(60.0)], timeout=SOON_S, check=False)
        assert second.returncode == 0
        assert first.poll() is None
        lease(machine, time.time() - 1)
        assert first.wait(SOON_S) == 0
        assert not dead_man_switch.stands("keeper")
    finally:
        first.kill()
        first.wait()
