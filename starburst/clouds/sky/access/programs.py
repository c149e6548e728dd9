"""Programs that talk to machines: what they say is bounded, as is their time, and none is left behind."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, TypeVar

from starburst.clouds.sky.access.answers import ANSWER_BYTES, WORDS_BYTES, AnswerError
from starburst.clouds.sky.access.ports import LocalError, SkyUnreachableError

T = TypeVar("T")

#: Wall seconds: for the end of a program that was given up; and between looks at how much it has said.
END_S, LOOK_S = 5.0, 0.25


async def communicate(argv: Sequence[str], data: bytes) -> tuple[int, bytes, bytes]:
    """Exit code, output, complaints. By files, for pipes stay open while a child of the program has them.

    Raises:
        AnswerError: it said too much.
    """
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as said,
        tempfile.TemporaryFile() as words,
    ):
        given.write(data)
        given.seek(0)
        process = await asyncio.create_subprocess_exec(*argv, stdin=given, stdout=said, stderr=words)
        await _ended([process], {said: ANSWER_BYTES, words: WORDS_BYTES})
        return process.returncode or 0, _read(said), _read(words)


async def pipe(
    source: Sequence[str], sink: Sequence[str], fds: Sequence[int] = ()
) -> list[tuple[int, bytes]]:
    """Of both ends of `source | sink`: the exit code, and what it complained of. `source` has these `fds`.

    Raises:
        AnswerError: one of them complained of too much.
    """
    read_end, write_end = os.pipe()
    with tempfile.TemporaryFile() as first_words, tempfile.TemporaryFile() as second_words:
        started: list[asyncio.subprocess.Process] = []
        try:
            for argv, stdin, stdout, words, passed in (
                (source, asyncio.subprocess.DEVNULL, write_end, first_words, fds),
                (sink, read_end, asyncio.subprocess.DEVNULL, second_words, ()),
            ):
                made = await asyncio.create_subprocess_exec(
                    *argv, stdin=stdin, stdout=stdout, stderr=words, pass_fds=passed
                )
                started.append(made)
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
        SkyUnreachableError: it took longer; it has ended all the same.
        LocalError: there is no such program here, no room on a disk, or the like.
    """
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait([task], timeout=limit_s)
        if not task.done():
            raise SkyUnreachableError(f"{what}: no answer within {limit_s:g} s")
        return task.result()
    except OSError as error:
        raise LocalError(f"{what}: {error}") from error
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=END_S)


async def _ended(processes: Sequence[asyncio.subprocess.Process], most: Mapping[IO[bytes], int]) -> None:
    """Wait for their end, which comes at once for who writes more into a file than it should."""
    waiting = {asyncio.ensure_future(process.wait()) for process in processes}
    try:
        left = waiting
        while left:
            _, left = await asyncio.wait(left, timeout=LOOK_S)
            for file, limit in most.items():
                if os.fstat(file.fileno()).st_size > limit:
                    raise AnswerError(f"its machine answered more than {limit >> 10} KiB")
    finally:
        for wait in waiting:
            wait.cancel()
        for process in processes:
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Of a process of ours that may still run; shielded from our own cancellation by being short."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
