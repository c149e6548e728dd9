"""Exports spans to a collector through a bounded queue and a thread, so that the scheduler never waits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from threading import Thread

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

log = structlog.get_logger()

#: Largest numbers of queued spans, beyond which the oldest are dropped, and of spans per batch. A span has
#: about 2 KB.
QUEUE, BATCH = 8192, 512
#: Wall seconds between sends, and for the rest of the queue at shutdown. The exporter tries a batch for 10 s.
SEND_S, FLUSH_S = 2.0, 3.0
#: Wall seconds for an aborted send to end.
ABORT_S = 0.2


class Collector:
    """Queues spans without blocking and sends them in batches; spans that cannot be sent are dropped."""

    def __init__(self, endpoint: str, headers: Callable[[], Mapping[str, str]]) -> None:
        self._sender = _Sender(endpoint, headers)
        self._batches = BatchSpanProcessor(
            self._sender,
            max_queue_size=QUEUE,
            max_export_batch_size=BATCH,
            schedule_delay_millis=1000 * SEND_S,
        )

    def add(self, span: ReadableSpan) -> None:
        """Queue a span."""
        self._batches.on_end(span)

    def close(self) -> None:
        """Send the queued spans, for at most `FLUSH_S`."""
        flush = Thread(target=self._batches.shutdown, name="tracing-flush", daemon=True)
        flush.start()
        flush.join(FLUSH_S)
        self._sender.shutdown()
        flush.join(ABORT_S)
        if not flush.is_alive():  # else the thread may still log
            self._sender.said.close()


class _Sender(SpanExporter):
    """OpenTelemetry's exporter; a failure is logged once until a batch succeeds, not at every try."""

    def __init__(self, endpoint: str, headers: Callable[[], Mapping[str, str]]) -> None:
        self._endpoint = endpoint
        self._headers = headers
        self._exporter: SpanExporter | None = None
        self._sent_along: Mapping[str, str] = {}
        self._closed = False
        #: Number of spans dropped since the last successful batch.
        self._lost = 0
        self.said = _Said()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch; errors are logged and not raised."""
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
        """Abort the batch that is being sent. Idempotent."""
        if not self._closed:
            self._closed = True
            if self._exporter is not None:
                self._exporter.shutdown()

    def _to_collector(self) -> SpanExporter:
        """The exporter with the present headers, created again if their file has changed.

        Raises:
            UserError: the file cannot be used.
        """
        headers = self._headers()
        if self._exporter is None or headers != self._sent_along:
            if self._exporter is not None:
                self._exporter.shutdown()
            self._exporter = OTLPSpanExporter(endpoint=self._endpoint, headers=dict(headers))
            self._sent_along = headers
        return self._exporter


class _Said(logging.Handler):
    """Captures OpenTelemetry's log, which has a line per try and per dropped span, instead of printing it."""

    def __init__(self) -> None:
        super().__init__()
        #: The exporter's first line since the last clearing: later lines are consequences of it.
        self.first = ""
        self._logger = logging.getLogger("opentelemetry")
        self._propagated, self._logger.propagate = self._logger.propagate, False
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first line of the exporter."""
        if record.name.startswith("opentelemetry.exporter"):
            self.first = self.first or record.getMessage()

    def close(self) -> None:
        """Restore the propagation of OpenTelemetry's log."""
        self._logger.removeHandler(self)
        self._logger.propagate = self._propagated
        super().close()
