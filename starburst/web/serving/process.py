"""The process of the HTTP API: python -m starburst.web.serving.process STARTUP, started by `supervisor.py`.

A process of its own keeps requests, and everything read for them, away from the scheduler's CPU and memory.
It ends with the scheduler.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog
from sqlalchemy.exc import SQLAlchemyError

from starburst.app.config.home import Home
from starburst.bus.hints import ThroughputHint
from starburst.log import set_up_log
from starburst.store.errors import StoreError
from starburst.store.store import Store
from starburst.web.context import AppContext, SchedulerHeartbeat
from starburst.web.serving.channel import BEAT, MessageChannel, StartupParameters
from starburst.web.serving.server import Server

log = structlog.get_logger()

PR_SET_PDEATHSIG = 1
#: SQLite busy timeout, milliseconds; after it a request is answered with 503.
BUSY_MS = 5_000
#: oom_score_adj, of 1000: the kernel ends this process before the scheduler when memory runs out.
RATHER = 500


@dataclass(frozen=True, slots=True)
class ProgressForwarder:
    """Sends progress reports to the scheduler. A report that does not fit is dropped; runs repeat them."""

    line: MessageChannel

    def put(self, said: ThroughputHint) -> None:
        """Send one report."""
        self.line.send(said.model_dump_json().encode())


def main() -> None:
    """Serve until the scheduler closes its channel or ends."""
    parameters = StartupParameters.model_validate_json(sys.argv[1])
    _end_with(parameters.scheduler_pid)
    _stand_back(parameters.http.memory)
    set_up_log(text=parameters.text)
    home, line, heartbeat = (
        Home(parameters.home),
        MessageChannel.inherited(parameters.line),
        SchedulerHeartbeat(),
    )
    sock = socket.socket(fileno=parameters.socket)
    try:
        with Store.open(home.store, BUSY_MS) as store:
            app_context = AppContext(home, store, ProgressForwarder(line), heartbeat, parameters.replica)
            asyncio.run(_serve(Server(app_context, parameters.http), sock, line, heartbeat))
    except (StoreError, SQLAlchemyError, OSError) as error:  # temporary, or the operator has to act
        log.error("http-failed", error=str(error))
        sys.exit(1)


async def _serve(
    server: Server, sock: socket.socket, line: MessageChannel, heartbeat: SchedulerHeartbeat
) -> None:
    loop = asyncio.get_running_loop()

    def hear() -> None:
        try:
            for message in line.received():
                (heartbeat.beat_at,) = BEAT.unpack(message)
        except EOFError:
            loop.remove_reader(line)
            server.end()

    loop.add_reader(line, hear)
    loop.add_signal_handler(signal.SIGTERM, server.end)
    await server.serve([sock])


def _end_with(scheduler: int) -> None:
    """Have the kernel kill this process when the scheduler ends in any way."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != scheduler:  # the scheduler ended before prctl
        sys.exit(0)


def _stand_back(most_memory: int) -> None:
    """Raise the limit of open files, cap the memory, and lower the priority below the scheduler's."""
    _limit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    _limit(resource.RLIMIT_DATA, most_memory)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(RATHER))
    os.nice(5)


def _limit(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (soft, hard))


if __name__ == "__main__":
    main()
