"""The spans of decisions, if the config sends them to a collector."""

from __future__ import annotations

from importlib.util import find_spec

from starburst.app.config import Config
from starburst.app.daemon.observers import StepObserver
from starburst.app.errors import UserError
from starburst.domain.clock import Pace
from starburst.store.store import Store


def tracing_of(config: Config, store: Store, pace: Pace) -> list[StepObserver]:
    """The observers that make the spans; none without a collector.

    Raises:
        UserError: the extra is not installed.
    """
    if config.tracing.endpoint is None:
        return []
    need_otel()
    from starburst.app.telemetry.tracing import Tracing  # noqa: PLC0415 - an optional dependency

    return [Tracing(config.tracing, str(store.fact("controller")), pace)]


def need_otel() -> None:
    """Check the dependencies of `starburst.app.telemetry.tracing`; called before it is imported.

    Raises:
        UserError: the extra is not installed.
    """
    try:  # both modules: other packages may have installed a part of opentelemetry
        there = all(map(find_spec, ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")))
    except ModuleNotFoundError:
        there = False
    if not there:
        raise UserError("tracing.endpoint: needs the extra: pip install 'starburst-hybrid[otel]'")
