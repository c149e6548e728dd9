"""Probes over TCP, as a kubelet asks: who answers is ready, and one of those leads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import httpx
import pytest

from starburst.app.config.http import HttpConfig
from starburst.store import leader
from starburst.store.leader import LeaderClaim, leader_record
from starburst.web.context import AppContext
from starburst.web.serving.listen import listening
from starburst.web.serving.server import serving


@pytest.fixture
def replicas(app_context: AppContext) -> Iterator[list[str]]:
    """URLs of replicas "a" and "b" of one store."""
    settings, urls = HttpConfig(port=0), []
    with ExitStack() as stack:
        for name in ("a", "b"):
            sock = stack.enter_context(listening(settings))
            urls.append(stack.enter_context(serving(replace(app_context, replica=name), settings, sock)))
        yield urls


def test_all_are_ready_and_one_leads_also_when_the_leader_changes(
    app_context: AppContext, replicas: list[str]
) -> None:
    def probed(path: str) -> list[int]:
        return [httpx.get(f"{url}{path}").status_code for url in replicas]

    assert probed("/healthz") == [200, 200]
    assert probed("/healthz/leader") == [503, 503], "none leads yet"
    for name, leading in (("a", [200, 503]), ("b", [503, 200])):
        leader.take(app_context.store, leader_record(app_context.store), LeaderClaim(name))
        assert probed("/healthz") == [200, 200]
        assert probed("/healthz/leader") == leading
