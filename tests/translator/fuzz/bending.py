"""The text of a case: a valid document or script with some changes of its structure, and of its text."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import yaml

from tests.translator.fuzz.sources import Sources
from translator.kinds.sbatch.directives import FLAGS, LETTERS
from translator.kinds.sbatch.options import HARMLESS, NOTED, READ, REFUSED

#: Values of every type that YAML has, and texts that mean something to a reader.
JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 3, 1.5, 2**63, 1e300, "", "x", "y", "0755", "-", "$(A)", "$$(", "a" * 5000),
    *([], [[]], [None], ["x"], {}, {"": {}}, {"name": ["x"]}, {"x": {"y": None}}, "1Gi", "100m", "\u2028"),
    *("In", "Exists", "never", "http://x", "a/b", "/", "..", "key", "nvidia.com/gpu", "Job", "Pod", "List"),
    *("\x1b", "é", "1,2", "A100:8", "0-9%2", "9" * 400, "1" * 5000, "1e999999999", "s3://b", "docker:x", "'"),
)
KEYS = (
    *("name", "value", "valueFrom", "env", "envFrom", "volumes", "volumeMounts", "metadata", "spec"),
    *("template", "nodeSelector", "affinity", "tolerations", "containers", "resources", "limits", "command"),
    *("items", "uid", "starburst.io/array", "starburst.io/infra", "kubernetes.io/arch", "subdomain"),
    *("nvidia.com/gpu.product", "accelerators", "any_of", "run", "setup", "file_mounts", "kind", "A100"),
)
#: Words of options of sbatch, with and without a value.
OPTIONS = sorted((*READ, *HARMLESS, *NOTED, *REFUSED, *FLAGS, *LETTERS))
_VALUES = tuple(str(each) for each in JUNK if isinstance(each, int | float | str) and "\n" not in str(each))
_PIECES = (
    *("\t", "{{ x }}", "{% x %}", "\ufeff", "\n---\n", "&a ", "*a", "\x00", "'", '"', "}", "[", ": ", "#"),
    *("!!x ", "\r", "\n#SBATCH --array=0-9\n", "\n#!/bin/sh\n", "\\", "1e9999999"),
)


def text_of(seed: int, sources: Sources) -> str:
    """The text of the case of a seed."""
    draw = random.Random(seed)
    kind = draw.random()
    if kind < 0.15:
        text = _script(draw, draw.choice(sources.scripts))
    else:
        of = sources.tasks if kind < 0.3 else sources.kinds if kind < 0.55 else sources.manifests
        text = _document(draw, of, sources)
    return damage(draw, text) if draw.random() < 0.3 else text


def _document(draw: random.Random, of: list[dict[str, Any]], sources: Sources) -> str:
    document = copy.deepcopy(draw.choice(of))
    for _ in range(draw.choice((0, 1, 1, 2, 3, 6))):
        bend(draw, document, sources.manifests + sources.tasks)
    if draw.random() < 0.5:
        return json.dumps(document)
    flow = draw.choice((None, False))
    return str(yaml.dump(document, Dumper=yaml.CSafeDumper, default_flow_style=flow))


def bend(draw: random.Random, document: dict[str, Any], others: list[dict[str, Any]]) -> None:
    """One change of the structure."""
    owner, key = draw.choice(list(places(document)))
    value = owner[key]
    change = draw.randrange(8)
    if change == 0 and isinstance(owner, dict):
        owner[draw.choice(KEYS)] = owner.pop(key)
    elif change == 1 and isinstance(owner, list):
        owner.extend(copy.deepcopy(value) for _ in range(draw.choice((1, 2, 300))))
    elif change == 2:
        there, its = draw.choice(list(places(draw.choice(others))))
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
    if not document:
        document["kind"] = "Job"


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


def _script(draw: random.Random, lines: list[str]) -> str:
    """A script with some of its lines replaced, moved, repeated and removed."""
    lines = list(lines)
    for _ in range(draw.choice((0, 1, 2, 3, 6))):
        at, change = draw.randrange(len(lines)), draw.randrange(6)
        if change == 0:
            lines.insert(1, _directive(draw))
        elif change == 1:
            lines[at] = _directive(draw)
        elif change == 2:
            lines.insert(draw.randrange(len(lines)), lines[at])
        elif change == 3 and len(lines) > 1:
            del lines[at]
        elif change == 4:
            lines[0] = f"#!{draw.choice(('/bin/sh', '/usr/bin/env', '/usr/bin/perl -w', '', '/bin/bash -l'))}"
        else:
            lines[at] = f"{lines[at]}{draw.choice(_VALUES)}"
    return "\n".join(lines)


def _directive(draw: random.Random) -> str:
    option, value = draw.choice(OPTIONS), draw.choice(_VALUES)
    dashes = "-" if len(option) == 1 else "--"
    return f"#SBATCH {dashes}{option}{draw.choice(('=', ' ', ''))}{value}"


def words_of(draw: random.Random, text: str) -> tuple[str, ...]:
    """A command of words of a text and of values that mean something."""
    found = text.split()[: draw.randrange(1, 40)]
    return (*found, *(draw.choice(_VALUES) for _ in range(draw.randrange(3)))) or ("true",)


def value_of(draw: random.Random) -> str:
    """A value of an option; none in half of the cases."""
    return draw.choice(("", draw.choice(_VALUES)))


def damage(draw: random.Random, text: str) -> str:
    """One change of the text."""
    at = draw.randrange(len(text) + 1)
    bomb = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))
    return draw.choice(
        (
            text[:at] + draw.choice(_PIECES) + text[at:],
            text[:at],
            f"{text}\n{text}",
            f"{text}\n---\n{text}",
            f"a0: &a0 [x]\n{bomb}\n{text}",
            "[" * draw.choice((50, 5000)) + text,
            text.replace("spec:", "spec: &s", 1) + "\nmore: *s\n",
            text.replace("metadata:", "metadata: &m", 1).replace("labels:", "labels: *m #", 1),
        )
    )
