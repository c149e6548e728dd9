"""The labels and annotations `starburst.io/…`: what a user tells the scheduler about a job."""

from __future__ import annotations

import re
from dataclasses import dataclass

from starburst.domain.job import CloudChoice
from translator.duration import seconds
from translator.field import Field, did_you_mean

PREFIX = "starburst.io/"
KEYS = ("checkpoint", "cloud", "max-wait", "priority", "queue", "runtime-estimate")
#: What Starburst writes on objects of a cluster itself.
OWN_KEYS = (
    "active-deadline",
    "adopted",
    "attempt",
    "controller",
    "decision",
    "exit-code",
    "gang",
    "job",
    "logs",
    "nodes",
    "rank",
    "stopping",
    "user",
)

DNS_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
MAX_PRIORITY = 10**9


@dataclass(frozen=True, slots=True)
class Hints:
    """Wishes of a job's user; the fields are those of `Job`."""

    queue: str = "default"
    runtime_estimate_s: float | None = None
    max_wait_s: float | None = None
    cloud: CloudChoice = CloudChoice.AUTO
    checkpoint: bool = False
    priority: int = 0


def read_hints(metadata: Field) -> Hints:
    """The hints among the labels and annotations; where both name one, the annotation counts."""
    found: dict[str, Field] = {}
    for kind in ("labels", "annotations"):
        for key, field in metadata.at(kind).entries().items():
            if not _is_hint(key, field):
                continue
            if key.removeprefix(PREFIX) not in KEYS:
                field.refuse(f"Starburst has no such key; {did_you_mean(key.removeprefix(PREFIX), KEYS)}")
            found[key.removeprefix(PREFIX)] = field
    absent = Field(None, metadata.path, metadata.report)
    return Hints(
        queue=_queue(found.get("queue", absent)) or "default",
        runtime_estimate_s=_runtime(found.get("runtime-estimate", absent)),
        max_wait_s=_duration(found.get("max-wait", absent)),
        cloud=CloudChoice(
            found.get("cloud", absent).choice([c.value for c in CloudChoice]) or CloudChoice.AUTO
        ),
        checkpoint=_switch(found.get("checkpoint", absent)),
        priority=_priority(found.get("priority", absent)),
    )


def refuse_hints(metadata: Field) -> None:
    """Refuse hints where they would go unread: on the pod template of a Job."""
    for kind in ("labels", "annotations"):
        for key, field in metadata.at(kind).entries().items():
            if _is_hint(key, field):
                field.refuse("is not read from the pod template; move it to the metadata of the Job")


def _is_hint(key: str, field: Field) -> bool:
    if not key.startswith(PREFIX) or field.value is None:
        return False
    return not (field.report.native and key.removeprefix(PREFIX) in OWN_KEYS)


def _duration(field: Field) -> float | None:
    if field.value is None:
        return None
    try:
        return seconds(field.value if isinstance(field.value, (str, int, float)) else "")
    except ValueError as bad:
        field.refuse(str(bad))
        return None


def _runtime(field: Field) -> float | None:
    estimate_s = _duration(field)
    if estimate_s == 0:
        field.refuse("a run time of 0 is no estimate; write how long the job will run, or remove it")
    return estimate_s


def _switch(field: Field) -> bool:
    """A boolean, in quotes as Kubernetes wants it or without."""
    if isinstance(field.value, str) and field.value in ("true", "false"):
        return field.value == "true"
    return field.flag()


def _priority(field: Field) -> int:
    """A whole number, in quotes as Kubernetes wants it or without."""
    value = field.value
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,18}", value):
        value = int(value)
    return Field(value, field.path, field.report).whole(-MAX_PRIORITY, MAX_PRIORITY) or 0


def _queue(field: Field) -> str | None:
    name = field.text()
    if name is not None and not DNS_LABEL.fullmatch(name):
        field.refuse("a queue is named by up to 63 lower-case letters, digits and dashes")
    return name
