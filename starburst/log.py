"""The log of programs that run on: structured, on standard error."""

from __future__ import annotations

import logging
import sys

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
            _made_visible,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def _made_visible(
    _logger: structlog.typing.WrappedLogger, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Texts may be a user's or a machine's, and the log may be read on a terminal."""
    return {key: visible(value, "\n\t") if isinstance(value, str) else value for key, value in event.items()}
