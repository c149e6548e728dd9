"""The golden cases: manifests as people have them, and the tasks and reports that they become.

A first line such as `# given: cluster volumes` says what a case may use. To write what is expected anew, and
read the difference: python -m tests.translator.skypilot.goldens
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from translator.fidelity import Translation
from translator.field import Field, ManifestReport
from translator.manifests.documents import chunks, load
from translator.manifests.references import CONFIG_MAP, SECRET, Reference
from translator.tasks.skypilot import to_skypilot
from translator.tasks.storage.cloud_volumes import read_stores
from translator.tasks.task_yaml import as_yaml

CASES = Path(__file__).parent / "cases"
TASK, REPORT = ".task.yaml", ".report.txt"

_LOGIN = {"auths": {"registry.lab.example:5000": {"auth": base64.b64encode(b"robot:hunter2").decode()}}}
#: What the cluster of the cases holds.
CLUSTER: Mapping[Reference, Mapping[str, str]] = {
    Reference(CONFIG_MAP, "default", "settings"): {"GREETING": 'it\'s "me" $HOME', "mode": "fast"},
    Reference(CONFIG_MAP, "ops", "settings"): {"ssh_config": "Host *\n  StrictHostKeyChecking no\n"},
    Reference(CONFIG_MAP, "default", "scripts"): {"run.sh": "echo \"$1\" 'two'\n", "-odd": "-n"},
    Reference(SECRET, "default", "hugging-face"): {"token": "hf_SECRET1"},
    Reference(SECRET, "default", "db"): {"password": "p'w\"$SECRET2\n"},
    Reference(SECRET, "default", "tracking"): {"WANDB_API_KEY": "SECRET3", "WANDB_MODE": "SECRET4"},
    Reference(SECRET, "default", "registry"): {".dockerconfigjson": json.dumps(_LOGIN)},
    Reference(SECRET, "ops", "ssh-key"): {"private": "-----BEGIN SECRET5-----\n", "public": "SECRET6"},
}
#: What must be seen nowhere but in a task's secrets.
VALUES_OF_SECRETS = (*(f"SECRET{number}" for number in range(1, 7)), "hunter2")
VOLUMES = {
    "pvc/datasets": "s3://lab-datasets/sets",
    "pvc/results": {"source": "gs://lab-results", "mode": "MOUNT_CACHED"},
    "pvc/homes": {"volume": "homes"},
    "nfs:filer.lab:/export/genomes": "s3://lab-genomes",
    "hostPath:/data": {"source": "s3://lab-raw/", "mode": "COPY"},
}


def names() -> list[str]:
    """Every case."""
    return sorted(path.stem for path in CASES.glob("*.yaml") if not path.name.endswith(TASK))


def manifests(name: str) -> Iterator[Any]:
    """The manifests of a case."""
    for chunk in chunks((CASES / f"{name}.yaml").read_text()):
        value: Any = load(chunk, name, 0)
        yield from value["items"] if value["kind"] == "List" else (value,)


@cache
def translations(name: str) -> list[Translation]:
    """What the manifests of a case become."""
    first, _, _ = (CASES / f"{name}.yaml").read_text().partition("\n")
    given = first.removeprefix("# given:").split() if first.startswith("# given:") else []
    volumes = read_stores(Field(VOLUMES, "", ManifestReport("", 0))) if "volumes" in given else {}
    resolve = CLUSTER.get if "cluster" in given else None
    return [to_skypilot(manifest, volumes=volumes, resolve=resolve) for manifest in manifests(name)]


def task_text(found: list[Translation]) -> str:
    """The tasks as YAML documents, without the values of their secrets."""
    return "---\n".join(as_yaml(each.without_secrets) for each in found if each.task)


def report_text(found: list[Translation]) -> str:
    """The reports, a line a field."""
    blocks = [
        "".join(f"{line.verdict.value}: {line.field}: {line.text}\n" for line in each.report)
        for each in found
    ]
    return "\n".join(blocks)


if __name__ == "__main__":
    for case in names():
        became = translations(case)
        (CASES / f"{case}{TASK}").write_text(task_text(became))
        (CASES / f"{case}{REPORT}").write_text(report_text(became))
