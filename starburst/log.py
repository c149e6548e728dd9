"""The log of long-running programs: structured, on standard error."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog

from starburst.visible import visible


def set_up_log(*, text: bool) -> None:
    """Configure the log: lines for people if `text`, else JSON."""
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            pad_event_to=12,
            exception_formatter=structlog.dev.plain_traceback,  # others print variables, which may be secret
        )
        if text
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper("%H:%M:%S" if text else "iso", utc=not text),
            *([] if text else [structlog.processors.format_exc_info]),  # ConsoleRenderer formats them itself
            _made_visible,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Lossy(sys.stderr))),
        cache_logger_on_first_use=False,
    )


class _Lossy:
    """A stream that drops text it cannot write: a log on a full disk must not stop the program."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):  # ValueError: the stream is closed
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


def _made_visible(
    _logger: structlog.typing.WrappedLogger, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Escape control characters: texts are untrusted, and the log may be read on a terminal."""
    return {key: visible(value, "\n\t") if isinstance(value, str) else value for key, value in event.items()}
