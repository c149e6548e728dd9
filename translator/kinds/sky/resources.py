"""The `resources` of a SkyPilot task: GPUs, size, image, place and price."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from starburst.domain.gpu_types import either
from translator.field import Field, Fields, ManifestReport
from translator.kinds.gpu_request import GpuRequest
from translator.kinds.sky.alternatives import HOME, ORDER, SkyResources, joined

_CHOSEN = "Starburst chooses the machine by its size and price"
RESOURCES = Fields(
    "resources",
    read=(
        *("accelerators", "any_of", "cloud", "cpus", "disk_size", "image_id", "infra"),
        *("job_recovery", "max_hourly_cost", "memory", "ordered", "priority", "region", "use_spot", "zone"),
    ),
    harmless=("_cluster_config_overrides", "_docker_login_config", "spot_recovery"),
    noted={
        "accelerator_args": "arguments of TPUs are not kept",
        "autostop": "a machine is given back when no job is on it; cloud.idle_minutes says how soon",
        "disk_tier": _CHOSEN,
        "instance_type": _CHOSEN,
        "labels": "machines are shared by jobs and have labels of Starburst's",
        "local_disk": _CHOSEN,
        "network_tier": "the network of all gangs is that of cloud.network_tier in the config",
        "ports": "ports of a job are not opened to the outside",
        "priority_class": "priority classes are not used; write a priority",
    },
)
_AMOUNT = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)(?:\+)?")
_MEMORY = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)(GB|GIB|G|GI|MB|MIB|M|MI|TB|TIB|T|TI)?\+?", re.IGNORECASE)
_DISK = re.compile(r"(\d{1,7})([GT]?)(?:I?B)?\+?", re.IGNORECASE)
_KUBERNETES = ("kubernetes", "k8s", "ssh")


def read_resources(where: Field) -> SkyResources:
    """What a machine has of one of the alternatives at least; those that are left out are noted."""
    (place, first), *others = _alternatives(where)
    found = [(place, _read(first))]
    for place, other in others:
        report = ManifestReport(where.report.source, where.report.document)
        read = _read(replace(other, report=report))
        if report.errors:
            place.note(f"is left out: {report.errors[0].field}: {report.errors[0].mend}")
        else:
            found.append((place, read))
            where.report.notes += [note for note in report.notes if note not in where.report.notes]
    if len(found) > 1 and where.at("ordered").value:
        where.at("ordered").note(ORDER)
    return joined(found)


def _alternatives(where: Field) -> Iterator[tuple[Field, Field]]:
    """Each of `any_of` or `ordered`, and the resources with it filled in."""
    keys = [key for key in ("any_of", "ordered") if where.at(key).value]
    if len(keys) > 1:
        where.at(keys[1]).refuse("is beside any_of; a task has one of them", show=False)
    base = where.value if isinstance(where.value, dict) else {}
    each = where.at(keys[0]).items() if keys else []
    for place in each:
        own = {key: field.value for key, field in place.entries().items()}
        yield place, Field({**base, **own, keys[0]: None}, where.path, where.report)
    if not each:
        yield where, where


def _read(where: Field) -> SkyResources:
    where.check(RESOURCES)
    gpus, cpus = _accelerators(where.at("accelerators")), _cpus(where.at("cpus"))
    if where.at("instance_type").value and not (gpus.count or cpus):
        where.at("instance_type").refuse("says nothing of its size here; write accelerators, cpus or memory")
    return SkyResources(
        gpus=gpus,
        cpus=cpus,
        memory=_memory(where.at("memory")),
        image=_image(where.at("image_id")),
        places=_places(where),
        spot=None if where.at("use_spot").value is None else where.at("use_spot").flag(),
        hints=dict(_hints(where)),
    )


def _accelerators(where: Field) -> GpuRequest:
    """Any of the types that are named with the first one's number; a list has them in an order."""
    value = where.value
    if value is None:
        return GpuRequest()
    options = (
        list(value.items()) if isinstance(value, dict) else value if isinstance(value, list) else [value]
    )
    texts = [_named(*option) if isinstance(option, tuple) else str(option) for option in options]
    read = [_accelerator(text, where) for text in texts or [""]]
    first = read[0]
    if others := [text for text, each in zip(texts, read, strict=False) if each.count != first.count]:
        where.note(f"{', '.join(others)}: left out; a job has one number of GPUs, here {first.count}")
    kinds = [each.type for each in read if each.count == first.count]
    if isinstance(value, list) and len(kinds) > 1:
        where.note(ORDER)
    return GpuRequest(first.count, either(kinds) if all(kinds) else "")


def _accelerator(text: str, where: Field) -> GpuRequest:
    if "." in text.rpartition(":")[2].removesuffix(".0"):
        where.refuse(f"{text}: parts of a GPU are not given out; ask for a whole one", show=False)
        return GpuRequest()
    try:
        return GpuRequest.parse(text.removesuffix(".0"))
    except ValueError as bad:
        where.refuse(f"{text}: {bad}", show=False)
        return GpuRequest()


def _named(name: str, count: object) -> str:
    """An entry of a mapping: {A100: 8}, or of a set: {A100:8}."""
    return name if count is None else f"{name}:{count}"


def _cpus(where: Field) -> str:
    found = _AMOUNT.fullmatch(str(where.value)) if where.value is not None else None
    if where.value is not None and found is None:
        where.refuse("must be a number of CPUs, such as 8 or 8+")
    return found[1] if found else ""


def _memory(where: Field) -> str:
    """A size as a Kubernetes quantity; without a unit it is in GiB."""
    found = _MEMORY.fullmatch(str(where.value)) if where.value is not None else None
    if where.value is not None and found is None:
        where.refuse("must be a size in GiB, such as 32 or 32+; multiples of the CPUs are not supported")
    return f"{found[1]}{(found[2] or 'G')[0].upper()}i" if found else ""


def _image(where: Field) -> str:
    image = where.value
    if isinstance(image, dict) and len(image) == 1:
        image = next(iter(image.values()))
    if image is None:
        return ""
    if not isinstance(image, str) or not image.startswith("docker:"):
        where.refuse("only images of containers are run, such as docker:ubuntu:24.04", show=False)
        return ""
    return image.removeprefix("docker:")


def _hints(where: Field) -> Mapping[str, str]:
    """The annotations for the disk, price, retries and priority."""
    hints: dict[str, str] = {}
    if where.at("disk_size").value is not None:
        hints["disk-size"] = f"{_disk_gib(where.at('disk_size'))}Gi"
    if where.at("max_hourly_cost").value is not None:
        hints["max-hourly-cost"] = str(where.at("max_hourly_cost").value)
    if where.at("priority").value is not None:
        hints["priority"] = str(where.at("priority").value)
    recovery = where.at("job_recovery")
    for key, each in (recovery.entries() if isinstance(recovery.value, dict) else {}).items():
        if key != "max_restarts_on_errors":
            each.note("is not used; a lost run starts anew wherever there is room")
    restarts = recovery.at("max_restarts_on_errors").value
    if restarts is not None:
        hints["retries"] = str(restarts)
    return hints


def _disk_gib(where: Field) -> int:
    found = _DISK.fullmatch(str(where.value))
    if found is None:
        where.refuse("must be whole GiB, such as 512, or a size such as 1TB")
        return 1
    return int(found[1]) * (1024 if found[2].upper() == "T" else 1)


def _places(where: Field) -> tuple[str, ...]:
    infra = _infra(where)
    if infra.split("/")[0] not in _KUBERNETES:
        return (infra,) if infra else ()
    if "/" in infra:
        where.at("infra").note("the context is not used; it runs on the cluster of Starburst")
    return (HOME,)


def _infra(where: Field) -> str:
    """`infra`, or the same of `cloud`, `region` and `zone`."""
    infra = where.at("infra").text()
    if infra:
        return infra.lower().split("/")[0] + infra[len(infra.split("/")[0]) :]
    parts = [where.at(key).text() or "" for key in ("cloud", "region", "zone")]
    parts[0] = parts[0].lower()
    while parts and not parts[-1]:
        parts.pop()
    return "/".join(part or "*" for part in parts)
