"""Structure-aware fuzzing of `submit`, `translate` and adoption: python -m tests.translator.fuzz --minutes 1

Manifests of the cases are bent: values are replaced, moved between manifests, wrapped, repeated and renamed,
and their text is cut, joined and given aliases. Each must be read, or refused with lines: no traceback, no
case over LIMIT_S of processor time, no more than MEMORY_MIB above the start. --seed repeats a case.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from starburst.clouds.sky.runs.docker import container, runs_in_container
from starburst.clusters.kubernetes.manifest import job_object
from starburst.core.model.actions import Slot
from starburst.domain.job import CloudChoice
from starburst.runs.ports import Run
from tests.translator.skypilot import goldens
from translator.carried import Carried
from translator.errors import ManifestErrors
from translator.intake.rules import IntakeRules
from translator.intake.texts import read_manifests
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

LIMIT_S = 2.0
NATIVE_RULES = IntakeRules(native=True, carries=Carried({}))
MEMORY_MIB = 200
NATIVE = Path(__file__).parent / "native"
#: Values of every type that YAML has, and texts that mean something to a reader.
JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 3, 1.5, 2**63, 1e300, "", "x", "y", "0755", "-", "$(A)", "$$(", "a" * 5000),
    *(
        [],
        [[]],
        [None],
        ["x"],
        {},
        {"": {}},
        {"name": ["x"]},
        {"x": {"y": None}},
        "1Gi",
        "100m",
        "\u2028",
        "\x1b",
    ),
    *("In", "Exists", "never", "http://x", "a/b", "/", "..", "key", "nvidia.com/gpu", "Job", "Pod", "List"),
)
KEYS = (
    *(
        "name",
        "value",
        "valueFrom",
        "env",
        "envFrom",
        "volumes",
        "volumeMounts",
        "metadata",
        "spec",
        "template",
    ),
    *(
        "nodeSelector",
        "affinity",
        "tolerations",
        "containers",
        "resources",
        "limits",
        "command",
        "items",
        "uid",
    ),
    *(
        "starburst.io/array",
        "starburst.io/infra",
        "kubernetes.io/arch",
        "nvidia.com/gpu.product",
        "subdomain",
    ),
)


def main() -> int:
    """Fuzz for some minutes; 1 if a case failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, help="repeat the case of this seed only")
    wanted = parser.parse_args()
    sources = list(manifests())
    limit_memory()
    if wanted.seed is not None:
        print(text_of(wanted.seed, sources))
        return len(problems(wanted.seed, sources))
    ends, seed, failed = time.monotonic() + wanted.minutes * 60, random.randrange(10**9), 0
    first = seed
    while time.monotonic() < ends and failed < 20:
        for problem in problems(seed, sources):
            failed += 1
            print(f"seed {seed}: {problem}", file=sys.stderr)
        seed += 1
    print(f"{seed - first} cases from seed {first}, {failed} problems")
    return 1 if failed else 0


def limit_memory() -> None:
    """Let this process have MEMORY_MIB more than now; a case that needs more fails with a MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY_MIB * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def manifests() -> Iterator[dict[str, Any]]:
    """The manifests of all cases, except one that is large on purpose."""
    for name in goldens.names():
        if name != "huge-args":
            yield from goldens.manifests(name)
    for path in sorted(NATIVE.glob("*.yaml")):
        yield from (each for each in yaml.safe_load_all(path.read_text()) if isinstance(each, dict))


def problems(seed: int, sources: list[dict[str, Any]]) -> list[str]:
    """What went wrong with the case of a seed, by every way in."""
    text = text_of(seed, sources)
    found = []
    for name, way in WAYS.items():
        started = time.process_time()
        try:
            way(text)
        except ManifestErrors as refused:
            if not all(str(line).strip() and "\n" not in str(line) for line in refused.errors):
                found.append(f"{name}: a problem without a line")
        except Exception:
            found.append(f"{name}: {traceback.format_exc()}")
        if time.process_time() - started > LIMIT_S:
            found.append(f"{name}: took {time.process_time() - started:.1f} s")
    return found


def text_of(seed: int, sources: list[dict[str, Any]]) -> str:
    """The text of the case of a seed."""
    draw = random.Random(seed)
    manifest = copy.deepcopy(draw.choice(sources))
    for _ in range(draw.choice((0, 1, 1, 2, 3, 6))):
        bend(draw, manifest, sources)
    if draw.random() < 0.5:
        text = json.dumps(manifest)
    else:
        text = yaml.safe_dump(manifest, default_flow_style=draw.choice((None, False)))
    return damage(draw, text) if draw.random() < 0.3 else text


def bend(draw: random.Random, manifest: dict[str, Any], sources: list[dict[str, Any]]) -> None:
    """One change of the structure."""
    owner, key = draw.choice(list(places(manifest)))
    value = owner[key]
    change = draw.randrange(8)
    if change == 0 and isinstance(owner, dict):
        owner[draw.choice(KEYS)] = owner.pop(key)
    elif change == 1 and isinstance(owner, list):
        owner.extend(copy.deepcopy(value) for _ in range(draw.choice((1, 2, 300))))
    elif change == 2:
        there, its = draw.choice(list(places(draw.choice(sources))))
        owner[key] = copy.deepcopy(there[its])
    elif change == 3:
        owner[key] = [value] if draw.random() < 0.5 else {draw.choice(KEYS): value}
    elif change == 4 and isinstance(value, dict):
        value[draw.choice(KEYS)] = copy.deepcopy(draw.choice(JUNK))
    elif change == 5:
        del owner[key]
    elif change == 6 and isinstance(value, str):
        at = draw.randrange(len(value) + 1)
        owner[key] = value[:at] + str(draw.choice(JUNK)) + value[at:]
    else:
        owner[key] = copy.deepcopy(draw.choice(JUNK))
    if not manifest:
        manifest["kind"] = "Job"


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every key of every mapping and every index of every list."""
    entries: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        entries = list(value.items())
    elif isinstance(value, list):
        entries = list(enumerate(value))
    for key, inner in entries:
        yield value, key
        yield from places(inner)


def damage(draw: random.Random, text: str) -> str:
    """One change of the text."""
    at = draw.randrange(len(text) + 1)
    pieces = (
        "\t",
        "{{ x }}",
        "{% x %}",
        "\ufeff",
        "\n---\n",
        "&a ",
        "*a",
        "\x00",
        "'",
        '"',
        "}",
        "[",
        ": ",
        "#",
        "!!x ",
    )
    bomb = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))
    return draw.choice(
        (
            text[:at] + draw.choice(pieces) + text[at:],
            text[:at],
            f"{text}\n{text}",
            f"{text}\n---\n{text}",
            f"a0: &a0 [x]\n{bomb}\n{text}",
            "[" * draw.choice((50, 5000)) + text,
            text.replace("spec:", "spec: &s", 1) + "\nmore: *s\n",
            text.replace("metadata:", "metadata: &m", 1).replace("labels:", "labels: *m #", 1),
        )
    )


def _submit(text: str) -> None:
    read_manifests(text, "f", suffix=lambda: "a1b2c")


def _submit_to_kubernetes(text: str) -> None:
    """What is taken is also written as an object, and begun as on a rented machine if it may leave."""
    for item in read_manifests(text, "f", suffix=lambda: "a1b2c", taking=NATIVE_RULES)[:3]:
        job, workload = item.job, item.workload
        run = Run(job, 1, tuple(Slot(rank, "n", task) for rank, task in enumerate(job.tasks)), workload)
        job_object(run, namespace="ns", controller="c", decision="", indexed=True, checkpoints=None)
        if job.cloud is CloudChoice.NEVER or workload.manifest is None:
            continue
        manifest = json.loads(workload.manifest)
        if runs_in_container(workload):
            container("name", workload, job.tasks[0], dict(workload.env))
        with suppress(UnresolvedError):
            mounts_of(manifest, {}, in_container=runs_in_container(workload))
            data = {reference: goldens.CLUSTER.get(reference) for reference in references(manifest, "ns")}
            evaluate(manifest, ReferencedData("ns", data), TaskHost(0, "10.0.0.1", "vm"))


def _objects(text: str) -> Iterator[dict[str, Any]]:
    for index, chunk in enumerate(chunks(text), 1):
        value = load(chunk, "f", index)
        if isinstance(value, dict):
            yield value


def _translate(text: str) -> None:
    for each in _objects(text):
        found = to_skypilot(each, resolve=goldens.CLUSTER.get)
        if not found.report:
            raise AssertionError("no line about anything")
        as_yaml(found.without_secrets)


def _adopt(text: str) -> None:
    for each in _objects(text):
        read_object(each, job_id="a-1", rules=NATIVE_RULES)


WAYS: dict[str, Callable[[str], None]] = {
    "submit": _submit,
    "submit to Kubernetes": _submit_to_kubernetes,
    "translate": _translate,
    "adopt": _adopt,
}

if __name__ == "__main__":
    sys.exit(main())
