"""What pods wrote is kept where `starburst logs` looks; a log is read on where it broke off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from starburst.app.config.home import Home
from starburst.app.logs.sites import find_logs
from starburst.clusters.kubernetes import logs
from starburst.clusters.kubernetes.logs import LogKeeper, PodLog, lines
from starburst.clusters.local import LocalCluster
from starburst.core.model.events import SiteSynced
from starburst.kube.resources import PODS
from starburst.runs.attempt_dir import log_path
from tests.kube_unit.samples import a_pod
from tests.kube_unit.server import FakeServer


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PAUSE_S", 0.0)


def keep(
    home: Home, text: bytes, *, limit: int = 100, before: Callable[[FakeServer], object] = lambda _: None
) -> FakeServer:
    """Keep the log of a pod that wrote this."""

    async def main() -> FakeServer:
        async with FakeServer() as server, server.api() as api:
            server.add(PODS, a_pod(spec={"containers": [{"name": "first"}, {"name": "second"}]}))
            server.logs["ns", "p"] = text
            before(server)
            await LogKeeper(api, home.cluster, limit=limit).keep(
                "ns", "p", log_path(home.cluster, "a.b", 3, 1)
            )
            return server

    return asyncio.run(main())


def kept(home: Home) -> list[bytes]:
    return [log.path.read_bytes() for log in find_logs(home, "a.b", 3, 1)]


def test_a_log_is_kept_where_it_is_looked_for(tmp_path: Path) -> None:
    home = Home(tmp_path)
    server = keep(home, b"one\ntwo")
    assert kept(home) == [b"one\ntwo"]
    assert server.asked[-1].query == {"follow": "true", "container": "first", "timestamps": "true"}


def test_a_log_that_is_being_kept_is_not_written_twice_at_once(tmp_path: Path) -> None:
    home = Home(tmp_path)

    async def main() -> FakeServer:
        async with FakeServer() as server, server.api() as api:
            server.add(PODS, a_pod())
            server.logs["ns", "p"] = b"one\n"
            target = log_path(home.cluster, "a.b", 3, 1)
            await asyncio.gather(*(LogKeeper(api, home.cluster).keep("ns", "p", target) for _ in range(3)))
            return server

    server = asyncio.run(main())
    assert kept(home) == [b"one\n"]
    assert sum(asked.path.endswith("/log") for asked in server.asked) == 1


@pytest.mark.parametrize("count", [9, 19, 1000])
def test_only_the_end_of_a_long_log_is_kept_from_the_beginning_of_a_line_on(
    tmp_path: Path, count: int
) -> None:
    home = Home(tmp_path)
    text = b"".join(b"line %04d\n" % number for number in range(count))
    keep(home, text, limit=95)
    assert kept(home) == [text[-90:]]
    assert {path.name for path in log_path(home.cluster, "a.b", 3, 1).parent.iterdir()} == {
        "log",
        "log.times",
    }


def test_one_endless_line_is_kept_to_the_limit_too(tmp_path: Path) -> None:
    home = Home(tmp_path)
    keep(home, b"x" * 1000, limit=100)
    assert kept(home) == [b"x" * 100]


@pytest.mark.parametrize("before", [b"one\n", b"one\nhalf a li"])
def test_what_the_kubelet_adds_when_a_container_is_removed_is_not_the_jobs(
    tmp_path: Path, before: bytes
) -> None:
    home = Home(tmp_path)
    keep(
        home, before + b'rpc error: code = NotFound desc = an error occurred when try to find container "64"'
    )
    assert kept(home) == [before]


def test_a_connection_that_breaks_is_tried_again_and_nothing_comes_twice(tmp_path: Path) -> None:
    home = Home(tmp_path)
    server = keep(home, b"one\n", before=lambda server: server.fail("/log", times=2))
    assert kept(home) == [b"one\n"]
    assert sum(asked.path.endswith("/log") for asked in server.asked) == 3


def test_what_cannot_be_kept_is_given_up_and_hurts_nobody(tmp_path: Path) -> None:
    home = Home(tmp_path)
    keep(home, b"one\n", before=lambda server: server.fail("/log", status=400, reason="BadRequest"))
    keep(home, b"one\n", before=lambda server: server.remove(PODS, "ns", "p"))
    keep(home, b"one\n", before=lambda server: server.fail("/log", status=403, reason="Forbidden", times=99))
    keep(home, b"one\n", before=lambda server: server.fail("/log", times=99))
    assert kept(home) == []
    keep(home, b"one\n")
    keep(home, b"two\n", before=lambda server: server.fail("/log", status=404, reason="NotFound"))
    assert kept(home) == [b"one\n"], "what was kept before stays"


def test_the_embedded_cluster_takes_kept_logs_for_runs_that_are_over(tmp_path: Path) -> None:
    home = Home(tmp_path)
    keep(home, b"one\n")
    reports: list[object] = []

    async def main() -> None:
        watch = asyncio.create_task(LocalCluster((), home.cluster, home.checkpoints).watch(reports.append))
        while not any(isinstance(report, SiteSynced) for report in reports):
            await asyncio.sleep(0)
            assert not watch.done() or watch.result()
        watch.cancel()

    asyncio.run(asyncio.wait_for(main(), 10))
    assert not (log_path(home.cluster, "a.b", 3, 1).parent / "lock").exists(), "nothing was started"


def read(text: bytes, skip: int, before: Callable[[FakeServer], object] = lambda _: None) -> list[bytes]:
    async def main() -> list[bytes]:
        async with FakeServer() as server, server.api() as api:
            server.logs["ns", "p"] = text
            before(server)
            source = PodLog("ns", "p", "main", attempt=1, rank=0, restarts=0, over=False)
            return [line.text async for line in lines(api, source, skip=skip, follow=False)]

    return asyncio.run(main())


def test_a_log_is_read_on_from_any_byte() -> None:
    text = b"one\ntwo\nthree"
    for skip in range(len(text) + 2):
        assert b"".join(read(text, skip)) == text[skip:]
    assert read(text, 4) == [b"two\n", b"three"]


def test_a_kubelets_word_that_there_is_no_log_any_more_is_none() -> None:
    gone = b"unable to retrieve container logs for containerd://1089"
    assert read(gone, 0) == read(gone, 9) == []


def test_a_log_that_is_not_there_yet_is_empty() -> None:
    assert read(b"", 0, lambda server: server.fail("/log", status=400, reason="BadRequest")) == []
