"""What a scheduler asks of its system, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from starburst.app.daemon.process_resources import HEAPS, LARGE_BYTES

#: Bytes that lie in blocks of their own, after a block that is 16 times as large as theirs was freed.
BLOCKS = f"""
import ctypes
libc = ctypes.CDLL(None)
class Info(ctypes.Structure):
    _fields_ = [(str(n), ctypes.c_size_t) for n in range(10)]
libc.mallinfo2.restype = Info
def mapped(): return getattr(libc.mallinfo2(), "4")
{{}}
large = bytes({16 * LARGE_BYTES})
del large
before = mapped()
blocks = [bytes({LARGE_BYTES + 1}) for _ in range(4)]
print(mapped() - before)
del blocks
print(mapped() - before)
"""
#: As many threads as there are heaps, and eight more, each with memory of its own.
THREADS = f"""
import ctypes, threading
{{}}
kept, together = [], threading.Barrier({HEAPS + 8})
def work():
    together.wait()
    kept.append(bytes(50_000))
    together.wait()
threads = [threading.Thread(target=work) for _ in range({HEAPS + 8})]
for one in threads: one.start()
for one in threads: one.join()
ctypes.CDLL(None).malloc_stats()
"""
MEND = "from starburst.app.daemon.process_resources import keep_memory_flat; keep_memory_flat()"


def told(program: str, line: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program.format(line)]
    found = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    if "undefined symbol" in found.stderr:
        pytest.skip("malloc is not that of glibc 2.33 or later")
    return found


def mapped(line: str) -> list[int]:
    return [int(number) for number in told(BLOCKS, line).stdout.split()]


def heaps(line: str) -> int:
    return told(THREADS, line).stderr.count("Arena ")


def test_large_blocks_are_memory_of_their_own_also_after_larger_ones_were_freed() -> None:
    there, freed = mapped(MEND)
    assert there > 4 * LARGE_BYTES
    assert freed == 0


def test_threads_share_a_few_heaps() -> None:
    assert heaps(MEND) == HEAPS


def test_else_large_blocks_lie_in_the_heap_and_each_thread_has_one_of_its_own() -> None:
    assert mapped("") == [0, 0]
    assert heaps("") > HEAPS
