"""The real servers' ways by version, on Jobs as servers of 1.20, 1.22 and 1.36 write them."""

from __future__ import annotations

import pytest

from starburst.kube.features import Features
from tests.kube_unit.server_ways import cuts_lists, is_withdrawn

OF_1_20 = {"parallelism": 0, "completions": 1, "backoffLimit": 0}
OF_1_22 = {"parallelism": 1, "completions": 1, "completionMode": "NonIndexed", "suspend": True}
OF_1_36 = {**OF_1_22, "podReplacementPolicy": "TerminatingOrFailed", "manualSelector": False}


def features(major: int, minor: int) -> Features:
    modern = (major, minor) >= (1, 22)
    return Features(suspend=modern, indexed=modern, version=(major, minor), name=f"v{major}.{minor}.2")


@pytest.mark.parametrize(
    ("minor", "spec", "withdrawn"),
    [
        (20, OF_1_20, True),
        (20, {**OF_1_20, "parallelism": 1}, False),
        (22, OF_1_22, True),
        (22, {**OF_1_22, "suspend": False}, False),
        (36, OF_1_36, True),
        (36, {**OF_1_36, "suspend": False}, False),
        (36, {**OF_1_36, "suspend": False, "parallelism": 0}, False),
    ],
)
def test_a_withdrawn_job(minor: int, spec: dict[str, object], withdrawn: bool) -> None:
    assert is_withdrawn({"spec": spec}, features(1, minor)) is withdrawn


def test_lists_that_a_compaction_cuts() -> None:
    assert [cuts_lists(features(1, minor)) for minor in (20, 33, 34, 36)] == [True, True, False, False]
