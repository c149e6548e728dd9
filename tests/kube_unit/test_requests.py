"""What a pod asks for, as Kubernetes counts it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from starburst.domain.resources import Resources
from starburst.kube.objects import gpus, read_node, resources
from tests.kube_unit.samples import container
from tests.kube_unit.store import Object
from translator.podspec import minus, plus, pod_requests

GIB = 1024**3


def test_a_pod_asks_for_what_its_containers_ask_for_together_and_for_one_place() -> None:
    asked = pod_requests(
        {
            "containers": [
                container({"cpu": "500m", "memory": "1Gi"}),
                container({"cpu": "1.5", "nvidia.com/gpu": "2"}),
            ]
        }
    )
    assert asked == {"cpu": 2000, "memory": GIB, "nvidia.com/gpu": 2, "pods": 1}


def test_limits_stand_in_for_the_requests_a_container_lacks_resource_by_resource() -> None:
    asked = pod_requests(
        {
            "containers": [
                container({"cpu": "1"}, {"cpu": "4", "memory": "2Gi"}),
                container(None, {"cpu": "3"}),
            ]
        }
    )
    assert asked == {"cpu": 4000, "memory": 2 * GIB, "pods": 1}


def test_the_greediest_init_container_counts_where_it_asks_for_more() -> None:
    spec = {
        "initContainers": [container({"cpu": "3"}), container({"cpu": "1", "memory": "4Gi"})],
        "containers": [container({"cpu": "1", "memory": "1Gi"}), container({"cpu": "1"})],
    }
    assert pod_requests(spec) == {"cpu": 3000, "memory": 4 * GIB, "pods": 1}


def test_a_sidecar_runs_beside_the_containers_and_the_init_containers_after_it() -> None:
    sidecar = container({"cpu": "1"}, restartPolicy="Always")
    after = {"initContainers": [sidecar, container({"cpu": "5"})], "containers": [container({"cpu": "2"})]}
    before = {"initContainers": [container({"cpu": "5"}), sidecar], "containers": [container({"cpu": "2"})]}
    assert pod_requests(after)["cpu"] == 6000
    assert pod_requests(before)["cpu"] == 5000


def test_overhead_comes_on_top_and_requests_of_the_whole_pod_in_place() -> None:
    spec = {
        "initContainers": [container({"cpu": "9"})],
        "containers": [container({"cpu": "2", "nvidia.com/gpu": "1"})],
        "overhead": {"cpu": "250m"},
        "resources": {"requests": {"cpu": "3"}},
    }
    assert pod_requests(spec) == {"cpu": 3250, "nvidia.com/gpu": 1, "pods": 1}


def test_amounts_are_rounded_up_for_what_is_asked_and_down_for_what_there_is() -> None:
    assert pod_requests({"containers": [container({"cpu": "100u", "memory": "1500m"})]})["cpu"] == 1
    assert pod_requests({"containers": [container({"cpu": "100u", "memory": "1500m"})]})["memory"] == 2
    allocatable = {"cpu": "3999.9m", "memory": "16310308Ki", "pods": "110"}
    node = read_node({"metadata": {"name": "n", "uid": "u"}, "status": {"allocatable": allocatable}})
    assert node.allocatable == {"cpu": 3999, "memory": 16310308 * 1024, "pods": 110}


def test_a_pod_that_asks_for_nothing_takes_one_place() -> None:
    assert pod_requests({}) == {"pods": 1}
    assert pod_requests({"containers": [{"name": "c"}], "initContainers": None, "overhead": None}) == {
        "pods": 1
    }


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 9).map(str))
CONTAINERS = st.builds(container, AMOUNTS, AMOUNTS)
INIT = st.builds(container, AMOUNTS, AMOUNTS, restartPolicy=st.sampled_from([None, "Always"]))


@given(st.lists(CONTAINERS, max_size=3), st.lists(INIT, max_size=4), AMOUNTS)
def test_requests_are_those_of_kubernetes(
    containers: list[Object], init: list[Object], overhead: Object
) -> None:
    spec = {"containers": containers, "initContainers": init, "overhead": overhead}
    asked = pod_requests(spec)
    for name in ("cpu", "memory", "nvidia.com/gpu"):
        expected = by_kubernetes(spec, name)
        assert asked.get(name, 0) == expected * (1000 if name == "cpu" else 1)


def by_kubernetes(spec: Object, name: str) -> int:
    """`PodRequests` of k8s.io/component-helpers/resource, statement by statement, for one resource."""

    def asked(of: Object) -> int:
        given = of["resources"]
        return int(given["requests"].get(name, given["limits"].get(name, "0")))  # admission's defaults

    reqs = sum(asked(each) for each in spec["containers"])
    restartable_init_container_reqs = 0
    init_container_reqs = 0
    for each in spec["initContainers"]:
        container_reqs = asked(each)
        if each["restartPolicy"] == "Always":
            reqs += container_reqs
            restartable_init_container_reqs += container_reqs
            container_reqs = restartable_init_container_reqs
        else:
            container_reqs += restartable_init_container_reqs
        init_container_reqs = max(init_container_reqs, container_reqs)
    return max(reqs, init_container_reqs) + int(spec["overhead"].get(name, "0"))


@given(*[st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]), st.integers(0, 9))] * 2)
def test_what_is_added_can_be_taken_away(one: dict[str, int], other: dict[str, int]) -> None:
    back = minus(plus(one, other), other)
    assert {name: amount for name, amount in back.items() if amount} == {k: v for k, v in one.items() if v}


def test_the_core_counts_whole_mebibytes_up_for_what_is_asked_and_down_for_what_there_is() -> None:
    found = {"cpu": 1500, "memory": 3 * 1024**2 + 1, "nvidia.com/gpu": 1, "amd.com/gpu": 2, "pods": 1}
    assert resources(found, "A100") == Resources(3, 1500, 3, "A100", (("pods", 1),))
    assert resources(found, up=True) == Resources(3, 1500, 4, "", (("pods", 1),))
    assert gpus(found) == 3
