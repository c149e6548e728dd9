"""Calls: what is repeated and what is not, how they end, and what credentials they carry."""

from __future__ import annotations

import asyncio

import pytest

from starburst.kube import api as api_module
from starburst.kube.api import FIRST_PAUSE_S, JSON_PATCH, STRATEGIC, TRIES
from starburst.kube.errors import LONGEST_PAUSE_S, ApiError, ApiUnreachableError
from starburst.kube.resources import JOBS, NODES, PODS, Resource
from tests.kube_unit.samples import Sleeps, a_pod
from tests.kube_unit.server import FakeServer

POD = PODS.path("ns", "p")


def test_paths_are_those_of_the_api() -> None:
    assert NODES.path() == "/api/v1/nodes"
    assert NODES.path("ignored", "n") == "/api/v1/nodes/n"
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("ns", "p", "binding") == "/api/v1/namespaces/ns/pods/p/binding"
    assert JOBS.path("ns") == "/apis/batch/v1/namespaces/ns/jobs"
    assert Resource("rbac.authorization.k8s.io/v1", "clusterroles", namespaced=False).path("", "a:b/c") == (
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/a%3Ab%2Fc"
    )


def test_an_object_is_made_found_changed_and_deleted() -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api() as api:
            made = await api.create(PODS, "ns", a_pod(strange={"kept": True}))
            assert made["strange"] == {"kept": True}
            assert await api.get(PODS, "ns", "p") == made
            changed = await api.patch(PODS, "ns", "p", {"metadata": {"labels": {"a": "1", "b": "2"}}})
            assert changed["metadata"]["labels"] == {"a": "1", "b": "2"}
            changed = await api.patch(PODS, "ns", "p", {"metadata": {"labels": {"a": None}}}, kind=STRATEGIC)
            assert changed["metadata"]["labels"] == {"b": "2"}
            operations = [
                {"op": "test", "path": "/metadata/labels/b", "value": "2"},
                {"op": "remove", "path": "/metadata/labels/b"},
            ]
            await api.patch(PODS, "ns", "p", operations, kind=JSON_PATCH)
            with pytest.raises(ApiError) as refused:
                await api.patch(PODS, "ns", "p", operations, kind=JSON_PATCH)
            assert refused.value.status == 422
            await api.patch(PODS, "ns", "p", {"status": {"phase": "Running"}}, sub="status")
            assert (await api.get(PODS, "ns", "p"))["status"]["phase"] == "Running"
            assert [asked.headers["Content-Type"] for asked in server.asked[2:5]] == [
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
                "application/json-patch+json",
            ]
            assert await api.delete(PODS, "ns", "p")
            assert await api.find(PODS, "ns", "p") is None
            assert not await api.delete(PODS, "ns", "p")

    asyncio.run(main())


def test_a_deletion_is_of_this_very_object_and_honours_the_grace() -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api() as api:
            pod = server.add(PODS, a_pod(spec={"nodeName": "n"}))
            assert not await api.delete(PODS, "ns", "p", uid="another")
            assert await api.delete(
                PODS, "ns", "p", uid=pod["metadata"]["uid"], grace_s=7, propagation="Background"
            )
            marked = server.get(PODS, "ns", "p")["metadata"]
            assert marked["deletionGracePeriodSeconds"] == 7
            assert "deletionTimestamp" in marked
            assert server.asked[-1].body["propagationPolicy"] == "Background"
            assert await api.delete(PODS, "ns", "p", grace_s=0)
            assert await api.find(PODS, "ns", "p") is None

    asyncio.run(main())


def test_a_pod_is_bound_once() -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api() as api:
            server.add(PODS, a_pod())
            binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
            await api.create(PODS, "ns", binding, sub="binding")
            assert server.get(PODS, "ns", "p")["spec"]["nodeName"] == "n1"
            with pytest.raises(ApiError) as conflict:
                await api.create(PODS, "ns", binding, sub="binding")
            assert (conflict.value.status, conflict.value.reason) == (409, "Conflict")

    asyncio.run(main())


def test_a_list_comes_in_pages_of_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "PAGE", 2)

    async def main() -> None:
        async with FakeServer() as server, server.api() as api:
            for name in "abcde":
                server.add(PODS, a_pod(name))
            seen, versions = [], set()
            async for items, version in api.pages(PODS, "ns"):
                seen.append([item["metadata"]["name"] for item in items])
                versions.add(version)
                server.add(PODS, a_pod(f"later-{len(seen)}"))
            assert seen == [["a", "b"], ["c", "d"], ["e"]]
            assert len(versions) == 1
            assert len(await api.list(PODS)) == 8
            assert await api.list(PODS, "elsewhere") == []

    asyncio.run(main())


@pytest.mark.parametrize("text", ["<html>bad gateway</html>", "[]", "{}", '{"metadata": null}'])
def test_what_is_no_list_is_never_taken_for_an_empty_one(text: str) -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api(sleep=Sleeps()) as api:
            server.fail("GET", text=text, times=99)
            with pytest.raises(ApiUnreachableError):
                await api.list(PODS)

    asyncio.run(main())


@pytest.mark.parametrize("fault", [{"status": 500}, {"status": 503}, {"status": 429}, {}])
def test_reads_are_repeated_a_few_times(fault: dict[str, int]) -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api(sleep=(sleeps := Sleeps())) as api:
            server.add(PODS, a_pod())
            server.fail("GET", times=TRIES - 1, **fault)
            assert await api.get(PODS, "ns", "p")
            if fault:  # aiohttp itself asks once more where a connection broke
                assert sleeps.all == pytest.approx([FIRST_PAUSE_S, 3 * FIRST_PAUSE_S, 9 * FIRST_PAUSE_S])
            server.fail("GET", times=99, **fault)
            with pytest.raises(ApiError if fault else ApiUnreachableError):
                await api.get(PODS, "ns", "p")

    asyncio.run(main())


@pytest.mark.parametrize("status", [400, 403, 404, 409, 410, 422])
def test_a_plain_no_is_not_asked_again(status: int) -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api() as api:
            server.fail("GET", status=status, reason="Why")
            with pytest.raises(ApiError) as no:
                await api.get(PODS, "ns", "p")
            assert (no.value.status, no.value.reason, no.value.message) == (status, "Why", "as ordered")
            assert len(server.asked) == 1

    asyncio.run(main())


@pytest.mark.parametrize("reason", ["", "NotFound"], ids=["proxy", "unserved"])
def test_only_an_answer_that_names_the_object_says_that_there_is_none(reason: str) -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api() as api:
            server.add(PODS, a_pod())
            for method, call in (("GET", api.find), ("DELETE", api.delete)):
                server.fail(method, status=404, reason=reason)
                with pytest.raises(ApiError):
                    await call(PODS, "ns", "p")
                server.fail(method, status=404, reason="NotFound", name="p")
                assert not await call(PODS, "ns", "p")
                assert await call(PODS, "ns", "p")

    asyncio.run(main())


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize(
    ("fault", "error"),
    [({}, ApiUnreachableError), ({"status": 504}, ApiError), ({"text": "<html>"}, ApiUnreachableError)],
)
def test_a_write_whose_fate_is_unknown_is_not_repeated(
    fault: dict[str, int], error: type[Exception], done: bool
) -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api() as api:
            server.add(PODS, a_pod())
            server.fail("POST", done=done, **fault)
            server.fail("PATCH", done=done, **fault)
            with pytest.raises(error):
                await api.create(PODS, "ns", a_pod("new"))
            with pytest.raises(error):
                await api.patch(PODS, "ns", "p", {"metadata": {"labels": {"a": "1"}}})
            assert len(server.asked) == 2
            assert (await api.find(PODS, "ns", "new") is not None) == done

    asyncio.run(main())


def test_a_write_that_the_server_turned_away_is_repeated_when_the_server_wants() -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api(sleep=(sleeps := Sleeps())) as api:
            server.fail("POST", status=429, headers={"Retry-After": "9"})
            server.fail("POST", status=429, headers={"Retry-After": "3600"})
            assert await api.create(PODS, "ns", a_pod())
            assert sleeps.all == [9.0, LONGEST_PAUSE_S]

    asyncio.run(main())


def test_a_write_for_which_there_was_no_connection_is_repeated() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server:
            port = int(server.url.rpartition(":")[2])
        comes_up: list[FakeServer] = []

        async def sleep(_: float) -> None:
            if not comes_up:
                comes_up.append(await FakeServer(port=port).__aenter__())

        async with server.api(sleep=sleep) as api:
            assert await api.create(PODS, "ns", a_pod())
        await comes_up[0].__aexit__()

    asyncio.run(main())


def test_a_call_that_is_not_answered_ends_in_time() -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api(sleep=(sleeps := Sleeps())) as api:
            server.fail("", silent=True, times=99)
            with pytest.raises(ApiUnreachableError):
                await api.call("GET", POD, timeout_s=0.02)
            assert len(sleeps.all) == TRIES - 1
            with pytest.raises(ApiUnreachableError):
                await api.call("POST", PODS.path("ns"), body=a_pod(), timeout_s=0.02)
            assert len(sleeps.all) == TRIES - 1

    asyncio.run(main())


def test_a_log_comes_as_it_is_written() -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api() as api:
            server.logs["ns", "p"] = b"one\ntwo\n"
            assert (
                b"".join([piece async for piece in api.log("ns", "p", query={"tailLines": "2"})])
                == b"one\ntwo\n"
            )
            assert server.asked[-1].query == {"follow": "false", "tailLines": "2"}

    asyncio.run(main())


def test_lines_of_a_watch_may_be_long_and_names_may_have_any_letters() -> None:
    async def main() -> None:
        async with FakeServer() as server, server.api() as api:
            long = "é" * 2**21
            server.add(PODS, a_pod(metadata={"annotations": {"long": long}}))
            async for event in api.watch(PODS, "0"):
                assert event["object"]["metadata"]["annotations"]["long"] == long
                break

    asyncio.run(main())
