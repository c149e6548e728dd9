"""The ways by which a text comes in, each as a function of the text and of what it draws."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starburst.app.errors import UserError
from starburst.cli.jobs.submit_options import JobOptions
from starburst.clouds.sky.runs.docker import container, runs_in_container
from starburst.clusters.kubernetes.manifest import job_object
from starburst.core.model.actions import Slot
from starburst.domain.job import CloudChoice, Submission
from starburst.runs.ports import Run
from tests.translator.fuzz.bending import value_of, words_of
from tests.translator.skypilot import goldens
from translator.carried import Carried
from translator.errors import ManifestErrors
from translator.intake.rules import EMBEDDED, IntakeRules
from translator.intake.texts import read_manifests
from translator.kinds.conversion import command_manifest, converted
from translator.kinds.local_files import MadeFiles, WantedPath
from translator.kinds.overrides import NONE, Overrides
from translator.manifests.documents import chunks, load
from translator.manifests.live_object import read_object
from translator.tasks.runtime_values import (
    ReferencedData,
    TaskHost,
    UnresolvedError,
    evaluate,
    mounts_of,
    references,
)
from translator.tasks.skypilot import to_skypilot
from translator.tasks.task_yaml import as_yaml

NATIVE_RULES = IntakeRules(native=True, carries=Carried({}))
#: A valid value of each option of a job that is text.
_VALID = {
    **{"name": "net", "gpus": "A100:2", "cpus": "4", "memory": "16Gi", "image": "python:3.12", "env": "A=1"},
    **{"array": "0-9%2", "time": "1h", "estimate": "2h", "max_wait": "1m", "queue": "q", "cloud": "auto"},
    **{"after": "prep"},
}


@dataclass(frozen=True)
class Laptop:
    """A submitting machine of which every path can be packed."""

    reads: bool = True
    environ: dict[str, str] = field(default_factory=lambda: {"TOKEN": "t"})
    directory: str = "/project"

    def packed(self, wanted: Sequence[WantedPath], made: Sequence[MadeFiles] = ()) -> bytes:
        return repr((wanted, made)).encode()


def _to_server(text: str, draw: random.Random) -> None:
    _read(text, EMBEDDED)


def _to_kubernetes(text: str, draw: random.Random) -> None:
    for item in _read(text, NATIVE_RULES)[:3]:
        _placed(item)


def _read(text: str, rules: IntakeRules) -> list[Submission]:
    return read_manifests(text, "f", suffix=lambda: "a1b2c", taking=rules)


def _placed(item: Submission) -> None:
    """What is taken is also written as an object, and begun as on a rented machine if it may leave."""
    job, workload = item.job, item.workload
    run = Run(job, 1, tuple(Slot(rank, "n", task) for rank, task in enumerate(job.tasks)), workload)
    job_object(run, namespace="ns", controller="c", decision="", indexed=True, checkpoints=None)
    if job.cloud is CloudChoice.NEVER or workload.manifest is None:
        return
    manifest = json.loads(workload.manifest)
    if runs_in_container(workload):
        container("name", workload, job.tasks[0], dict(workload.env))
    with suppress(UnresolvedError):
        mounts_of(manifest, {}, in_container=runs_in_container(workload))
        data = {reference: goldens.CLUSTER.get(reference) for reference in references(manifest, "ns")}
        evaluate(manifest, ReferencedData("ns", data), TaskHost(0, "10.0.0.1", "vm"))


def _from_laptop(text: str, draw: random.Random) -> None:
    """As `starburst submit` reads a file where it lies."""
    found = converted(text, "dir/f.yaml", Laptop(), _overrides(draw, text))
    for item in _read(text if found is None else found.text, NATIVE_RULES)[:3]:
        _placed(item)


def _command(text: str, draw: random.Random) -> None:
    words = words_of(draw, text)
    manifest = command_manifest(words, "command", Laptop(), _overrides(draw, text))
    for item in _read(json.dumps(manifest), draw.choice((EMBEDDED, NATIVE_RULES)))[:3]:
        if item.workload.manifest is not None:
            _placed(item)


def _overrides(draw: random.Random, text: str) -> Overrides:
    """Up to three options, valid ones more often than not; none in half of the cases."""
    if draw.random() < 0.5:
        return NONE
    names = draw.sample(sorted(_VALID), draw.randrange(4))
    given = {name: draw.choice((*[_VALID[name]] * 2, value_of(draw))) for name in names}
    lists: dict[str, Any] = {name: [given.pop(name)] for name in ("env", "after") if name in given}
    options = JobOptions(
        **given, **lists, nodes=draw.choice((None, None, 1, 3)), retries=draw.choice((None, 0, 10**9))
    )
    return options.overrides(words_of(draw, text))


def _objects(text: str) -> Iterator[dict[str, Any]]:
    for index, chunk in enumerate(chunks(text), 1):
        value = load(chunk, "f", index)
        if isinstance(value, dict):
            yield value


def _translate(text: str, draw: random.Random) -> None:
    for each in _objects(text):
        found = to_skypilot(each, resolve=goldens.CLUSTER.get)
        if not found.report:
            raise AssertionError("no line about anything")
        as_yaml(found.without_secrets)


def _adopt(text: str, draw: random.Random) -> None:
    for each in _objects(text):
        read_object(each, job_id="a-1", rules=NATIVE_RULES)


WAYS: dict[str, Callable[[str, random.Random], None]] = {
    "submit over HTTP": _to_server,
    "submit to Kubernetes": _to_kubernetes,
    "submit": _from_laptop,
    "submit --": _command,
    "translate": _translate,
    "adopt": _adopt,
}


def refusal(way: Callable[[str, random.Random], None], text: str, draw: random.Random) -> list[str]:
    """The lines by which a way refuses a text; none if it takes it."""
    try:
        way(text, draw)
    except ManifestErrors as refused:
        return [str(error) for error in refused.errors] or [""]
    except UserError as refused:
        return str(refused).split("\n")
    return []
