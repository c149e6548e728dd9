"""A pod that is resized in place takes what it has, has been granted or wants, whichever is the most."""

from __future__ import annotations

import pytest

from starburst.kube.objects import read_pod
from starburst.kube.resources import Object
from tests.kube_unit.samples import a_pod

INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}


def state(in_force: str, granted: str = "") -> Object:
    """The status of the container, as kubelets of 1.33 write it."""
    more = {"allocatedResources": {"cpu": granted, "memory": "1Gi"}} if granted else {}
    return {"name": "main", "resources": {"requests": {"cpu": in_force, "memory": "1Gi"}}, **more}


def milli_cpus(wanted: str, *states: Object, conditions: tuple[Object, ...] = ()) -> int:
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": wanted, "memory": "1Gi"}}}]}
    status = {"phase": "Running", "containerStatuses": list(states), "conditions": list(conditions)}
    return read_pod(a_pod("p", metadata={"uid": "u"}, spec=spec, status=status)).requests["cpu"]


@pytest.mark.parametrize(
    ("wanted", "states", "conditions", "counted"),
    [
        ("2", (), (), 2000),
        ("2", ({"name": "main"},), (), 2000),
        ("2", (state("2", "2"),), (), 2000),
        ("4", (state("2", "2"),), (), 4000),
        ("1", (state("1500m", "1"),), (), 1500),
        ("1", (state("1", "1500m"),), (), 1500),
        ("64", (state("2", "2"),), (INFEASIBLE,), 2000),
        ("2", ({**state("9"), "name": "other"},), (), 2000),
    ],
)
def test_the_most_of_wanted_granted_and_in_force_counts(
    wanted: str, states: tuple[Object, ...], conditions: tuple[Object, ...], counted: int
) -> None:
    assert milli_cpus(wanted, *states, conditions=conditions) == counted


def test_sidecars_are_resized_too() -> None:
    spec = {
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        "initContainers": [
            {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
        ],
    }
    proxy = {**state("3"), "name": "proxy"}
    status = {"phase": "Running", "initContainerStatuses": [proxy]}
    assert read_pod(a_pod("p", metadata={"uid": "u"}, spec=spec, status=status)).requests["cpu"] == 4000
