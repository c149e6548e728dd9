"""Manifests of operators' kinds in the shapes in which people write them: no field is lost silently.

Each field is changed, once for all manifests that have it at the same place: then the task, a note or the
report has to change too, or the report names the field, or it is one of those that mean nothing here.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from translator.errors import ManifestErrors
from translator.field import Field, ManifestReport
from translator.kinds.kind_fidelity import KindReading
from translator.tasks.skypilot import to_skypilot

FILES = sorted((Path(__file__).parent / "manifests").glob("*.yaml"))
#: What has no effect on a run: names within a pod, who else may look, what becomes of the object afterwards.
HARMLESS = re.compile(
    r"apiVersion|.*\.(containers\[\]\.name|containers\[\]\.ports\[\].*|imagePullPolicy)"
    r"|spec\.(runPolicy\.)?(ttlSecondsAfterFinished|cleanPodPolicy)|.*\.rayVersion|.*\.groupName"
    r"|spec\.(network\.(enableDNSHostnames|publishNotReadyAddresses)|failurePolicy\.restartStrategy)"
    r"|spec\.replicatedJobs\[\]\.(name|template\.spec\.(parallelism|completionMode|backoffLimit))"
    r"|spec\.(sshAuthMountPath|schedulerName|plugins\.(env|svc)|labels\..*)"
    r"|.*\.(minReplicas|maxReplicas)|.*\.rayStartParams\.dashboard-host|.*\.labels\.starburst\.io/queue"
    r"|.*headGroupSpec.*\.limits\.cpu"  # of a head with num-cpus
    r"|spec\.tasks\[\]\.template\.spec\.restartPolicy"  # what RestartJob says already
)


def told(document: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """What became of a manifest, and which fields the report names; secrets are drawn."""
    try:
        reading = KindReading.of(Field(copy.deepcopy(document), "", ManifestReport("x", 1)))
        found = reading.told(to_skypilot(reading.manifest))
    except ManifestErrors as errors:
        return str(errors), ()
    text = re.sub("[0-9a-f]{32}", "drawn", f"{found.task} {found.report}")
    return text, tuple(line.field for line in found.report)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from leaves(each, (*path, key))
    if not inner:
        yield path, value


def changed(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    found: Any = copy.deepcopy(document)
    owner = found
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = (
        not value
        if isinstance(value, bool)
        else value + 1
        if isinstance(value, int)
        else str(int(value) + 1)
        if isinstance(value, str) and value.isdigit()
        else f"{value}x"
    )
    return found  # type: ignore[no-any-return]


def written(path: tuple[Any, ...]) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)[1:]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_field_counts_or_is_named(file: Path) -> None:
    seen, silent = set[tuple[str, str]](), list[str]()
    for document in yaml.safe_load_all(file.read_text()):
        before, named = told(document)
        assert named, f"{document['metadata']['name']}: {before}"
        for path, value in leaves(document):
            place = written(path)
            shape = re.sub(r"\[\d+\]", "[]", place)
            if (document["kind"], shape) in seen or HARMLESS.fullmatch(shape):
                continue
            seen.add((document["kind"], shape))
            by_name = any(place == name or place.startswith((f"{name}.", f"{name}[")) for name in named)
            if not by_name and told(changed(document, path, value))[0] == before:
                silent.append(f"{document['kind']} {document['metadata']['name']}: {place}")
    assert silent == []
