"""The clusters to test against are what they should be."""

from __future__ import annotations

import asyncio

from starburst.kube.api import Api
from starburst.kube.resources import NODES
from tests.kube.lab import Lab


def test_the_api_server_answers_and_has_no_nodes_of_its_own(api_server: Lab) -> None:
    async def nodes() -> list[str]:
        async with await Api.connect(api_server.kubeconfig) as api:
            return [node["metadata"]["name"] for node in await api.list(NODES)]

    assert "node0" not in asyncio.run(nodes())
