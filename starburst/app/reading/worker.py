"""`python -m starburst.app.reading.worker`: a worker process that parses untrusted manifests.

rlimits bound its memory and CPU time and forbid writing files; it ends when its parent closes the pipe.
Requests and answers are JSON in length-prefixed frames.
"""

from __future__ import annotations

import math
import os
import resource
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from starburst.app.reading.frames import receive, send
from starburst.app.reading.requests import FoundObject, ManifestTexts, ReadAnswer, read
from starburst.store import codec

#: Bytes of address space; about 150 MB of it are the interpreter and its libraries.
MEMORY = 512 * 1024 * 1024
#: CPU seconds per request.
CPU_S = 20
TOO_MUCH = "takes too much memory to read; make it smaller"


def serve(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until the pipe is closed."""
    while (frame := receive(questions)) is not None:
        spent = time.process_time()
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(spent) + CPU_S, resource.RLIM_INFINITY))
        send(answers, codec.encode(_answer(frame)).encode())


def _answer(frame: bytes) -> ReadAnswer:
    try:
        kind, body = frame[:1], frame[1:].decode()
        return read(codec.decode(ManifestTexts, body) if kind == b"t" else codec.decode(FoundObject, body))
    except MemoryError:
        return ReadAnswer(problems=(TOO_MUCH,))
    except Exception as error:  # a bug: the traceback goes to the parent's log
        sys.excepthook(type(error), error, error.__traceback__)
        return ReadAnswer(problems=("Starburst cannot read it; its log says why",))


def main() -> None:
    """Set the limits, then serve."""
    for kind, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))
    with suppress(OSError):  # the kernel ends this process first when memory runs out
        Path("/proc/self/oom_score_adj").write_text("1000")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints of libraries must not disturb the frames
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
