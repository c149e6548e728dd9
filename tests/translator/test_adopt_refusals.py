"""What cannot be adopted is refused in one line that names object and field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.translator.live_objects import JOB, POD, changed, errors
from translator.field import ONLY_THE_CLUSTER


@pytest.mark.parametrize(
    ("obj", "line"),
    [
        (
            changed(
                JOB,
                "spec|template|spec|volumes",
                [{"name": "d", "persistentVolumeClaim": {"claimName": "x"}}],
            ),
            "Job vision/train: spec.template.spec.volumes[0].persistentVolumeClaim: "
            f"does not go along to a cloud; {ONLY_THE_CLUSTER}",
        ),
        (
            changed(JOB, "spec|completions", 10),
            "Job vision/train: spec.completions: differs from parallelism, which is 2: a cloud runs all "
            f"tasks at once; {ONLY_THE_CLUSTER}",
        ),
        (
            changed(POD, "spec|restartPolicy", "Always"),
            'Pod default/probe: spec.restartPolicy: "Always": a batch job ends; write Never',
        ),
        (
            changed(POD, "metadata|ownerReferences", [{"kind": "Job", "name": "train", "controller": True}]),
            "Pod default/probe: metadata: is a pod of Job train; let that be adopted",
        ),
        (
            changed(POD, "metadata|annotations|starburst.io/max-wiat", "1h"),
            'Pod default/probe: metadata.annotations["starburst.io/max-wiat"]: "1h": '
            "Starburst has no such key; did you mean max-wait?",
        ),
        (
            changed(POD, "kind", "Service"),
            'Service default/probe: kind: "Service": not a batch job; '
            "Starburst takes batch/v1 Job and v1 Pod",
        ),
    ],
)
def test_what_cannot_be_adopted_is_said_in_one_line(obj: dict[str, Any], line: str) -> None:
    assert errors(obj) == [line]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


PATHS = [
    "metadata",
    "metadata|labels",
    "metadata|annotations",
    "metadata|ownerReferences",
    "metadata|uid",
    "spec",
    "spec|template",
    "spec|containers",
    "spec|tolerations",
    "spec|volumes",
    "status",
    "kind",
]


@settings(max_examples=60)
@given(st.sampled_from([JOB, POD]), st.sampled_from(PATHS), values)
def test_whatever_stands_in_an_object_no_traceback_comes_of_it(
    obj: dict[str, Any], path: str, value: object
) -> None:
    for line in errors(changed(obj, path, value)):
        assert ": " in line


def test_a_secret_that_the_user_mounts_is_one() -> None:
    own = [{"name": "keys", "secret": {"secretName": "default-token-8xkqz"}}]
    assert errors(changed(POD, "spec|volumes", own)) != []


def test_what_stands_for_several_jobs_or_names_others_is_not_adopted() -> None:
    annotated = {**JOB["metadata"]["annotations"], "starburst.io/after-ok": "prep"}
    (error,) = errors({**JOB, "metadata": {**JOB["metadata"], "annotations": annotated}})
    assert "name jobs of Starburst; give it to starburst submit" in error
    annotated = {**JOB["metadata"]["annotations"], "starburst.io/array": "0-9"}
    single = changed(changed(JOB, "spec|parallelism", 1), "spec|completions", 1)
    told = errors({**single, "metadata": {**JOB["metadata"], "annotations": annotated}})
    assert any("cannot be split into an array; give it to starburst submit" in each for each in told)


@pytest.mark.parametrize(
    ("manager", "taken"),
    [
        ("kubernetes.io/job-controller", True),
        ("starburst.io/starburst", True),
        ("kueue.x-k8s.io/multikueue", False),
    ],
)
def test_a_job_of_another_controller_is_left_alone(manager: str, taken: bool) -> None:
    told = errors(changed(JOB, "spec|managedBy", manager))
    assert any("another controller is to run this job" in each for each in told) is not taken
