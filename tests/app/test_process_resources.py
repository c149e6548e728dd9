"""What a scheduler asks of its system, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from starburst.app.daemon.process_resources import LARGE_BYTES

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
MEND = "from starburst.app.daemon.process_resources import return_large_blocks; return_large_blocks()"


def mapped(line: str) -> list[int]:
    command = [sys.executable, "-c", BLOCKS.format(line)]
    told = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    if "mallinfo2" in told.stderr:
        pytest.skip("malloc is not that of glibc 2.33 or later")
    return [int(number) for number in told.stdout.split()]


def test_large_blocks_are_memory_of_their_own_also_after_larger_ones_were_freed() -> None:
    there, freed = mapped(MEND)
    assert there > 4 * LARGE_BYTES
    assert freed == 0


def test_else_they_lie_in_the_heap() -> None:
    assert mapped("") == [0, 0]
