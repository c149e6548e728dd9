"""The machine's own dead-man switch: a process that shuts the machine down when its lease is long past.

SkyPilot's autostop should have ended the machine before. The switch needs neither SkyPilot nor Ray, nor a
network, nor what is written on the instance in its cloud; no queue and no connection holds it. Every exchange
looks whether it runs, and starts it again if not.

~/starburst/switch.json    {"after_s"}: seconds after the lease; {"now": true}: at once
            switch.lock    held by the switch as long as it lives
            keeper.lock    held by the keeper in SkyPilot's queue (`machines/keepalive.py`)
"""

from __future__ import annotations

import fcntl
import math
import os
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
    if facts(path) is None:
        return False
    if not stands("switch"):
        nothing = subprocess.DEVNULL
        subprocess.Popen(
            [sys.executable, "-I", os.path.abspath(sys.argv[0]), "switch"],
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,
        )
        give_up = time.monotonic() + START_S
        while not stands("switch") and time.monotonic() < give_up:
            time.sleep(0.02)
    return stands("switch")


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
    while True:
        found = facts(os.path.join(base(), "lease.json"))
        if lease_left_s(found) > -math.inf:
            lease = cast("dict[str, Any]", found)
        if is_due(facts(os.path.join(base(), "switch.json")), lease_left_s(lease)):
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
    return bool(settings.get("now")) or left_s <= -(after_s if isinstance(after_s, (int, float)) else 0)


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
