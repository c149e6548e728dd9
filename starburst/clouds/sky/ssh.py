"""`Contact` over ssh: one connection per machine, kept open and shared by all exchanges (ControlMaster)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from starburst.clouds.sky import guest, guest_ray, guest_report, guest_run, guest_switch, guest_tasks
from starburst.clouds.sky.port import Access, SkyError, UnreachableError
from starburst.runs import shim

T = TypeVar("T")

#: Wall seconds; the last for the end of a program that was given up.
CONNECT_S, CALL_S, TRANSFER_S, END_S = 10, 30.0, 3600.0, 5.0
#: ssh's own failures, and what a shell says of a missing file that Python was to run.
SSH_FAILED, NO_AGENT = 255, 2
NO_DIRECTORY = 44

#: SkyPilot's own Python on a machine, which is 3.9 or newer whatever the image has; else the image's.
PYTHON = '"$([ -s ~/.sky/python_path ] && cat ~/.sky/python_path || command -v python3)"'

#: The agent's files, which lie side by side there.
SOURCES = tuple(
    Path(str(module.__file__))
    for module in (guest, guest_ray, guest_report, guest_run, guest_switch, guest_tasks, shim)
)


def agent_path() -> str:
    """Where the agent lies on a machine. Each version has a place of its own: none changes while in use."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()[:12]
    return f"~/starburst/agent-{digest}"


class SshContact:
    """Machines by ssh. Keys are kept below `root`, for their owner only."""

    def __init__(self, root: Path) -> None:
        self._keys = root / "keys"
        self._keys.mkdir(parents=True, exist_ok=True)
        self._keys.chmod(0o700)
        # A socket's path is at most 107 bytes long, which a home directory's may exceed.
        self._sockets = Path(tempfile.mkdtemp(prefix="sb-ssh-"))
        self._agent = agent_path()

    def close(self) -> None:
        """Forget the connections; they end a minute after their last use."""
        shutil.rmtree(self._sockets, ignore_errors=True)

    async def call(self, cluster: str, access: Access, verb: str, payload: Mapping[str, Any]) -> Any:
        """See `Contact`."""
        command = f"exec {PYTHON} -I {self._agent}/guest.py {verb}"
        data = json.dumps(payload).encode()
        code, out, err = await self._run(cluster, access, command, data)
        if code == NO_AGENT:
            await self._install(cluster, access)
            code, out, err = await self._run(cluster, access, command, data)
        if code != 0:
            raise SkyError(f"{cluster}: the agent failed: {_last_line(err)}")
        try:
            return json.loads(out)
        except ValueError:
            raise SkyError(f"{cluster}: the agent's answer is no JSON: {_last_line(out)[:200]}") from None

    async def send(self, cluster: str, access: Access, local: Path, remote: str) -> None:
        """See `Contact`."""
        new, old = f"{remote}.new", f"{remote}.old"
        unpack = (
            f"rm -rf {new} {old} && mkdir -p {new} && tar -C {new} -xf - && "
            f"{{ [ ! -e {remote} ] || mv {remote} {old}; }} && mv {new} {remote} && rm -rf {old}"
        )
        pack = ["tar", "-C", str(local), "-cf", "-", "."]
        pipe = _pipe(pack, self._ssh(access, unpack))
        _, (code, err) = await _within(TRANSFER_S, pipe, f"{cluster}: sending")
        self._check(cluster, code, err)

    async def fetch(self, cluster: str, access: Access, remote: str, local: Path) -> None:
        """See `Contact`."""
        local.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{local.name}-", dir=local.parent))
        try:
            pack = f"[ -d {remote} ] || exit {NO_DIRECTORY}; exec tar -C {remote} -cf - ."
            unpack = ["tar", "-C", str(new), "--no-same-owner", "-xf", "-"]
            pipe = _pipe(self._ssh(access, pack), unpack)
            (code, err), (unpacked, why) = await _within(TRANSFER_S, pipe, f"{cluster}: fetching")
            if code == NO_DIRECTORY:
                return
            self._check(cluster, code, err)
            self._check(cluster, unpacked, why)
            _replace(new, local)
        finally:
            shutil.rmtree(new, ignore_errors=True)

    async def _install(self, cluster: str, access: Access) -> None:
        """Put the agent there, whole or not at all."""
        with tempfile.TemporaryDirectory() as folder:
            for source in SOURCES:
                (Path(folder) / source.name).write_bytes(source.read_bytes())
            await self.send(cluster, access, Path(folder), self._agent)

    async def _run(self, cluster: str, access: Access, command: str, data: bytes) -> tuple[int, bytes, bytes]:
        code, out, err = await _within(CALL_S, _communicate(self._ssh(access, command), data), cluster)
        if code == SSH_FAILED:
            raise UnreachableError(f"{cluster}: {_last_line(err)}")
        return code, out, err

    @staticmethod
    def _check(cluster: str, code: int, err: bytes) -> None:
        if code == SSH_FAILED:
            raise UnreachableError(f"{cluster}: {_last_line(err)}")
        if code != 0:
            raise SkyError(f"{cluster}: a transfer failed: {_last_line(err)}")

    def _ssh(self, access: Access, command: str) -> list[str]:
        options = {
            "BatchMode": "yes",
            "IdentitiesOnly": "yes",
            "IdentityFile": str(self._key_file(access.private_key)),
            # SkyPilot has no host keys to compare with either: addresses of rented machines are used again.
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "LogLevel": "ERROR",
            "ConnectTimeout": str(CONNECT_S),
            "ServerAliveInterval": "5",
            "ServerAliveCountMax": "3",
            "ControlMaster": "auto",
            "ControlPath": str(self._sockets / "%C"),
            "ControlPersist": "60",
        }
        if access.proxy_command:
            options["ProxyCommand"] = access.proxy_command
        flags = [part for key, value in options.items() for part in ("-o", f"{key}={value}")]
        where = ["-p", str(access.port), f"{access.user}@{access.host}"]
        return ["ssh", "-F", "/dev/null", *flags, *where, f"bash -c {shlex.quote(command)}"]

    def _key_file(self, private_key: str) -> Path:
        path = self._keys / hashlib.sha256(private_key.encode()).hexdigest()[:16]
        if not path.exists():
            staging = path.with_suffix(f".{os.getpid()}")
            staging.touch(0o600)
            staging.write_text(private_key, encoding="utf-8")
            staging.rename(path)
        return path


async def _communicate(argv: list[str], data: bytes) -> tuple[int, bytes, bytes]:
    """Exit code, output, complaints. By files, for pipes stay open while a child of the program has them."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as said,
        tempfile.TemporaryFile() as words,
    ):
        given.write(data)
        given.seek(0)
        process = await asyncio.create_subprocess_exec(*argv, stdin=given, stdout=said, stderr=words)
        try:
            code = await process.wait()
        finally:
            await _end(process)
        return code, _read(said), _read(words)


async def _pipe(source: list[str], sink: list[str]) -> list[tuple[int, bytes]]:
    """Of both ends of `source | sink`: the exit code, and what it complained of."""
    read_end, write_end = os.pipe()
    with tempfile.TemporaryFile() as first_words, tempfile.TemporaryFile() as second_words:
        try:
            first = await asyncio.create_subprocess_exec(
                *source, stdin=asyncio.subprocess.DEVNULL, stdout=write_end, stderr=first_words
            )
            second = await asyncio.create_subprocess_exec(
                *sink, stdin=read_end, stdout=asyncio.subprocess.DEVNULL, stderr=second_words
            )
        finally:
            os.close(read_end)
            os.close(write_end)
        try:
            codes = (await first.wait(), await second.wait())
        finally:
            await _end(first)
            await _end(second)
        return [(code, _read(words)) for code, words in zip(codes, (first_words, second_words), strict=True)]


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


async def _within(limit_s: float, call: Coroutine[Any, Any, T], what: str) -> T:
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait([task], timeout=limit_s)
        if not task.done():
            raise UnreachableError(f"{what}: no answer within {limit_s:g} s")
        return task.result()
    except OSError as error:  # no ssh here, no more processes, a full disk: the next try may do better
        raise UnreachableError(f"{what}: {error}") from error
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=END_S)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Of a process of ours that may still run; shielded from our own cancellation by being short."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _replace(new: Path, local: Path) -> None:
    old = local.with_name(f".{local.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if local.exists():
        local.rename(old)
    new.chmod(0o755)
    new.rename(local)
    shutil.rmtree(old, ignore_errors=True)


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "without a word"
