"""Calls, in a job, the function that came along, and writes its result into the job's log.

This file goes along as it is: it imports the standard library only and runs on Python 3.8 or newer. The log
is the channel that every site has, and who may read it is known.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import pickle
import sys
import traceback
import zlib

#: Bytes of a result, pickled and compressed: its lines fit the 64 KiB that are kept of the end of a
#: log that is too long.
MAX_RESULT = 40 * 1024
#: Letters of base64 a line: a shorter line than a pipe writes in one piece, whatever else is printed.
LINE = 3000
#: Files beside this one: the interpreter that made the call, and the pickled call.
ORIGIN, CALL = "origin.json", "call.pickle"
VALUE, ERROR, UNKEPT = "value", "error", "unkept"


def mark(key: bytes) -> str:
    """How the lines of a result begin: nobody who does not know the key can print them."""
    return "starburst-result-" + hashlib.sha256(key).hexdigest()[:12]


def sealed(key: bytes, kind: str, pickled: bytes, text: str) -> bytes:
    """A result that says who wrote it: what is unpickled must come from our own job."""
    packed = zlib.compress(pickle.dumps((kind, pickled, text), 4))
    return hmac.new(key, packed, hashlib.sha256).digest() + packed


def main() -> int:
    """Call the function; the exit code of the job."""
    here = os.path.dirname(os.path.abspath(__file__))
    log = os.dup(1)  # the function may redirect its output
    with open(os.path.join(here, ORIGIN), encoding="utf-8") as file:
        origin = json.load(file)
    here_is = "{}.{}".format(*sys.version_info[:2])
    if sys.version_info < (3, 8):  # noqa: UP036 - the job's Python is not ours
        sys.exit("starburst: a function needs Python 3.8 or newer; the job has " + here_is)
    if origin["by_value"] and here_is != origin["python"]:
        sys.exit(origin["other_python"].format(here=here_is))
    # `here`, from which Python was started, comes first: it has the cloudpickle that made the call.
    sys.path[1:1] = [os.getcwd(), *(os.path.abspath(path) for path in origin["paths"])]
    key = bytes.fromhex(origin["key"])
    try:
        with open(os.path.join(here, CALL), "rb") as file:
            function, arguments, keywords = pickle.load(file)
        value = function(*arguments, **keywords)
    except Exception as error:
        frames = error.__traceback__.tb_next if error.__traceback__ else None
        text = "".join(traceback.format_exception(type(error), error, frames))
        _say(text)
        _write(log, key, sealed(key, ERROR, _pickled_error(error), text[-4096:]))
        return 1
    try:
        result = sealed(key, VALUE, _dumps(value), "")
        problem = "" if len(result) <= MAX_RESULT else _too_large(len(result))
    except Exception as error:
        problem = f"it cannot be pickled ({type(error).__name__}: {str(error)[:200]})"
    if problem:
        _say(f"starburst: the value does not come back: {problem}\n")
        result = sealed(key, UNKEPT, b"", problem)
    _write(log, key, result)
    return 0


def _write(log: int, key: bytes, result: bytes) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the function may have closed or replaced it
            stream.flush()
    text = base64.b64encode(result).decode()
    parts = [text[start : start + LINE] for start in range(0, len(text), LINE)]
    for number, part in enumerate(parts, 1):
        os.write(log, f"{mark(key)} {number}/{len(parts)} {part}\n".encode())


def _say(text: str) -> None:
    """Write to the job's stderr, whatever became of Python's."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.write(text)


def _pickled_error(error: Exception) -> bytes:
    """The exception; empty if it cannot be pickled, or not be unpickled again, or is large."""
    try:
        pickled = _dumps(error)
        pickle.loads(pickled)
    except Exception:
        return b""
    return pickled if len(zlib.compress(pickled)) <= MAX_RESULT - 8192 else b""


def _dumps(value: object) -> bytes:
    import cloudpickle  # noqa: PLC0415 - it came along

    pickled: bytes = cloudpickle.dumps(value, protocol=5)
    return pickled


def _too_large(size: int) -> str:
    bound = f"it is {-(-size // 1024)} KiB pickled and compressed, and {MAX_RESULT // 1024} KiB come back"
    return bound + "; write it to a volume or a bucket, and return where it is"


if __name__ == "__main__":
    sys.exit(main())
