"""A real mosquitto on a loopback port: of this machine, or of Debian's package; ended by its pid."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import aiomqtt

from tests.debian import unpacked

#: The program, and the libraries of it that a bare machine lacks.
PACKAGES = ("mosquitto", "libcjson1", "libdlt2", "libmosquitto1", "libwrap0")
UP_S = 10.0


@cache
def mosquitto() -> tuple[Path, dict[str, str]]:
    """The program, and the environment that it needs."""
    installed = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if installed:
        return Path(installed), dict(os.environ)
    program = unpacked("mosquitto", "sbin/mosquitto", *PACKAGES)
    home = program.parents[2]
    libraries = ":".join(str(path) for path in (home / "usr" / "lib").glob("*-linux-gnu*"))
    return program, {**os.environ, "LD_LIBRARY_PATH": libraries}


def write_password(file: Path, user: str, password: str) -> None:
    """A password file as the broker wants it."""
    program, environment = mosquitto()
    file.write_text(f"{user}:{password}\n")
    hash_it = [str(program.parents[1] / "bin" / "mosquitto_passwd"), "-U", str(file)]
    subprocess.run(hash_it, env=environment, capture_output=True, check=True)
    file.chmod(0o644)


class Mosquitto:
    """One broker, which may be killed and started again with what it kept."""

    def __init__(self, directory: Path, settings: Sequence[str] = ("allow_anonymous true",)) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self._config = directory / "mosquitto.conf"
        lines = [
            f"listener {self.port} 127.0.0.1",
            "persistence true",
            f"persistence_location {directory}/",
            "max_queued_messages 0",
            "user root",
            *settings,
        ]
        self._config.write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it listens."""
        program, environment = mosquitto()
        command = [str(program), "-c", str(self._config)]
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        give_up = time.monotonic() + UP_S
        while True:
            assert self._process.poll() is None, "mosquitto does not start"
            assert time.monotonic() < give_up, "mosquitto does not listen"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.01)

    def stop(self, *, kill: bool = False) -> None:
        """Have it end; it keeps sessions and retained messages on disk unless it is killed."""
        if self._process is not None:
            self._process.kill() if kill else self._process.terminate()
            self._process.wait(timeout=10)
            self._process = None


class Listener:
    """Somebody who hears everything, over cuts, and notes it."""

    def __init__(self, port: int, pattern: str) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self._port = port
        self._pattern = pattern
        self._task: asyncio.Task[None] | None = None
        self.listening = asyncio.Event()

    async def __aenter__(self) -> Listener:
        self._task = asyncio.create_task(self._run())
        await self.listening.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        session = aiomqtt.Client(
            "127.0.0.1", self._port, identifier="listener", protocol=aiomqtt.ProtocolVersion.V311,
            clean_session=False,
        )  # fmt: skip
        while True:
            try:
                async with session:
                    await session.subscribe(self._pattern, 1)
                    self.listening.set()
                    async for message in session.messages:
                        if not message.retain:
                            self.heard.append((str(message.topic), message.payload))
            except aiomqtt.MqttError:
                await asyncio.sleep(0.02)


async def retained(port: int, pattern: str) -> dict[str, bytes]:
    """What a newcomer is told of the past."""
    found: dict[str, bytes] = {}
    async with aiomqtt.Client("127.0.0.1", port, protocol=aiomqtt.ProtocolVersion.V5) as client:
        await client.subscribe(pattern, 1)
        await client.subscribe("end/of/retained", 1)
        await client.publish("end/of/retained", b"", 1)
        async for message in client.messages:
            if str(message.topic) == "end/of/retained":
                return found
            if message.retain:
                found[str(message.topic)] = message.payload
    raise AssertionError("the broker went away")


class Wire:
    """A line to a broker that may be cut, also so that only the acknowledgements are lost."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._writers: list[asyncio.StreamWriter] = []
        self._deaf = False
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Wire:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    def deafen(self) -> None:
        """From now on nothing comes back from the broker, until the line is cut."""
        self._deaf = True

    def cut(self) -> None:
        """End what connections there are; new ones work."""
        self._deaf = False
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers += [writer, far_writer]
        await asyncio.gather(
            self._pump(reader, far_writer, back=False), self._pump(far_reader, writer, back=True)
        )

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if not (back and self._deaf):
                    writer.write(data)
        writer.transport.abort()
