"""One exchange with the machine's agent: tasks come in and start or stop, states and output go back.

What is wrong with one task is answered for that task alone, since its files are its job's to write, too. The
lease is renewed last: an exchange that fails halfway does not keep the machine. It is renewed on a full disk,
too, for the sake of the tasks that run.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from typing import TypeVar

from starburst.clouds.sky.agent.autostop import postpone
from starburst.clouds.sky.agent.containers.egress import why_open
from starburst.clouds.sky.agent.containers.images import known_images
from starburst.clouds.sky.agent.dead_man_switch import arm, stands
from starburst.clouds.sky.agent.progress_file import hear
from starburst.clouds.sky.agent.protocol import LOG_BYTES, ExchangeAnswer, ExchangeRequest, TaskAnswer
from starburst.clouds.sky.agent.separation import known
from starburst.clouds.sky.agent.start_task import start
from starburst.clouds.sky.agent.task_control import look, stop, take_in, unknown_state
from starburst.clouds.sky.agent.task_dirs import base, facts, kill_strays, no_room, rank_dir
from starburst.runs.supervisor.files import is_shortage, reserve, write_reserved
from starburst.runs.supervisor.lease import lease_left_s, new_lease

T = TypeVar("T")


def exchange(request: ExchangeRequest) -> ExchangeAnswer:
    """Answer a request about all tasks of the machine, and start the dead-man switch if it should run."""
    armed = arm(request.get("switch"))
    asked = (
        request.get("specs", ()),
        request.get("stops", ()),
        request.get("starts", ()),
        request.get("look", ()),
    )
    names = list(dict.fromkeys(chain.from_iterable(asked)))
    ranks = {name: attend(name, request, LOG_BYTES // len(names)) for name in names}
    lease_s = request.get("lease_s")
    why = "" if lease_s is None else renew(lease_s)
    return {
        "booted_at": booted_at(),
        "now": time.time(),
        "ranks": ranks,
        "lapsed": unless_short(lambda: left_s() <= 0, False),
        "renewed": not why,
        "trouble": why or no_room(),
        "armed": armed,
        "kept": stands("keeper"),
        "together": unless_short(together, ""),
        "images": unless_short(known_images, {}),
        "host": socket.gethostname(),
        "address": address(),
    }


def attend(name: str, request: ExchangeRequest, max_log: int) -> TaskAnswer:
    """Do everything that is asked about one task; its state, with at most `max_log` bytes of output."""
    path, trouble = rank_dir(name), ""
    try:
        if name in request.get("specs", {}):
            take_in(path, request["specs"][name])
        if name in request.get("stops", {}):
            stop(path, request["stops"][name])
        elif name in request.get("starts", ()):
            trouble = start(path)
    except OSError as error:  # such as a full disk: asked for again
        trouble = no_room() or str(error)
    except Exception as error:  # another job has spoiled its files, or a machine's sudo answers what it wants
        trouble = f"its files or its machine are spoiled: {error!r}"
    try:
        found = look(path, request.get("look", {}).get(name), max_log)
    except Exception as error:
        if is_shortage(error):  # of the machine, which says nothing of the task: it is looked at again
            found, trouble = unknown_state(over=False), trouble or no_room() or str(error)
        else:  # its job has tampered with its files, for ours are whole: what is left of it is ended
            found = unknown_state(over=not kill_strays(path))
    heard = request.get("hear", {}).get(name)
    found["trouble"] = trouble
    found["report"] = None if heard is None else hear(path, heard)
    return found


def unless_short(tell: Callable[[], T], otherwise: T) -> T:
    """What the machine's files tell; `otherwise` where it is short of something and they cannot be read."""
    try:
        return tell()
    except OSError:
        return otherwise


def together() -> str:
    """Why the tasks of this machine are not kept apart, as far as that is known."""
    found = known()
    return ("" if found is None else found["tasks"] or found["network"]) or why_open()


def left_s() -> float:
    """Seconds until the lease passes, however the wall's clock is set; infinity before the first lease.

    Raises:
        OSError: the machine is short of something, so that this is not known.
    """
    return lease_left_s(facts(lease_path())) if os.path.lexists(lease_path()) else float("inf")


def renew(lease_s: float) -> str:
    """Extend the lease; why that is not possible, or "".

    One that has passed stays so: the machine's runs were told to end.
    """
    try:
        os.makedirs(base(), exist_ok=True)
        if left_s() > 0:
            lease = new_lease(lease_s)
            write_reserved(lease_path(), lease)
            postpone(lease["until"])
        with suppress(OSError):  # a full disk: it may have room at the next renewal
            reserve(lease_path())
    except OSError as error:
        return f"its lease cannot be renewed: {no_room() or error}"
    return ""


def lease_path() -> str:
    """The file of the lease."""
    return os.path.join(base(), "lease.json")


def address() -> str:
    """The machine's address in its network, by the route that a datagram would take; none is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # RFC 5737: reserved for documentation
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def booted_at() -> float:
    """When the machine's first process began, epoch seconds: later than the kernel's boot in a container."""
    with open("/proc/stat", encoding="ascii") as file:
        boot = next(float(line.split()[1]) for line in file if line.startswith("btime"))
    with open("/proc/1/stat", "rb") as file:
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    return boot + ticks / os.sysconf("SC_CLK_TCK")
