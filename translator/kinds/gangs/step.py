#!/usr/bin/env python3
"""Starts a program on tasks of a gang, in the command of `starburst-gang`: what srun does over several nodes.

`starburst-step OPTIONS COMMAND…`, with the options as JSON; srun.sh reads those of srun.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

from translator.kinds.gangs.connection import STATE, TaskLink, connected, say
from translator.kinds.gangs.task_server import PAUSE_S


class SrunStep:
    """One call of srun: its processes are on the tasks, their output comes here."""

    def __init__(self, options: dict[str, Any], argv: list[str]) -> None:
        with open(os.environ[STATE], encoding="utf-8") as file:
            self._state = json.load(file)
        self._options = options
        self._argv = argv
        self._codes: dict[int, int] = {}
        self._links: list[TaskLink] = []
        self._lock = threading.Lock()
        self._midline: dict[Any, bytes] = {}

    def run(self) -> int:
        """Its exit code: the highest of its processes."""
        shares = shared(self._options, [node[0] for node in self._state["nodes"]])
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: self._pass_on(number))
        threads = []
        for index, tasks in enumerate(per_node(shares, self._state["nodes"])):
            host, port = self._state["nodes"][shares[index][0]]
            try:
                link = connected(host, port, {"tasks": tasks, **self._request()})
            except OSError as error:
                say(f"srun: node {host}: {error}")
                self._pass_on(signal.SIGKILL)
                return 1
            self._links.append(link)
            threads.append(threading.Thread(target=self._read, args=(link, host, tasks), daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # a join without a limit would hold signals up
                thread.join(PAUSE_S)
        return max(self._codes.values(), default=1)

    def _request(self) -> dict[str, Any]:
        first = self._state["env"]
        changed = {key: value for key, value in os.environ.items() if first.get(key) != value}
        changed.pop(STATE)
        return {
            "argv": self._argv,
            "cwd": os.getcwd(),
            "changed": changed,
            "removed": [key for key in first if key not in os.environ],
            "places": self._state["places"],
            "gpus_per_task": self._options["gpus_per_task"],
        }

    def _read(self, link: TaskLink, host: str, tasks: list[dict[str, str]]) -> None:
        message = link.receive()
        while message is not None and not message.get("over"):
            rank = int(message["rank"])
            if "data" in message:
                self._write(rank, int(message["stream"]), base64.b64decode(message["data"]))
            else:
                self._codes[rank] = int(message["code"])
                if self._codes[rank] and self._options["kill_all"]:
                    self._pass_on(signal.SIGTERM)
            message = link.receive()
        lost = [task["SLURM_PROCID"] for task in tasks if int(task["SLURM_PROCID"]) not in self._codes]
        if lost:
            say(f"srun: node {host} is gone, with tasks {', '.join(lost)}")
            self._codes.update({int(rank): 1 for rank in lost})
            self._pass_on(signal.SIGTERM)
        ranks = {int(task["SLURM_PROCID"]) for task in tasks}
        for rank, stream in [key for key in self._midline if key[0] in ranks]:
            self._write(rank, stream, b"\n")
        link.close()

    def _write(self, rank: int, stream: int, data: bytes) -> None:
        if self._options["label"]:
            whole, newline, rest = (self._midline.pop((rank, stream), b"") + data).rpartition(b"\n")
            if rest:
                self._midline[rank, stream] = rest
            lines = whole.split(b"\n") if newline else []
            data = b"".join(b"%d: %s\n" % (rank, line) for line in lines)
        with self._lock:
            os.write(stream, data) if data else None

    def _pass_on(self, number: int) -> None:
        for link in self._links:
            with suppress(OSError):  # it has ended
                link.send(signal=int(number))


def shared(options: dict[str, Any], hosts: list[str]) -> list[Any]:
    """The chosen nodes, each with its number of tasks: blocks of equal size, the first ones one more."""
    chosen = list(range(len(hosts)))[int(options["relative"]) :]
    if options["nodelist"]:
        names = options["nodelist"].split(",")
        unknown = [name for name in names if name not in hosts]
        if unknown:
            raise SystemExit(f"srun: --nodelist {unknown[0]}: is no node of this job")
        chosen = [index for index in chosen if hosts[index] in names]
    count, tasks, each = (int(options[name]) for name in ("nodes", "tasks", "per_node"))
    count = count or (len(names) if options["nodelist"] else 0)
    if not count:
        count = min(len(chosen), tasks or len(chosen))
    tasks = tasks or count * (each or 1)
    count = min(count, tasks)
    if count > len(chosen):
        raise SystemExit(f"srun: --nodes {count}: the job has {len(chosen)}")
    most, more = divmod(tasks, count)
    return [[node, most + (place < more)] for place, node in enumerate(chosen[:count])]


def per_node(shares: list[Any], nodes: list[Any]) -> list[list[dict[str, str]]]:
    """The variables of each task, by node of the step."""
    total, found, rank = sum(share[1] for share in shares), [], 0
    common = {
        "SLURM_NTASKS": str(total),
        "SLURM_NPROCS": str(total),
        "SLURM_STEP_NUM_TASKS": str(total),
        "SLURM_STEP_NUM_NODES": str(len(shares)),
        "SLURM_STEP_NODELIST": ",".join(nodes[node][0] for node, _ in shares),
        "SLURM_STEP_TASKS_PER_NODE": ",".join(str(count) for _, count in shares),
    }
    for place, (node, count) in enumerate(shares):
        own = {"SLURM_NODEID": str(place), "SLURMD_NODENAME": nodes[node][0]}
        numbers = [{"SLURM_PROCID": str(rank + local), "SLURM_LOCALID": str(local)} for local in range(count)]
        found.append([{**common, **own, **each} for each in numbers])
        rank += count
    return found


if __name__ == "__main__":
    sys.exit(SrunStep(json.loads(sys.argv[1]), sys.argv[2:]).run())
