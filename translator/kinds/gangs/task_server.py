"""The side of a task on which others start programs."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import suppress
from typing import Any

from translator.kinds.gangs.connection import TaskLink, greeted, listening

#: Seconds between a request to end and the kill.
GRACE_S = 10.0
PAUSE_S = 0.1
#: Seconds in which the last output of an ended program is awaited.
PUMP_S = 2.0
#: The variable with the directory of the programs that a task has for itself.
PROGRAMS = "STARBURST_PROGRAMS"
#: Where the task started.
BASE = os.getcwd()


class TaskServer(threading.Thread):
    """Starts programs in this task for whoever knows the secret."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._server = listening()
        self.port = int(self._server.getsockname()[1])
        self._steps: set[ServedStep] = set()

    def run(self) -> None:
        """Take requests, each in a thread of its own."""
        while True:
            channel, _ = self._server.accept()
            threading.Thread(target=self._serve, args=(channel,), daemon=True).start()

    def _serve(self, channel: socket.socket) -> None:
        found = greeted(channel)
        if found is None:
            return
        step = ServedStep(*found)
        self._steps.add(step)
        try:
            step.serve()
        finally:
            self._steps.discard(step)

    def signal(self, number: int) -> None:
        """Send a signal to all that runs here."""
        for step in list(self._steps):
            step.signal(number)


class ServedStep:
    """The processes of one step in this task."""

    def __init__(self, link: TaskLink, request: dict[str, Any]) -> None:
        self._link = link
        self._request = request
        self._processes: list[Any] = []

    def serve(self) -> None:
        """Run them to their end; they are ended when whoever asked for them is gone."""
        try:
            for number, own in enumerate(self._request["tasks"]):
                self._processes.append(self._started(number, own))
        except OSError as error:
            self._failed(f"{self._request['argv'][0]}: {error.strerror}")
        threading.Thread(target=self._obey, daemon=True).start()
        followers = [
            threading.Thread(target=self._follow, args=found, daemon=True)
            for found in enumerate(self._processes)
        ]
        for follower in followers:
            follower.start()
        for follower in followers:
            follower.join()
        self._tell(over=True)

    def _follow(self, index: int, process: Any) -> None:
        code = process.wait()
        for pump in process.pumps:
            pump.join(PUMP_S)  # what it left behind may hold its output open
        with suppress(OSError):  # nothing is left of it
            os.killpg(process.pid, signal.SIGKILL)
        self._tell(rank=self._rank(index), code=128 - code if code < 0 else code)

    def _rank(self, index: int) -> int:
        return int(self._request["tasks"][index]["SLURM_PROCID"])

    def _started(self, number: int, own: dict[str, str]) -> Any:
        env = {**os.environ, **{key: self._here(value) for key, value in self._request["changed"].items()}}
        env.update(own)
        for name in self._request["removed"]:
            env.pop(name, None)
        gpus, each = env.get("CUDA_VISIBLE_DEVICES", ""), int(self._request["gpus_per_task"])
        if each and gpus:
            local = int(own["SLURM_LOCALID"])
            env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus.split(",")[local * each : (local + 1) * each])
        directory = self._here(self._request["cwd"])
        if not os.path.isdir(directory):
            self._complain(self._rank(number), f"there is no {directory}; it starts in {BASE}")
            directory = BASE
        process: Any = subprocess.Popen(
            [self._here(word) for word in self._request["argv"]],
            env=env,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        process.pumps = []
        for stream, pipe in ((1, process.stdout), (2, process.stderr)):
            pump = threading.Thread(target=self._pump, args=(self._rank(number), stream, pipe), daemon=True)
            pump.start()
            process.pumps.append(pump)
        return process

    def _here(self, text: str) -> str:
        """A text with this task's directories in place of those of the first."""
        for index, ours in enumerate(places()):
            theirs = self._request["places"][index]
            text = text.replace(theirs, ours) if ours and len(theirs) > 1 else text
        return text

    def _pump(self, rank: int, stream: int, pipe: Any) -> None:
        while True:
            data = os.read(pipe.fileno(), 65536)
            if not data:
                pipe.close()
                return
            self._tell(rank=rank, stream=stream, data=base64.b64encode(data).decode())

    def _tell(self, **message: Any) -> None:
        with suppress(OSError):  # it is gone: `_obey` ends the processes
            self._link.send(**message)

    def _failed(self, why: str) -> None:
        for index in range(len(self._processes), len(self._request["tasks"])):
            self._complain(self._rank(index), why)
            self._tell(rank=self._rank(index), code=127)

    def _complain(self, rank: int, why: str) -> None:
        line = f"srun: {socket.gethostname()}: {why}\n"
        self._tell(rank=rank, stream=2, data=base64.b64encode(line.encode()).decode())

    def _obey(self) -> None:
        message = self._link.receive()
        while message is not None:
            self.signal(int(message["signal"]))
            message = self._link.receive()
        self.signal(signal.SIGTERM)
        until = time.monotonic() + GRACE_S
        while time.monotonic() < until and any(each.poll() is None for each in self._processes):
            time.sleep(PAUSE_S)
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send a signal to those that live."""
        for process in self._processes:
            if process.poll() is None:
                with suppress(OSError):  # it has ended
                    os.killpg(process.pid, number)


def places() -> list[str]:
    """Directories that each task has for itself: of its programs, where it starts, its home."""
    return [os.environ.get(PROGRAMS, ""), BASE, os.environ.get("HOME", "")]


BASE = os.getcwd()
