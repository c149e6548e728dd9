"""Runs local programs such as ssh: with bounded output, in bounded time, and leaving no process behind."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import tempfile
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, TypeVar

import anyio

from starburst.clouds.sky.access.answers import ANSWER_BYTES, WORDS_BYTES, AnswerError
from starburst.clouds.sky.access.errors import in_time
from starburst.clouds.sky.access.ports import LocalError
from starburst.runs.inherited_limits import UMASK

T = TypeVar("T")

#: Wall seconds: for a killed program to end; and between looks at the size of its output.
END_S, LOOK_S = 5.0, 0.25

#: The program that gets another umask than this process.
SSH = "ssh"
_WITH_UMASK = f'umask {UMASK:03o} && exec "$@"'


async def communicate(argv: Sequence[str], data: bytes) -> tuple[int, bytes, bytes]:
    """Run ssh with `data` on stdin; its exit code, stdout and stderr.

    Files instead of pipes: a pipe stays open for as long as any child of the program has it.

    Raises:
        AnswerError: it wrote too much.
    """
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as said,
        tempfile.TemporaryFile() as words,
    ):
        given.write(data)
        given.seek(0)
        process = await _start(*argv, stdin=given, stdout=said, stderr=words)
        await _ended([process], {said: ANSWER_BYTES, words: WORDS_BYTES})
        return process.returncode or 0, _read(said), _read(words)


async def pipe(
    source: Sequence[str], sink: Sequence[str], fds: Sequence[int] = ()
) -> list[tuple[int, bytes]]:
    """Run `source | sink`; exit code and stderr of each. `source` inherits the file descriptors `fds`.

    Raises:
        AnswerError: one of them wrote too much to stderr.
    """
    read_end, write_end = os.pipe()
    with tempfile.TemporaryFile() as first_words, tempfile.TemporaryFile() as second_words:
        started: list[asyncio.subprocess.Process] = []
        try:
            for argv, stdin, stdout, words, passed in (
                (source, asyncio.subprocess.DEVNULL, write_end, first_words, fds),
                (sink, read_end, asyncio.subprocess.DEVNULL, second_words, ()),
            ):
                start = asyncio.create_subprocess_exec if argv[0] != SSH else _start
                started.append(await start(*argv, stdin=stdin, stdout=stdout, stderr=words, pass_fds=passed))
        except BaseException:
            for process in started:
                await _end(process)
            raise
        finally:
            os.close(read_end)
            os.close(write_end)
        await _ended(started, {first_words: WORDS_BYTES, second_words: WORDS_BYTES})
        words_of = zip(started, (first_words, second_words), strict=True)
        return [(process.returncode or 0, _read(words)) for process, words in words_of]


async def within(limit_s: float, call: Coroutine[Any, Any, T], what: str) -> T:
    """What a call returns.

    Raises:
        SlowError: it took longer; it has ended all the same.
        LocalError: there is no such program here, no room on a disk, or the like.
    """
    try:
        return await in_time(limit_s, call, f"{what}:")
    except OSError as error:
        raise LocalError(f"{what}: {error}") from error


async def _start(*argv: str, **files: Any) -> asyncio.subprocess.Process:
    """Start ssh, with the umask from before `up`.

    ssh runs a person's ProxyCommand, which may expect files that it makes to be read by others. A shell
    sets the umask: not every event loop has it as an option (uvloop has not).
    """
    if shutil.which(argv[0]) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
    return await asyncio.create_subprocess_exec("sh", "-c", _WITH_UMASK, "sh", *argv, **files)


async def _ended(processes: Sequence[asyncio.subprocess.Process], most: Mapping[IO[bytes], int]) -> None:
    """Wait until all processes have ended; kills them once a file exceeds its limit in bytes."""
    try:
        running = True
        while running:
            with anyio.move_on_after(LOOK_S) as look:
                for process in processes:
                    await process.wait()
            running = look.cancelled_caught
            for file, limit in most.items():
                if os.fstat(file.fileno()).st_size > limit:
                    raise AnswerError(f"its machine answered more than {limit >> 10} KiB")
    finally:
        for process in processes:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a process if it still runs, and wait for its end."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        with anyio.move_on_after(END_S, shield=True):
            await process.wait()


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
