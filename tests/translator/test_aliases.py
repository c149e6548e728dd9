"""Aliases that stand for much, or for themselves: the texts, and the report on the most that is read."""

from __future__ import annotations

from translator.manifests.documents import chunks, load
from translator.tasks.skypilot import to_skypilot

HEAD = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bomb\n"
SPEC = 'spec:\n  restartPolicy: Never\n  containers: [{name: c, image: i, command: ["true"]}]\n'


def bomb(levels: int) -> str:
    """Nine times as many values per level; six have 464 bytes."""
    lines = ["    a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"    a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)]
    return HEAD + "  annotations:\n" + "\n".join(lines) + "\n" + SPEC


SELF = HEAD.replace("metadata:", "metadata: &m") + "  annotations: *m\n" + SPEC


def test_a_report_is_sorted_without_a_walk_through_what_it_does_not_name() -> None:
    (chunk,) = chunks(bomb(4))  # the most that is taken
    manifest = load(chunk, "", 1)
    assert isinstance(manifest, dict)
    found = to_skypilot(manifest)
    fields = [line.field for line in found.report]
    assert fields.index("metadata.annotations.a0") < fields.index("metadata.annotations.a3")
