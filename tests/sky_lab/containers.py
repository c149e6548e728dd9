"""Machines with a container engine, and jobs with an image for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from starburst.core.model.actions import Slot
from starburst.domain.job import Job, Workload
from starburst.domain.resources import Resources
from starburst.runs.ports import Run
from tests.sky_lab.lab import lab

#: In the registry of every machine with an engine; the second has the entry point `sh -c` and a variable.
BUSYBOX, ENTRY = "localhost:5000/local/busybox:1", "localhost:5000/local/busybox:entry"


@contextmanager
def engines() -> Iterator[None]:
    """Machines that boot meanwhile have docker and a registry; those before and after have neither."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKYLAB_DOCKER", "1")
        lab("up", seconds=900)
        try:
            yield
        finally:
            patch.delenv("SKYLAB_DOCKER")
            lab("up", seconds=900)


def boxed(
    name: str,
    machine: str,
    script: str,
    *,
    image: str = BUSYBOX,
    need: Resources | None = None,
    env: Mapping[str, str] | None = None,
    pod: Mapping[str, Any] | None = None,
    own: Mapping[str, Any] | None = None,
    over: bool = False,
    attempt: int = 1,
) -> Run:
    """A run of a shell script in a container, by its image's entry point or a shell (`over` such a point).

    `pod` and `own` are more of its pod's and its container's manifest.
    """
    need = need or Resources.of(0, 0, 1)
    enters = image == ENTRY and not over
    words = (script,) if enters else ("sh", "-c", script)
    command, args = ((), words) if enters else (words, ())
    variables = [{"name": key, "value": value} for key, value in (env or {}).items()]
    container = {"name": "main", "image": image, "env": variables, **(own or {})}
    container["args" if enters else "command"] = list(words)
    manifest = {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **(pod or {})},
    }
    workload = Workload(
        command,
        tuple((env or {}).items()),
        (own or {}).get("workingDir"),
        image=image,
        args=args,
        manifest=json.dumps(manifest),
    )
    job = Job(name, name, (need,), checkpoint=True)
    return Run(job, attempt, (Slot(0, machine, need),), workload)
