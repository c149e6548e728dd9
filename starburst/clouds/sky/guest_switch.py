"""The machine's own dead-man switch; part of the agent (`guest.py`).

A process of its own, which nobody's queue and no connection holds, looks at the lease. Some time after it
passed, when SkyPilot's autostop should have ended the machine, it shuts the machine down. It needs neither
SkyPilot nor Ray, nor a network, nor what is written on the instance in its cloud. Every exchange looks
whether it is there, and starts it anew if not.

~/starburst/switch.json    {"after_s"}: seconds after the lease; {"now": true}: at once
            switch.lock    held by the switch as long as it lives
            keeper.lock    held by the keeper in SkyPilot's queue (`keeper.py`)
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from starburst.clouds.sky.guest_tasks import base, facts
    from starburst.runs.shim import write_json
else:  # on a machine, where all files of the agent lie side by side
    from guest_tasks import base, facts
    from shim import write_json

#: Seconds: between looks at the lease, between tries to shut down, and for a new switch to be there.
LOOK_S, AGAIN_S, START_S = 5.0, 60.0, 5.0
#: How a machine is shut down; the second if the first is not to be had.
DOWN = (("sudo", "-n", "shutdown", "-h", "now"), ("sudo", "-n", "poweroff"))


def stands(name: str) -> bool:
    """Whether somebody holds a lock: "switch" or "keeper". Writes nothing: a disk may be full."""
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


def arm(settings: dict[str, Any] | None) -> bool:
    """Note new settings, if there are any, and see to it that the switch runs; whether it does."""
    path = os.path.join(base(), "switch.json")
    if settings is not None:
        with suppress(OSError):  # a full disk: it is told again
            os.makedirs(base(), exist_ok=True)
            write_json(path, settings)
    if facts(path) is None:
        return False
    if not stands("switch"):
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guest.py")
        nothing = subprocess.DEVNULL
        subprocess.Popen(
            [sys.executable, "-I", program, "switch"],
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,
        )
        give_up = time.monotonic() + START_S
        while not stands("switch") and time.monotonic() < give_up:
            time.sleep(0.02)
    return stands("switch")


def retire(_ask: dict[str, Any]) -> dict[str, Any]:
    """Have the machine shut itself down now."""
    return {"armed": arm({"now": True})}


def watch() -> None:
    """Be the switch, until the machine is down; at once over if there is one already."""
    give_up = time.monotonic() + START_S
    while _take("switch") is None:  # kept open for good; who looks whether it is held takes it for an instant
        if time.monotonic() >= give_up:
            return
        time.sleep(0.1)
    lease_until = time.time()  # until there is a lease, and if it is ever taken away
    while True:
        until = (facts(os.path.join(base(), "lease.json")) or {}).get("until")
        if isinstance(until, (int, float)):
            lease_until = until
        if is_due(facts(os.path.join(base(), "switch.json")), lease_until, time.time()):
            shut_down()
            time.sleep(AGAIN_S)
        else:
            time.sleep(LOOK_S)


def is_due(settings: dict[str, Any] | None, lease_until: float, now: float) -> bool:
    """Whether the machine's time is over."""
    if settings is None:
        return False
    after_s = settings.get("after_s")  # what a job wrote in its place gives the machine no longer life
    return bool(settings.get("now")) or now >= lease_until + (
        after_s if isinstance(after_s, (int, float)) else 0
    )


def shut_down() -> None:
    """Ask the system to power off; it may take its time."""
    for command in DOWN:
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=AGAIN_S, check=False)
            if done.returncode == 0:
                return
        except (OSError, subprocess.TimeoutExpired):  # the next one
            continue


def _path(name: str) -> str:
    return os.path.join(base(), f"{name}.lock")


def _take(name: str) -> int | None:
    """A lock of the machine's; None while somebody holds it."""
    os.makedirs(base(), exist_ok=True)
    lock = os.open(_path(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock
