"""Whatever is wrong with a manifest, it is said in the report and never by a traceback."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.translator.skypilot import goldens
from translator.tasks.skypilot import to_skypilot
from translator.tasks.task_yaml import as_yaml

NAMES = [name for name in goldens.names() if name != "huge-args"]
MANIFESTS = [manifest for name in NAMES for manifest in goldens.manifests(name)]
JUNK = st.sampled_from(
    [None, True, 3, -1, 1.5, "", "x", "$(A)", [], [3], [None], [[]], {}, {"name": "x"}, {"": {}}]
)


@settings(max_examples=50)
@given(st.data())
def test_one_wrong_value_anywhere_is_survived(data):
    manifest = copy.deepcopy(data.draw(st.sampled_from(MANIFESTS)))
    owner, key = data.draw(st.sampled_from(list(_places(manifest))))
    owner[key] = data.draw(JUNK)
    found = to_skypilot(manifest, resolve=goldens.CLUSTER.get)
    assert found.report
    assert bool(found.task) or found.refused()
    as_yaml(found.without_secrets)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every key of every mapping and every index of every list."""
    if isinstance(value, dict):
        entries = list(value.items())
    else:
        entries = list(enumerate(value)) if isinstance(value, list) else []
    for key, inner in entries:
        yield value, key
        yield from _places(inner)
