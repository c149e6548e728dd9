"""A collector of OpenTelemetry on loopback, which remembers what it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Receiver:
    """What came in, in order."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1/traces"
        self.spans: list[Span] = []
        self.resources: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []
        #: What it answers, and whether it does.
        self.status = 200
        self.answers = Event()
        self.answers.set()

    def take(self, path: str, authorization: str | None, body: bytes) -> int:
        self.answers.wait()
        assert path == "/v1/traces"
        self.authorizations.append(authorization)
        if self.status == 200:
            for told in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(plain(told.resource.attributes))
                for scope in told.scope_spans:
                    self.spans += scope.spans
        return self.status

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def trace(self, trace_id: bytes) -> list[Span]:
        return [span for span in self.spans if span.trace_id == trace_id]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A collector that is up."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = receiver.take(self.path, self.headers["Authorization"], body)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        receiver = Receiver(server.server_address[1])
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield receiver
        finally:
            receiver.answers.set()
            server.shutdown()
            thread.join()


def plain(attributes: list[KeyValue]) -> dict[str, Any]:
    """Attributes as Python has them."""
    return {pair.key: _value(pair.value) for pair in attributes}


def _value(value: AnyValue) -> Any:
    return getattr(value, value.WhichOneof("value"))
