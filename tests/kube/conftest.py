"""Clusters that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from starburst.kube.api import Api
from starburst.kube.resources import EVENTS, JOBS
from tests.kube.chakra_lab import make_node
from tests.kube.deployed import WORK, Deployed, ask, new
from tests.kube.lab import Lab, control_plane, kubelets

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this needs a real server, which takes its time: it is run by `make kube`."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.kube)


@pytest.fixture(scope="session")
def api_server() -> Iterator[Lab]:
    """A control plane without kubelets; tests make namespaces and nodes of their own in it."""
    with control_plane() as lab:
        yield lab


@pytest.fixture(scope="session")
def two_kubelets() -> Iterator[Lab]:
    """Two nodes, node0 and node1, that truly run pods."""
    with kubelets(2) as lab:
        yield lab


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """A server of its own: others empty theirs of pods, and a Deployment makes them again."""
    with control_plane() as lab:
        yield Deployed(lab, tmp_path_factory.mktemp("accounts"))


@pytest.fixture(scope="module")
def stage(deployed: Deployed) -> Deployed:
    """With a node, and one of each kind of object."""

    async def build(api: Api) -> None:
        await make_node(api, "node-1")
        for kind, resource in (("jobs", JOBS), ("events", EVENTS)):
            item = new(kind, "")
            item["metadata"]["name"] = "there"
            await api.create(resource, WORK, item)

    ask(deployed.lab, build)
    return deployed
