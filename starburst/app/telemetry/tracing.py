"""Steps and decisions as OpenTelemetry spans: each job and each instance has one trace for its lifetime.

A decision belongs to a step and to its subject. Its span is in the subject's trace, because users follow a
job or an instance, and has a link to the span of the step. The trace id is a hash of the store's id and the
subject's id, so a trace continues after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import isfinite

import structlog
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags

from starburst import __version__
from starburst.app.config.tracing import TracingConfig
from starburst.app.daemon.observers import CommittedStep
from starburst.app.telemetry.otlp import Collector
from starburst.core.model.decisions import Decision
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.instance_record import InstanceRecord
from starburst.domain.clock import Pace
from starburst.domain.cloud import InstancePhase
from starburst.domain.job import Phase
from starburst.store import codec

log = structlog.get_logger()

#: Types of attribute values that OpenTelemetry accepts.
Value = bool | int | float | str
Attributes = Mapping[str, Value]
#: Start and end, wall nanoseconds.
Times = tuple[int, int]

SCOPE = InstrumentationScope("starburst", __version__)
#: Kinds of the last decision about a subject, if it has ended.
LAST = ("succeeded", "failed", "cancelled", "gone", "launch-failed")
#: Nanoseconds between the start times of the decisions of a step, which keep their order.
APART_NS = 1000


class Tracing:
    """Exports each step as spans."""

    def __init__(self, settings: TracingConfig, controller: str, pace: Pace) -> None:
        """`controller` is the store's id.

        Raises:
            UserError: the file with the headers of the export cannot be used.
        """
        assert settings.endpoint is not None
        settings.headers()
        self._controller = controller
        self._pace = pace
        self._resource = Resource.create(
            {
                "service.name": settings.service,
                "service.version": __version__,
                "service.instance.id": controller,
            }
        )
        self._ids = RandomIdGenerator()
        self._broken = False
        self._collector = Collector(settings.endpoint, settings.headers)

    def stepped(self, step: CommittedStep) -> None:
        """Export a step. An exception is logged and ends the tracing, not the scheduler."""
        if not self._broken:
            try:
                self._tell(step)
            except Exception:
                self._broken = True
                log.exception("tracing-broken")

    def close(self) -> None:
        """Send the queued spans, for a few seconds at most."""
        self._collector.close()

    def _tell(self, step: CommittedStep) -> None:
        begin = _ns(step.began)
        decided, stored = begin + _ns(step.core_s), begin + _ns(step.core_s) + _ns(step.commit_s)
        whole = _context(self._ids.generate_trace_id(), self._ids.generate_span_id())
        self._add("step", whole, None, (begin, stored), _of_step(step))
        for name, times in (("core", (begin, decided)), ("commit", (decided, stored))):
            part = _context(whole.trace_id, self._ids.generate_span_id())
            self._add(name, part, whole, times, {})
        for number, decision in enumerate(step.changes.decisions):
            start = min(begin + number * APART_NS, stored)
            self._decision(step, decision, whole, (start, stored))

    def _decision(self, step: CommittedStep, decision: Decision, whole: SpanContext, times: Times) -> None:
        """Add a decision to the trace of its job or instance, or of the step for other subjects, as caps.

        The last decision about a subject also adds the span of its lifetime.
        """
        subject = decision.subject
        record = step.changes.jobs.get(subject) or step.jobs.get(subject)
        machine = step.changes.instances.get(subject)
        told = _of_decision(decision)
        links = [Link(whole)]
        if record is not None:
            life = self._life("job", subject)
            told = {**told, **_of_job(record)}
            if decision.kind == "offloaded":
                links += [Link(self._life("machine", slot.where)) for slot in record.slots]
        elif machine is not None:
            life = self._life("machine", subject)
            told = {**told, "starburst.machine.id": subject, "starburst.offer": machine.offer.name}
        else:
            life, links = whole, []
        span_id = int.from_bytes(self._digest("decision", str(decision.seq))[:8], "big")
        self._add(decision.kind, _context(life.trace_id, span_id), life, times, told, links=links)
        if decision.kind in LAST and record is not None and record.phase.is_end:
            times = self._since(record.submitted_at, times[1])
            self._add("job", life, None, times, _of_job_at_end(record), status=_status(record))
        elif decision.kind in LAST and machine is not None and _is_over(machine):
            times = self._since(machine.requested_at, times[1])
            self._add("machine", life, None, times, _of_machine_at_end(machine))

    def _life(self, what: str, name: str) -> SpanContext:
        """The context of the root span of a job or instance; the span is sent when it has ended."""
        digest = self._digest(what, name)
        return _context(int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:24], "big"))

    def _digest(self, what: str, name: str) -> bytes:
        return sha256(f"{self._controller}/{what}/{name}".encode()).digest()

    def _since(self, at: float, end: int) -> Times:
        return min(_ns(self._pace.wall_time(at)), end), end

    def _add(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        times: Times,
        attributes: Attributes,
        *,
        links: Sequence[Link] = (),
        status: Status | None = None,
    ) -> None:
        # Without a tracer, which would choose the ids.
        self._collector.add(
            ReadableSpan(
                name,
                context,
                parent,
                self._resource,
                attributes,
                links=links,
                status=status or Status(),
                start_time=times[0],
                end_time=times[1],
                instrumentation_scope=SCOPE,
            )
        )


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _of_step(step: CommittedStep) -> Attributes:
    changes = step.changes
    return {
        "starburst.step.events": len(step.events),
        "starburst.step.decisions": len(changes.decisions),
        "starburst.step.actions": len(changes.actions),
        "starburst.step.jobs": len(changes.jobs),
        "starburst.step.machines": len(changes.instances),
    }


def _of_decision(decision: Decision) -> Attributes:
    told: dict[str, Value] = {
        "starburst.decision.seq": decision.seq,
        "starburst.decision.kind": decision.kind,
        "starburst.decision.subject": decision.subject,
        "starburst.decision.reason": decision.reason,
        "starburst.decision.event": decision.event,
    }
    for key, value in decision.numbers.items():
        if value is not None:
            told[f"starburst.number.{key}"] = _plain(value)
    return told


def _of_job(record: JobRecord) -> Attributes:
    job = record.job
    return {
        "starburst.job.id": job.id,
        "starburst.job.name": job.name,
        "starburst.queue": job.queue,
        "starburst.user": job.user,
        "starburst.job.attempt": record.attempt,
    }


def _of_job_at_end(record: JobRecord) -> Attributes:
    told = dict(_of_job(record))
    told["starburst.job.need"] = str(record.job.resources)
    told["starburst.job.phase"] = record.phase.value
    if record.site is not None:
        told["starburst.site"] = record.site.value
    if record.exit_code is not None:
        told["starburst.job.exit_code"] = record.exit_code
    return told


def _of_machine_at_end(machine: InstanceRecord) -> Attributes:
    return {
        "starburst.machine.id": machine.id,
        "starburst.machine.phase": machine.phase.value,
        "starburst.offer": machine.offer.name,
        "starburst.machine.preempted": machine.preempted,
        "starburst.machine.micro_usd": machine.micro_usd,
        "starburst.machine.jobs": len(machine.billed_to),
    }


def _is_over(machine: InstanceRecord) -> bool:
    return machine.phase in (InstancePhase.GONE, InstancePhase.FAILED)


def _status(record: JobRecord) -> Status:
    if record.phase is Phase.FAILED:
        return Status(StatusCode.ERROR, record.message)
    return Status(StatusCode.OK if record.phase is Phase.SUCCEEDED else StatusCode.UNSET)


def _plain(value: object) -> Value:
    """A value as an attribute: structured values as JSON, non-finite numbers as text."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str) else codec.encode(value)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
