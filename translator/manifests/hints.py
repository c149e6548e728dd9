"""Hints: the labels and annotations `starburst.io/…` by which users set options of a job."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal

from starburst.domain.cloud import ANY_OFFER, OfferRules
from starburst.domain.gpu_types import either, gpu_type
from starburst.domain.job import CloudChoice
from starburst.domain.money import Money
from translator.duration import seconds
from translator.field import Field, did_you_mean
from translator.manifests.arrays import IndexRange, read_span
from translator.object_names import DNS_LABEL
from translator.quantity import quantity

PREFIX = "starburst.io/"
#: Hints for the instance in a cloud.
MACHINE_KEYS = ("autostop", "disk-size", "gpu-type", "infra", "max-hourly-cost", "runtime", "use-spot")
KEYS = (
    "after-any",
    "after-not-ok",
    "after-ok",
    "after-start",
    "array",
    "checkpoint",
    "cloud",
    "elastic",
    "hold",
    "iterations-per-s",
    "max-wait",
    "priority",
    "queue",
    "retries",
    "runtime-estimate",
    "singleton",
    "spread",
    "workload",
    *MACHINE_KEYS,
)
#: Hints that have no effect on an instance shared by several jobs.
UNKEPT = {
    "autostop": "machines are shared, and given back when no job is on them",
    "disk-size": "machines are shared, and have disks of SkyPilot's own size (256 GiB)",
}
#: Keys that Starburst itself writes on objects of a cluster.
OWN_KEYS = (
    "active-deadline",
    "adopted",
    "attempt",
    "controller",
    "decision",
    "exit-code",
    "gang",
    "job",
    "kept",
    "logs",
    "nodes",
    "rank",
    "stopping",
    "ttl",
    "uid",
    "user",
)

MAX_PRIORITY = 10**9
#: Longest wait and run time; a longer one is taken for a typing error.
MAX_DAYS = 3650
MAX_RETRIES = 1000
#: The Job controller's default of backoffLimit.
DEFAULT_RETRIES = 6
MAX_NAMES = 100
_JOB_NAME = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?")
MAX_DISK_GIB = 65_536

#: Clouds that rent instances, by SkyPilot 0.14.1's names (sky/skylet/constants.py, ALL_CLOUDS).
CLOUDS = (
    "aws",
    "azure",
    "cudo",
    "do",
    "fluidstack",
    "gcp",
    "hyperbolic",
    "ibm",
    "lambda",
    "mithril",
    "nebius",
    "oci",
    "paperspace",
    "primeintellect",
    "runpod",
    "scp",
    "seeweb",
    "shadeform",
    "vast",
    "verda",
    "vsphere",
    "yotta",
)
_PLACE = re.compile(r"(?:/(?:\*|[A-Za-z0-9][-A-Za-z0-9._ ]*)){0,2}")
_DOLLARS = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?")
_RATE = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class MachineHints:
    """Requirements on the instance in a cloud; None leaves the choice to Starburst."""

    #: Places of which any will do: "cloud", "cloud/region" or "cloud/region/zone"; an asterisk is any.
    infra: tuple[str, ...] = ()
    use_spot: bool | None = None
    disk_gib: int | None = None
    #: Dollars per hour.
    max_hourly_cost: Decimal | None = None
    #: Minutes without a job after which the instance is terminated.
    autostop_min: int | None = None
    #: "container": in the job's image; "host": on the instance itself.
    runtime: str = "container"
    #: Constraint on the type of its GPUs, as `Resources` have it; "" is any.
    gpu_type: str = ""

    @property
    def offer_rules(self) -> OfferRules:
        """The offers that may be rented for the job."""
        if not self.infra and self.use_spot is None and self.max_hourly_cost is None:
            return ANY_OFFER
        (cloud, region, zone), *others = map(_parts, self.infra or ("*",))
        ceiling = None if self.max_hourly_cost is None else Money.of(self.max_hourly_cost)
        return OfferRules(cloud, region, zone, self.use_spot, ceiling, elsewhere=tuple(others))


def _parts(infra: str) -> tuple[str, str, str]:
    """Cloud, region and zone of a place; "" is any."""
    cloud, region, zone = [*("" if part == "*" else part for part in infra.split("/")), "", ""][:3]
    return cloud, region, zone


@dataclass(frozen=True, slots=True)
class JobHints:
    """Options of a job set by its user; the names are those of `Job`'s fields."""

    queue: str = "default"
    runtime_estimate_s: float | None = None
    max_wait_s: float | None = None
    cloud: CloudChoice = CloudChoice.AUTO
    checkpoint: bool = False
    priority: int = 0
    hold: bool = False
    array: IndexRange | None = None
    #: Names or ids of other jobs, as written in the manifest.
    after_ok: tuple[str, ...] = ()
    after_any: tuple[str, ...] = ()
    after_not_ok: tuple[str, ...] = ()
    after_start: tuple[str, ...] = ()
    #: It begins after its user's earlier jobs of its name have ended.
    singleton: bool = False
    #: None: the Job's backoffLimit applies.
    retries: int | None = None
    workload: str = ""
    alone_per_s: float | None = None
    #: Each task takes a node, or a rented machine, of its own.
    spread: bool = False
    #: With how many tasks it goes on after a lost node, at least; 0: all of them or none.
    elastic: int = 0
    machine: MachineHints = MachineHints()


def read_hints(metadata: Field) -> JobHints:
    """The hints among labels and annotations; an annotation overrides a label of the same key."""
    found: dict[str, Field] = {}
    for kind in ("labels", "annotations"):
        for key, field in metadata.at(kind).entries().items():
            if not _is_hint(key, field):
                continue
            if key.removeprefix(PREFIX) not in KEYS:
                field.refuse(f"Starburst has no such key; {did_you_mean(key.removeprefix(PREFIX), KEYS)}")
            found[key.removeprefix(PREFIX)] = field
    absent = Field(None, metadata.path, metadata.report)
    return JobHints(
        queue=_queue(found.get("queue", absent)) or "default",
        runtime_estimate_s=_runtime(found.get("runtime-estimate", absent)),
        max_wait_s=_duration(found.get("max-wait", absent)),
        cloud=CloudChoice(
            found.get("cloud", absent).choice([c.value for c in CloudChoice]) or CloudChoice.AUTO
        ),
        checkpoint=_switch(found.get("checkpoint", absent)),
        priority=_number(found.get("priority", absent), -MAX_PRIORITY, MAX_PRIORITY) or 0,
        hold=_switch(found.get("hold", absent)),
        array=read_span(found.get("array", absent)),
        after_ok=_names(found.get("after-ok", absent)),
        after_any=_names(found.get("after-any", absent)),
        after_not_ok=_names(found.get("after-not-ok", absent)),
        after_start=_names(found.get("after-start", absent)),
        singleton=_switch(found.get("singleton", absent)),
        retries=_number(found.get("retries", absent), 0, MAX_RETRIES),
        workload=_workload(found.get("workload", absent)),
        alone_per_s=_rate(found.get("iterations-per-s", absent)),
        spread=found.get("spread", absent).choice(("node",)) == "node",
        elastic=_least_tasks(found.get("elastic", absent)),
        machine=_machine({key: found.get(key, absent) for key in MACHINE_KEYS}),
    )


def note_unkept(metadata: Field) -> None:
    """Note the hints that have an effect only if the job has an instance to itself."""
    for kind in ("labels", "annotations"):
        for key, why in UNKEPT.items():
            wish = metadata.at(kind).at(PREFIX + key)
            if wish.value is not None:
                wish.note(f"{why}; kept by starburst translate alone")


def refuse_hints(metadata: Field) -> None:
    """Refuse hints on a template within a manifest, where they are not read."""
    for kind in ("labels", "annotations"):
        for key, field in metadata.at(kind).entries().items():
            if _is_hint(key, field):
                field.refuse("is not read from a template; move it to the manifest's own metadata")


def _is_hint(key: str, field: Field) -> bool:
    if not key.startswith(PREFIX) or field.value is None:
        return False
    return not (field.report.native and key.removeprefix(PREFIX) in OWN_KEYS)


def _machine(found: dict[str, Field]) -> MachineHints:
    idle_s = _duration(found["autostop"])
    if idle_s is not None and not 60 <= idle_s <= 7 * 86400:
        found["autostop"].refuse("must be at least 1m and at most 7d")
    return MachineHints(
        infra=_infra(found["infra"]),
        use_spot=None if found["use-spot"].value is None else _switch(found["use-spot"]),
        disk_gib=_disk_gib(found["disk-size"]),
        max_hourly_cost=_dollars(found["max-hourly-cost"]),
        autostop_min=None if idle_s is None else math.ceil(idle_s / 60),
        runtime=found["runtime"].choice(("container", "host")) or "container",
        gpu_type=_gpu_type(found["gpu-type"]),
    )


def _gpu_type(field: Field) -> str:
    """One type, or several with commas between them."""
    kinds = [gpu_type(part) for part in (field.text() or "").split(",")]
    if field.value is not None and not all(kinds):
        field.refuse("names no model of a GPU; write one such as A100 or A100-80GB, or several: A100,H100")
    return either(filter(None, kinds))


def _infra(field: Field) -> tuple[str, ...]:
    """One place, or several with commas between them."""
    text = field.text()
    if text is None:
        return ()
    places = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for where in places:
        cloud = where.partition("/")[0]
        if cloud != "*" and cloud not in CLOUDS:
            field.refuse(did_you_mean(cloud, CLOUDS, f"begin with * or one of {', '.join(CLOUDS)}"))
            break
        if not _PLACE.fullmatch(where.removeprefix(cloud)):
            field.refuse(
                "write a cloud, cloud/region or cloud/region/zone, such as aws/us-east-1 or */us-east-1"
            )
            break
    return places


def _disk_gib(field: Field) -> int | None:
    if field.value is None:
        return None
    try:
        size = quantity(field.value if isinstance(field.value, (str, int, float)) else "")
    except ValueError as bad:
        field.refuse(str(bad))
        return None
    if not 2**30 <= size <= MAX_DISK_GIB * 2**30:
        field.refuse(f"must be at least 1Gi and at most {MAX_DISK_GIB}Gi, such as 200Gi")
    return math.ceil(size / 2**30)


def _dollars(field: Field) -> Decimal | None:
    if field.value is None:
        return None
    text = "" if isinstance(field.value, bool) else str(field.value)
    if not _DOLLARS.fullmatch(text) or not Decimal(text):
        field.refuse("must be dollars per hour, such as 3.50")
        return None
    return Decimal(text)


def _duration(field: Field) -> float | None:
    if field.value is None:
        return None
    try:
        found_s = seconds(field.value if isinstance(field.value, (str, int, float)) else "")
    except ValueError as bad:
        field.refuse(str(bad))
        return None
    if found_s > MAX_DAYS * 86400:
        field.refuse(f"must be at most {MAX_DAYS}d")
    return found_s


def _runtime(field: Field) -> float | None:
    estimate_s = _duration(field)
    if estimate_s == 0:
        field.refuse("a run time of 0 is no estimate; write how long the job will run, or remove it")
    return estimate_s


def _switch(field: Field) -> bool:
    """A boolean; quotes, which Kubernetes requires in annotations, are optional."""
    if isinstance(field.value, str) and field.value in ("true", "false"):
        return field.value == "true"
    return field.flag()


def _number(field: Field, least: int, most: int) -> int | None:
    """An integer; quotes, which Kubernetes requires in annotations, are optional."""
    value = field.value
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,100}", value):
        value = int(value)
    return Field(value, field.path, field.report).whole(least, most)


def _least_tasks(field: Field) -> int:
    """ "true" is one task at least, "false" is all of them."""
    if isinstance(field.value, bool) or field.value in ("true", "false", None):
        return int(_switch(field))
    return _number(field, 1, MAX_PRIORITY) or 0


def _names(field: Field) -> tuple[str, ...]:
    """Names or ids of jobs, separated by commas."""
    text = field.text()
    names = tuple(dict.fromkeys(part.strip() for part in text.split(","))) if text is not None else ()
    if len(names) > MAX_NAMES or not all(_JOB_NAME.fullmatch(name) for name in names):
        field.refuse(f"must be names or ids of jobs with commas between them, {MAX_NAMES} at most")
        return ()
    return names


def _workload(field: Field) -> str:
    name = field.text() or ""
    if field.value is not None and not _JOB_NAME.fullmatch(name):
        field.refuse("a workload is named by up to 253 lower-case letters, digits, dashes and dots")
    return name


def _rate(field: Field) -> float | None:
    if field.value is None:
        return None
    text = "" if isinstance(field.value, bool) else str(field.value)
    if not _RATE.fullmatch(text) or not float(text):
        field.refuse("must be iterations a second with a machine to itself, such as 12.5")
        return None
    return float(text)


def _queue(field: Field) -> str | None:
    name = field.text()
    if name is not None and not DNS_LABEL.fullmatch(name):
        field.refuse("a queue is named by up to 63 lower-case letters, digits and dashes")
    return name
