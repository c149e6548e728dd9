"""Spans on their way to a collector, out of the scheduler's way: a bounded queue and a thread of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from threading import Thread

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

log = structlog.get_logger()

#: Spans that wait to be sent at most; then the oldest are given up. About 2 KB each.
QUEUE, BATCH = 8192, 512
#: Wall seconds between sends, and for what is left when we go. The exporter tries a batch for 10 s.
SEND_S, FLUSH_S = 2.0, 3.0
#: And for a try to be given up.
ABORT_S = 0.2


class Collector:
    """Takes spans in, at once, and sends them when it can. What cannot be sent is given up."""

    def __init__(self, endpoint: str, headers: Callable[[], Mapping[str, str]]) -> None:
        self._sender = _Sender(endpoint, headers)
        self._batches = BatchSpanProcessor(
            self._sender,
            max_queue_size=QUEUE,
            max_export_batch_size=BATCH,
            schedule_delay_millis=1000 * SEND_S,
        )

    def add(self, span: ReadableSpan) -> None:
        """To be sent."""
        self._batches.on_end(span)

    def close(self) -> None:
        """Send what is left, for `FLUSH_S` at most."""
        flush = Thread(target=self._batches.shutdown, name="tracing-flush", daemon=True)
        flush.start()
        flush.join(FLUSH_S)
        self._sender.shutdown()
        flush.join(ABORT_S)
        if not flush.is_alive():  # else it has still something to say
            self._sender.said.close()


class _Sender(SpanExporter):
    """The exporter of OpenTelemetry, which says what goes wrong once, not at every try."""

    def __init__(self, endpoint: str, headers: Callable[[], Mapping[str, str]]) -> None:
        self._endpoint = endpoint
        self._headers = headers
        self._exporter: SpanExporter | None = None
        self._sent_along: Mapping[str, str] = {}
        self._closed = False
        #: Spans given up since the last that arrived.
        self._lost = 0
        self.said = _Said()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch; an error ends in the log, and nowhere else."""
        if self._closed:
            return SpanExportResult.FAILURE
        self.said.first = ""
        try:
            result = self._to_collector().export(spans)
        except Exception as error:
            result, self.said.first = SpanExportResult.FAILURE, str(error) or type(error).__name__
        if result is not SpanExportResult.SUCCESS:
            if not self._lost:
                log.warning("tracing-failed", endpoint=self._endpoint, error=self.said.first)
            self._lost += len(spans)
        elif self._lost:
            log.info("tracing-resumed", endpoint=self._endpoint, lost=self._lost)
            self._lost = 0
        return result

    def shutdown(self) -> None:
        """Give up what is being sent, too. May be called again."""
        if not self._closed:
            self._closed = True
            if self._exporter is not None:
                self._exporter.shutdown()

    def _to_collector(self) -> SpanExporter:
        """With the headers as their file has them now.

        Raises:
            UserError: that cannot be used.
        """
        headers = self._headers()
        if self._exporter is None or headers != self._sent_along:
            if self._exporter is not None:
                self._exporter.shutdown()
            self._exporter = OTLPSpanExporter(endpoint=self._endpoint, headers=dict(headers))
            self._sent_along = headers
        return self._exporter


class _Said(logging.Handler):
    """What OpenTelemetry logs, at every try and for every span that it drops: kept out of the log."""

    def __init__(self) -> None:
        super().__init__()
        #: The exporter's first line since it was last cleared: the others are consequences.
        self.first = ""
        self._logger = logging.getLogger("opentelemetry")
        self._propagated, self._logger.propagate = self._logger.propagate, False
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Take it in."""
        if record.name.startswith("opentelemetry.exporter"):
            self.first = self.first or record.getMessage()

    def close(self) -> None:
        """Let others hear it again."""
        self._logger.removeHandler(self)
        self._logger.propagate = self._propagated
        super().close()
