#!/usr/bin/env python3
"""Runs a command in the first task of a gang once all tasks are there; the others serve it until it ends.

`starburst-gang COMMAND…` goes along with the jobs that need it, and is called in each task. It needs Python
3.7 and no packages. The tasks meet at MASTER_ADDR, 10,000 below MASTER_PORT, which stays the job's own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from translator.kinds.gangs.connection import STATE, connected, greeted, listening, say
from translator.kinds.gangs.task_server import PAUSE_S, TaskServer, places

#: Below MASTER_PORT.
PORTS_BELOW = 10_000
#: Seconds in which all tasks must have come: images are pulled at different speeds.
GATHER_S = 1800.0


def run(command: list[str]) -> int:
    """The exit code of this task."""
    rank, size = int(os.environ["STARBURST_RANK"]), int(os.environ["STARBURST_WORLD_SIZE"])
    server = TaskServer()
    server.start()
    if rank:
        return followed(rank, server)
    try:
        links = gathered(size)
    except OSError as error:
        say(f"the tasks cannot meet at port {control_port()}: {error.strerror}")
        return 1
    if len(links) < size - 1:
        return 1
    joined = [links[other] for other in sorted(links)]
    own = joined[0][0].here if joined else "127.0.0.1"
    nodes = [[own, server.port], *([link.there, port] for link, port in joined)]
    with tempfile.TemporaryDirectory() as directory:
        state = os.path.join(directory, "state.json")
        with open(state, "w", encoding="utf-8") as file:
            json.dump({"nodes": nodes, "env": dict(os.environ), "places": places()}, file)
        code = led(command, state, [node[0] for node in nodes], server)
    for link, _ in joined:
        with suppress(OSError):  # it is gone, which its site reports
            link.send(end=code)
        link.close()
    return code


def on_signal(pass_on: Callable[[int], None]) -> None:
    """Pass the signals of a site on."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: pass_on(number))


def control_port() -> int:
    """Where the first task awaits the others."""
    return int(os.environ["MASTER_PORT"]) - PORTS_BELOW


def gathered(size: int) -> dict[int, Any]:
    """The connections of all other tasks, each with its port, by rank; fewer if some did not come."""
    found: dict[int, Any] = {}
    if size == 1:
        return found
    until = time.monotonic() + GATHER_S
    with listening(control_port()) as server:
        while len(found) < size - 1 and time.monotonic() < until:
            server.settimeout(max(0.1, until - time.monotonic()))
            try:
                known = greeted(server.accept()[0])
            except OSError:
                continue
            if known is not None:
                link, greeting = known
                found[int(greeting["rank"])] = (link, int(greeting["port"]))
    missing = [str(rank) for rank in range(1, size) if rank not in found]
    if missing:
        say(f"tasks {', '.join(missing)} did not come within {GATHER_S:g} s")
    return found


def led(command: list[str], state: str, hosts: list[str], server: TaskServer) -> int:
    """Run the command with what it needs to know of the tasks; signals go to it."""
    env = {**os.environ, STATE: state, "SLURM_JOB_NODELIST": ",".join(hosts)}
    env.update({"SLURM_NODELIST": env["SLURM_JOB_NODELIST"], "SLURMD_NODENAME": hosts[0]})
    process = subprocess.Popen(command, env=env)

    def pass_on(number: int) -> None:
        process.send_signal(number)
        server.signal(number)

    on_signal(pass_on)
    code = process.wait()
    return 128 - code if code < 0 else code


def followed(rank: int, server: TaskServer) -> int:
    """Serve the first task until its command ends. Signals go to what it started here."""
    on_signal(server.signal)
    until = time.monotonic() + GATHER_S
    while True:
        try:
            link = connected(os.environ["MASTER_ADDR"], control_port(), {"rank": rank, "port": server.port})
            break
        except OSError as error:
            if time.monotonic() > until:
                say(f"the first task, at {os.environ['MASTER_ADDR']}, was not reached: {error}")
                return 1
            time.sleep(PAUSE_S)
    end = link.receive()
    if end is None:
        say("the first task is gone")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
