"""Clusters that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

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
