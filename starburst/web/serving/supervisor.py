"""Supervises the API process: starts it, restarts it with a backoff, and receives its messages."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import structlog
from anyio import move_on_after
from pydantic import ValidationError

from starburst.aio import Backoff, running
from starburst.app.config.home import Home
from starburst.app.config.http import HttpConfig
from starburst.app.daemon.progress_inbox import ProgressInbox
from starburst.bus.hints import ThroughputHint
from starburst.web.serving.channel import BEAT, MessageChannel, StartupParameters
from starburst.web.serving.listen import url_of

log = structlog.get_logger()

#: Wall seconds between two heartbeats.
BEAT_S = 1.0
#: Backoff between restarts, wall seconds: first and longest.
AGAIN_S, LONGEST_S = 0.5, 30.0
#: A process that lived so many wall seconds resets the backoff.
WELL_S = 60.0
#: Wall seconds that a terminated process gets before it is killed; its streams end meanwhile.
END_S = 6.0


@asynccontextmanager
async def answering(
    home: Home,
    settings: HttpConfig,
    sock: socket.socket | None,
    inbox: ProgressInbox,
    replica: str,
    *,
    text: bool,
) -> AsyncIterator[None]:
    """Serve the API on a bound socket while the context is open. Its log is JSON, or `text` for people.

    `replica` is the name of this process in the store's row of the leader.
    """
    if sock is None:
        yield
        return
    supervisor = ServerSupervisor(home, settings, sock, inbox, replica, text=text)
    log.info("http", url=url_of(sock))
    async with running(supervisor.keep(), "http"):
        yield


class ServerSupervisor:
    """Starts the API process and restarts it when it ends. The socket stays open, so clients wait."""

    def __init__(
        self,
        home: Home,
        settings: HttpConfig,
        sock: socket.socket,
        inbox: ProgressInbox,
        replica: str = "",
        *,
        text: bool,
    ) -> None:
        self._home = home
        self._replica = replica
        self._settings = settings
        self._text = text
        self._sock = sock
        self._inbox = inbox

    async def keep(self) -> None:
        """Supervise until cancelled."""
        backoff, loop = Backoff(AGAIN_S, LONGEST_S), asyncio.get_running_loop()
        while True:
            began = loop.time()
            how = await self._live()
            if loop.time() - began >= WELL_S:
                backoff.reset()
            pause_s = backoff.next_s()
            log.error("http-ended", how=how, again_s=pause_s)
            await asyncio.sleep(pause_s)

    async def _live(self) -> str:
        """Run one process to its end; a description of that end."""
        ours, theirs = MessageChannel.pair()
        loop = asyncio.get_running_loop()
        process: Process | None = None
        try:
            process = await self._start(theirs)
            theirs.close()
            loop.add_reader(ours, self._hear, ours)
            while process.returncode is None:
                ours.send(BEAT.pack(time.monotonic()))
                with move_on_after(BEAT_S):
                    await process.wait()
            code = process.returncode
            return f"signal {-code}" if code < 0 else f"exit code {code}"
        except OSError as error:  # no files, memory or processes are left: temporary
            return f"it could not be started: {error}"
        finally:
            loop.remove_reader(ours)
            for line in (ours, theirs):
                line.close()
            if process is not None:
                await _ended(process)

    async def _start(self, line: MessageChannel) -> Process:
        parameters = StartupParameters(
            home=self._home.root,
            http=self._settings,
            text=self._text,
            socket=self._sock.fileno(),
            line=line.fileno(),
            scheduler_pid=os.getpid(),
            replica=self._replica,
        )
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "starburst.web.serving.process",
            parameters.model_dump_json(),
            stdin=DEVNULL,
            start_new_session=True,  # the scheduler, not Ctrl-C, ends it
            pass_fds=(parameters.socket, parameters.line),
            cwd=self._home.root,  # a directory in which no other user can place modules
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        )

    def _hear(self, line: MessageChannel) -> None:
        try:
            for message in line.received():
                with suppress(ValidationError):
                    self._inbox.put(ThroughputHint.model_validate_json(message))
        except EOFError:
            asyncio.get_running_loop().remove_reader(line)


async def _ended(process: Process) -> None:
    """Terminate a process, and kill it after `END_S`."""
    with suppress(ProcessLookupError):
        process.terminate()
    with move_on_after(END_S):
        await process.wait()
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
