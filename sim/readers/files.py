"""Text of a trace file, gzipped or plain; a fault of the file itself raises one SimulationError."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from sim.errors import SimulationError

_GZIP = b"\x1f\x8b"


@contextmanager
def open_text(path: Path, errors: str = "strict") -> Iterator[TextIO]:
    """The file's text, unzipped if its content is gzip, whatever its name; `errors` as in `bytes.decode`."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            plain = gzip.GzipFile(fileobj=raw) if packed else raw
            with io.TextIOWrapper(plain, encoding="utf-8-sig", errors=errors, newline="") as text:
                yield text
    except UnicodeDecodeError as error:
        raise SimulationError(f"{path}: not UTF-8 text ({error.reason}): save it as UTF-8 or gzip") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise SimulationError(f"{path}: damaged gzip data: get the file again") from None
    except OSError as error:
        raise SimulationError(f"{path}: cannot be read: {error.strerror or error}") from None
