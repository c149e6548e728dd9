"""Manifests of each kind in the shapes in which people write them: no field is lost silently.

A field is changed in one manifest of those of a kind that have it at the same place: then the job, the task,
a note or the report has to change too, or names the field, or it is one of those that mean nothing here. What
is refused loses nothing. `make fuzz` changes every field, the default suite every eighth.
"""

from __future__ import annotations

import copy
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.translator.kinds.running import Elsewhere
from translator.errors import ManifestErrors
from translator.field import Field, ManifestReport
from translator.intake.rules import IntakeRules
from translator.intake.texts import read_firsts
from translator.kinds.conversion import converted
from translator.kinds.kind_fidelity import KindReading
from translator.kinds.local_files import MadeFiles, WantedPath
from translator.kinds.overrides import NONE
from translator.tasks.skypilot import to_skypilot

HERE = Path(__file__).parent / "manifests"
FILES = sorted(HERE.glob("*.yaml"))
SCRIPTS = (HERE / "batch-scripts.txt").read_text().split("\n\n")
#: One field of so many is changed.
ONE_OF = int(os.environ.get("STARBURST_ONE_FIELD_OF", "8"))
#: How many manifests of each kind there are at least.
KINDS = dict.fromkeys(
    ("JobSet", "PyTorchJob", "MPIJob", "TrainJob", "RayJob", "RayCluster", "CronJob", "Job", ""), 20
)
#: What has no effect on a run: names within a pod, who else may look, what becomes of the object afterwards.
HARMLESS = re.compile(
    r"apiVersion|metadata\.labels.*|.*\.(containers\[\]\.name|ports\[\].*|imagePullPolicy)"
    r"|spec\.(runPolicy\.)?(ttlSecondsAfterFinished|cleanPodPolicy)|.*\.rayVersion|.*\.groupName"
    r"|spec\.(network\.(enableDNSHostnames|publishNotReadyAddresses)|failurePolicy\.restartStrategy)"
    r"|spec\.replicatedJobs\[\]\.(name|template\.spec\.(parallelism|completionMode|backoffLimit))"
    r"|spec\.(sshAuthMountPath|schedulerName|plugins\.(env|svc)|labels\..*)"
    r"|.*\.(minReplicas|maxReplicas)|.*\.rayStartParams\[.dashboard-host.\]|.*\.labels\[.starburst\.io/queue.\]"
    r"|.*(head|worker)GroupSpecs?(\[\])?\.template.*\.(requests|limits)\.cpu"  # of groups with num-cpus
    r"|spec\.network\.subdomain"  # where no name of a pod is in a command
    r"|spec\.tasks\[\]\.template\.spec\.restartPolicy"  # what RestartJob says already
)


class Packed(Elsewhere):
    """A submitting machine that has every file."""

    def packed(self, wanted: Sequence[WantedPath], made: Sequence[MadeFiles] = ()) -> bytes:
        return repr(wanted).encode()


def told(document: dict[str, Any]) -> tuple[str, tuple[str, ...], bool]:
    """What became of a manifest on Kubernetes and in the cloud, the fields that it names, whether it runs."""
    if "kind" not in document:
        return submitted(yaml.safe_dump(document), "task.yaml")
    try:
        found = read_firsts(json.dumps(document), "x", suffix=lambda: "a", taking=IntakeRules(native=True))
        reading = KindReading.of(Field(copy.deepcopy(document), "", ManifestReport("x", 1)))
        task = reading.told(to_skypilot(reading.manifest))
    except ManifestErrors as errors:
        return str(errors), (), False
    notes = [note.partition(":")[0] for item in found for note in item.notes]
    text = re.sub("[0-9a-f]{32}", "drawn", f"{found} {task.task} {task.report}")
    return text, (*notes, *(line.field for line in task.report)), True


def submitted(text: str, source: str) -> tuple[str, tuple[str, ...], bool]:
    """The same of a SkyPilot task or a script, as `starburst submit` takes it."""
    try:
        found = converted(text, source, Packed(), NONE)
        assert found is not None
        (item,) = read_firsts(found.text, source, suffix=lambda: "a")
    except ManifestErrors as errors:
        return str(errors), (), False
    notes = [note for each in found.notes.values() for note in each]
    drawn = re.sub("[0-9a-f]{32}", "drawn", f"{item.job} {item.workload} {notes}")
    return drawn, tuple(note.partition(":")[0] for note in notes), True


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
    """A path as reports write it."""
    place = Field(None, "", ManifestReport("", 0))
    for key in path:
        place = place.at(key) if isinstance(key, str) else Field(None, f"{place.path}[{key}]", place.report)
    return place.path


def is_drawn(shape: str) -> bool:
    return zlib.crc32(shape.encode()) % ONE_OF == 0


def test_there_are_twenty_manifests_of_each_kind() -> None:
    documents = (each for file in FILES for each in yaml.safe_load_all(file.read_text()))
    counted = Counter(each.get("kind", "") for each in documents)
    assert {kind: counted[kind] for kind in KINDS if counted[kind] < KINDS[kind]} == {}
    assert len(SCRIPTS) >= 20


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_field_counts_or_is_named(file: Path) -> None:
    seen, silent, runs = set[tuple[str, str]](), list[str](), 0
    for document in yaml.safe_load_all(file.read_text()):
        before, named, is_read = told(document)
        if not is_read:
            assert re.match(r"\S+, document 1: .+: .+", before), before
            continue
        runs += 1
        for path, value in leaves(document):
            place = written(path)
            shape = re.sub(r"\[\d+\]", "[]", place)
            key = (document.get("kind", ""), shape)
            if value in ({}, [], None) or key in seen or not is_drawn(shape) or HARMLESS.fullmatch(shape):
                continue
            seen.add(key)
            by_name = any(place == name or place.startswith((f"{name}.", f"{name}[")) for name in named)
            if not by_name and told(changed(document, path, value))[0] == before:
                silent.append(f"{key[0]} {place}: {value}")
    assert silent == []
    assert runs >= 3


@pytest.mark.parametrize("script", SCRIPTS, ids=range(len(SCRIPTS)))
def test_every_directive_counts_or_is_named(script: str) -> None:
    before, named, is_read = submitted(script, "train.sbatch")
    if not is_read:
        assert re.match(r"train.sbatch: line \d+, .+: .+", before), before
        return
    lines = script.split("\n")
    for number, line in enumerate(lines):
        option = re.match(r"#SBATCH (--[a-z-]+|-\w)", line)
        if option is None or any(option[1] in name for name in named):
            continue
        without = "\n".join([*lines[:number], *lines[number + 1 :]])
        assert submitted(without, "train.sbatch")[0] != before, line
