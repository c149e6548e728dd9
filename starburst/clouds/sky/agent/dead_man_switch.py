"""The machine's own dead-man switch: a process that shuts the machine down when its lease is long past.

SkyPilot's autostop should have ended the machine before. The switch needs neither SkyPilot nor Ray, nor a
network, nor what is written on the instance in its cloud; no queue and no connection holds it. Every exchange
looks whether it runs, and starts it again if not. Where nobody exchanges any more the machine itself does so,
also after a reboot: systemd, of which the switch is a unit where systemd runs, else cron once a minute.

~/starburst/switch.json    {"after_s"}: seconds after the lease; {"now": true}: at once
            switch.lock    held by the switch as long as it lives
            keeper.lock    held by the keeper in SkyPilot's queue (`machines/keepalive.py`)
"""

from __future__ import annotations

import fcntl
import math
import os
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any, cast

from starburst.clouds.sky.agent.containers.removal import remove_all
from starburst.clouds.sky.agent.protocol import RetireAnswer, SwitchSettings
from starburst.clouds.sky.agent.task_dirs import base, facts
from starburst.runs.supervisor.files import reserve, try_lock, write_reserved
from starburst.runs.supervisor.lease import lease_left_s, new_lease

#: Seconds: between looks at the lease, between attempts to shut down, and for a new switch to come up.
LOOK_S, AGAIN_S, START_S = 5.0, 60.0, 5.0
#: Commands that shut a machine down; the second if the first fails.
DOWN = (("sudo", "-n", "shutdown", "-h", "now"), ("sudo", "-n", "poweroff"))
#: Seconds for systemd or cron to take the switch; PATH of a switch that they start.
TAKE_S, PATH = 10.0, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: What is there while systemd runs; the unit of the switch.
SYSTEMD, UNIT = "/run/systemd/system", "/etc/systemd/system/starburst-switch.service"

_UNIT = """[Unit]
Description=Dead-man switch of Starburst
StartLimitIntervalSec=0

[Service]
User={user}
ExecStart=/bin/sh -c "{command}"
Restart=always
RestartSec=20
OOMScoreAdjust=-900

[Install]
WantedBy=multi-user.target
"""
#: As root, with the path of the unit and the unit itself on stdin.
_INSTALL = """umask 022 && cat >"$1.new" && mv "$1.new" "$1" && { sync "$1" || :; } &&
systemctl daemon-reload && systemctl --quiet enable "${1##*/}" && systemctl --no-block start "${1##*/}"
"""
#: The table of the machine's user keeps its other lines.
_CRONTAB = """{ crontab -l 2>/dev/null | grep -v "# starburst-switch$"; cat; } | crontab -"""
_CRON_LINE = "* * * * * {command} >/dev/null 2>&1 # starburst-switch\n"


def stands(name: str) -> bool:
    """Whether a process holds a lock: "switch" or "keeper". Nothing is written, for the disk may be full."""
    try:
        lock = os.open(_path(name), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def arm(settings: SwitchSettings | None) -> bool:
    """Note new settings, if there are any, and start the switch unless it runs; whether it runs."""
    path = os.path.join(base(), "switch.json")
    if settings is not None:
        with suppress(OSError):  # a full disk: every exchange brings the settings
            os.makedirs(base(), exist_ok=True)
            write_reserved(path, settings)
            reserve(path)
    if _settings_in(path) is None:
        return False
    if settings is not None or not stands("switch"):
        if hand_over():
            _await_switch()
        if not stands("switch"):
            _start()
            _await_switch()
    return stands("switch")


def hand_over() -> bool:
    """Have the machine start the switch whenever it is dead, reboots included; whether it is started now.

    May be repeated. Without systemd and cron, or where systemd takes no orders, only exchanges start it.
    """
    command = _command()
    if os.path.isdir(SYSTEMD):
        for plain in ("\\", '"'):
            command = command.replace(plain, f"\\{plain}")
        for special in "%$":
            command = command.replace(special, 2 * special)
        unit = _UNIT.format(user=os.geteuid(), command=command)
        return _runs(["sudo", "-n", "sh", "-c", _INSTALL, "install", UNIT], unit)
    _runs(["sh", "-c", _CRONTAB], _CRON_LINE.format(command=command.replace("%", "\\%")))
    return False


def _command() -> str:
    """The switch as a command line of a shell with any environment."""
    env = ["env", f"HOME={os.path.expanduser('~')}", f"PATH={PATH}"]
    words = ["exec", *env, sys.executable, "-I", os.path.abspath(sys.argv[0]), "switch"]
    return " ".join(map(shlex.quote, words))


def _runs(argv: list[str], text: str) -> bool:
    """Whether a program, with a text on stdin, succeeds in time."""
    nothing = subprocess.DEVNULL
    try:
        done = subprocess.run(
            argv, input=text.encode(), stdout=nothing, stderr=nothing, timeout=TAKE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _start() -> None:
    """Start the switch as a process of nobody's."""
    nothing = subprocess.DEVNULL
    argv = [sys.executable, "-I", os.path.abspath(sys.argv[0]), "switch"]
    subprocess.Popen(argv, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)


def _await_switch() -> None:
    give_up = time.monotonic() + START_S
    while not stands("switch") and time.monotonic() < give_up:
        time.sleep(0.02)


def retire(_request: dict[str, Any]) -> RetireAnswer:
    """Shut the machine down now."""
    return {"armed": arm({"now": True})}


def switch() -> None:
    """Be the switch until the machine is down; returns at once if there is one already."""
    give_up = time.monotonic() + START_S
    while _take("switch") is None:  # kept open for good; `stands` takes it for an instant
        if time.monotonic() >= give_up:
            return
        time.sleep(0.1)
    lease = new_lease(0.0)  # before the first lease, and after the file was removed
    settings: dict[str, Any] | None = None
    while True:
        found = _settings_in(os.path.join(base(), "lease.json"))
        if lease_left_s(found) > -math.inf:
            lease = cast("dict[str, Any]", found)
        settings = _settings_in(os.path.join(base(), "switch.json")) or settings
        if is_due(settings, lease_left_s(lease)):
            shut_down()
            time.sleep(AGAIN_S)
        else:
            time.sleep(LOOK_S)


def is_due(settings: dict[str, Any] | None, left_s: float) -> bool:
    """Whether the machine is to be shut down, with so many seconds left of its lease.

    Settings that a job has spoiled do not extend its life.
    """
    if settings is None:
        return False
    after_s = settings.get("after_s")
    if not (isinstance(after_s, (int, float)) and 0 <= after_s < math.inf):
        after_s = 0
    return bool(settings.get("now")) or left_s <= -after_s


def shut_down() -> None:
    """Ask the system to power off, which may take a while; where it may not, end the containers at least."""
    for command in DOWN:
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=AGAIN_S, check=False)
            if done.returncode == 0:
                return
        except (OSError, subprocess.TimeoutExpired):  # the next command
            continue
    remove_all()


def _settings_in(path: str) -> dict[str, Any] | None:
    """What a file says; None also where that cannot be read now, and what was known before stands."""
    with suppress(OSError):
        return facts(path)
    return None


def _path(name: str) -> str:
    return os.path.join(base(), f"{name}.lock")


def _take(name: str) -> int | None:
    """The descriptor of one of the machine's locks; None while another process holds it."""
    os.makedirs(base(), exist_ok=True)
    lock = os.open(_path(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if try_lock(lock):
        return lock
    os.close(lock)
    return None
