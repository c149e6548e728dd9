"""The embedded cluster tells of its nodes and runs jobs on them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from starburst.clusters.local import LocalCluster
from starburst.core.model.events import NodesChanged, RunEnd, RunEnded, SiteSynced
from starburst.domain.job import Site
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.runs.ports import Cluster
from tests.runs.harness import log, shell, untimed, watching

pytestmark = pytest.mark.processes

NODES = (Node("n1", Resources.of(4, 16, 64)), Node("n2", Resources.of(2, 8, 32)))


def a_cluster(root: Path) -> Cluster:
    return LocalCluster(NODES, root / "runs", root / "checkpoints")


def test_it_reports_its_nodes_then_its_runs_then_that_this_is_all(root: Path) -> None:
    async def main() -> None:
        async with watching(a_cluster(root)) as reports:
            assert reports.events == [NodesChanged(NODES), SiteSynced(Site.CLUSTER, frozenset())]

    asyncio.run(main())


def test_a_job_runs_on_the_node_it_was_given(root: Path) -> None:
    async def main() -> None:
        cluster = a_cluster(root)
        async with watching(cluster) as reports:
            await cluster.start(shell("echo $STARBURST_SITE $STARBURST_NODE", where="n2"))
            assert untimed(await reports.ended()) == RunEnded("job", 1, RunEnd.EXITED, 0)
        assert log(root) == "cluster n2\n"

    asyncio.run(main())


def test_a_job_is_stopped_when_told(root: Path) -> None:
    async def main() -> None:
        cluster = a_cluster(root)
        async with watching(cluster) as reports:
            await cluster.start(shell("sleep 600"))
            await reports.started()
            await cluster.stop("job", 1, 0)
            assert (await reports.ended()).end is RunEnd.STOPPED

    asyncio.run(main())


def test_watching_again_tells_everything_again(root: Path) -> None:
    async def main() -> None:
        cluster = a_cluster(root)
        async with watching(cluster) as reports:
            await cluster.start(shell("exit 2"))
            end = await reports.ended()
        async with watching(cluster) as reports:
            assert reports.of(RunEnded) == [end]
            assert reports.events[-1] == SiteSynced(Site.CLUSTER, frozenset({("job", 1)}))

    asyncio.run(main())
