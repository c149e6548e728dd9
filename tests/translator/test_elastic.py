"""The annotation starburst.io/elastic: with how many of its tasks a gang goes on after a lost node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.translator.manifests import read
from translator.errors import ManifestErrors


def gang(wish: object, tasks: int = 4, **spec: Any) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i", "command": ["true"]}]}
    counts = {"parallelism": tasks, "completions": tasks, "completionMode": "Indexed"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "annotations": {"starburst.io/elastic": wish}},
        "spec": {**counts, **spec, "template": {"spec": pod}},
    }


@pytest.mark.parametrize(
    ("wish", "least"), [("true", 1), (True, 1), ("3", 3), (1, 1), ("false", 0), (None, 0)]
)
def test_true_is_one_task_at_least(wish: object, least: int) -> None:
    assert read(gang(wish))[0].job.least_tasks == least


@pytest.mark.parametrize(("wish", "tasks"), [("true", 1), ("4", 4), ("9", 4)])
def test_what_leaves_nothing_to_choose_is_noted(wish: str, tasks: int) -> None:
    (found,) = read(gang(wish, tasks))
    assert found.job.least_tasks == 0
    assert any("or not at all" in note for note in found.notes)


def test_tasks_that_decide_are_kept() -> None:
    policy = {"rules": [{"succeededIndexes": "0,2"}]}
    assert read(gang("true", successPolicy=policy))[0].job.least_tasks == 3


@pytest.mark.parametrize("wish", ["0", "-1", "yes", 1.5, [2]])
def test_other_values_are_refused(wish: object) -> None:
    with pytest.raises(ManifestErrors, match="elastic"):
        read(gang(wish))
