"""Keeps the API's process alive beside the scheduler, and takes what it hears. Nothing here waits for it."""

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
from starburst.app.daemon.progress_inbox import Inbox
from starburst.bus.hints import Throughput
from starburst.web.serving.channel import MessageChannel
from starburst.web.serving.listen import url_of
from starburst.web.serving.startup import BEAT, StartupParameters

log = structlog.get_logger()

#: Wall seconds between beats of the scheduler's loop that the process is told of.
BEAT_S = 1.0
#: Wall seconds until a process that has ended is started again: at first, and at most.
AGAIN_S, LONGEST_S = 0.5, 30.0
#: One that has lived for so many wall seconds did well.
WELL_S = 60.0
#: How long one that is told to end may take, wall seconds: it lets streams end.
END_S = 6.0


@asynccontextmanager
async def answering(
    home: Home, settings: HttpConfig, sock: socket.socket | None, inbox: Inbox, *, text: bool
) -> AsyncIterator[None]:
    """Have the API answered on a bound socket meanwhile; `text`: its log is for people."""
    if sock is None:
        yield
        return
    supervisor = ServerSupervisor(home, settings, sock, inbox, text=text)
    log.info("http", url=url_of(sock))
    async with running(supervisor.keep(), "http"):
        yield


class ServerSupervisor:
    """Starts the process, and starts it again when it has ended. Callers wait in line at the socket."""

    def __init__(
        self, home: Home, settings: HttpConfig, sock: socket.socket, inbox: Inbox, *, text: bool
    ) -> None:
        self._home = home
        self._settings = settings
        self._text = text
        self._sock = sock
        self._inbox = inbox

    async def keep(self) -> None:
        """Until cancelled."""
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
        """One life of the process; how it ended."""
        ours, theirs = MessageChannel.pair()
        loop = asyncio.get_running_loop()
        process: Process | None = None
        try:
            process = await self._start(theirs)
            theirs.close()
            loop.add_reader(ours, self._hear, ours)
            while process.returncode is None:
                ours.say(BEAT.pack(time.monotonic()))
                with move_on_after(BEAT_S):
                    await process.wait()
            code = process.returncode
            return f"signal {-code}" if code < 0 else f"exit code {code}"
        except OSError as error:  # no files, no memory, no processes left: that passes
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
        )
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "starburst.web.serving.process",
            parameters.model_dump_json(),
            stdin=DEVNULL,
            start_new_session=True,  # Ctrl-C is meant for the scheduler, which ends it
            pass_fds=(parameters.socket, parameters.line),
            cwd=self._home.root,  # where nobody else puts modules
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        )

    def _hear(self, line: MessageChannel) -> None:
        try:
            for message in line.heard():
                with suppress(ValidationError):
                    self._inbox.put(Throughput.model_validate_json(message))
        except EOFError:
            asyncio.get_running_loop().remove_reader(line)


async def _ended(process: Process) -> None:
    """Have a process end, and see to it that it does."""
    with suppress(ProcessLookupError):
        process.terminate()
    with move_on_after(END_S):
        await process.wait()
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
