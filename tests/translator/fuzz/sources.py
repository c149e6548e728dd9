"""What is bent: manifests of the cases and of operators, SkyPilot tasks, and batch scripts by their lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.translator.skypilot import goldens

NATIVE = Path(__file__).parents[1] / "native"
KINDS = Path(__file__).parent / "kinds"
SHAPES = Path(__file__).parents[1] / "kinds" / "manifests"


@dataclass(frozen=True)
class Sources:
    """Valid documents and scripts."""

    manifests: list[dict[str, Any]]
    kinds: list[dict[str, Any]]
    tasks: list[dict[str, Any]]
    scripts: list[list[str]]


def sources() -> Sources:
    """All of them, except a manifest that is large on purpose."""
    manifests = [each for name in goldens.names() if name != "huge-args" for each in goldens.manifests(name)]
    for path in sorted(NATIVE.glob("*.yaml")):
        manifests += _documents(path)
    scripts = [path.read_text().splitlines() for path in sorted(KINDS.glob("*.sbatch"))]
    kinds = [each for path in sorted(SHAPES.glob("*.yaml")) for each in _documents(path) if "kind" in each]
    return Sources(manifests, kinds, list(_documents(KINDS / "tasks.yaml")), scripts)


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    return (each for each in yaml.safe_load_all(path.read_text()) if isinstance(each, dict))
