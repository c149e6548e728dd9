"""The log of programs that run on: structured, on standard error."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog

from starburst.visible import visible


def set_up_log(*, text: bool) -> None:
    """Lines for people, or JSON for machines."""
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            pad_event_to=12,
            exception_formatter=structlog.dev.plain_traceback,  # others show variables, which may be secret
        )
        if text
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper("%H:%M:%S" if text else "iso", utc=not text),
            *([] if text else [structlog.processors.format_exc_info]),  # the other renderer has its own
            _made_visible,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Lossy(sys.stderr))),
        cache_logger_on_first_use=False,
    )


class _Lossy:
    """A stream that drops what it cannot take: a log on a full disk must not end what it tells of."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):  # ValueError: it was closed
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


def _made_visible(
    _logger: structlog.typing.WrappedLogger, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Texts may be a user's or a machine's, and the log may be read on a terminal."""
    return {key: visible(value, "\n\t") if isinstance(value, str) else value for key, value in event.items()}
