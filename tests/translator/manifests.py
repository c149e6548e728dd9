"""Builders of manifests: a good one, and the same with one thing changed."""

from __future__ import annotations

import copy
import json
from typing import Any

from starburst.domain.job import Submission
from translator.carried import Carried
from translator.errors import ManifestErrors
from translator.intake.rules import IntakeRules
from translator.intake.texts import read_manifests

GOOD_JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train"},
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "main",
                        "image": "trainer:1",
                        "command": ["python3", "train.py"],
                        "resources": {"limits": {"cpu": 4, "memory": "16Gi", "nvidia.com/gpu": 1}},
                    }
                ],
            }
        }
    },
}

CONTAINER = "spec.template.spec.containers[0]"


def job(path: str, value: Any) -> dict[str, Any]:
    """A good Job with `value` under a path such as "POD/volumes"; "|" divides where keys hold a "/"."""
    manifest = copy.deepcopy(GOOD_JOB)
    path = path.replace("CONTAINER", "POD/containers/0").replace("POD", "spec/template/spec")
    *parents, last = (int(key) if key.isdigit() else key for key in path.split("|" if "|" in path else "/"))
    target: Any = manifest
    for key in parents:
        target = target[key] if isinstance(target, list) else target.setdefault(key, {})
    target[last] = value
    return manifest


def pod(**spec: Any) -> dict[str, Any]:
    """A good Pod with more fields in its spec."""
    base = copy.deepcopy(GOOD_JOB["spec"]["template"]["spec"])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}, "spec": base | spec}


def read(
    *manifests: Any,
    user: str = "",
    native: bool = False,
    carries: Carried | None = None,
    may_stay: bool = True,
) -> list[Submission]:
    """Read manifests as the documents of train.yaml; every id ends in -a1b2c."""
    text = "".join(f"---\n{m if isinstance(m, str) else json.dumps(m)}\n" for m in manifests)
    rules = IntakeRules(native=native, carries=carries, may_stay=may_stay)
    return read_manifests(text, "train.yaml", suffix=lambda: "a1b2c", user=user, taking=rules)


def read_one(manifest: Any, *, native: bool = False, carries: Carried | None = None) -> Submission:
    """Read one manifest."""
    (submission,) = read(manifest, native=native, carries=carries)
    return submission


def errors(*manifests: Any, native: bool = False, carries: Carried | None = None) -> list[str]:
    """The lines that say what is wrong with manifests, or why their jobs cannot leave; none if nothing is."""
    try:
        read(*manifests, native=native, carries=carries, may_stay=False)
    except ManifestErrors as bad:
        return str(bad).split("\n")
    return []
