"""What a server can do is known from its version."""

from __future__ import annotations

import asyncio

import pytest

from starburst.kube.features import Features, detect
from starburst.kube.resources import JOBS
from tests.kube_unit.server import FakeServer


@pytest.mark.parametrize(
    ("minor", "version", "there"),
    [
        ("20", (1, 20), False),
        ("21+", (1, 21), False),
        ("22", (1, 22), True),
        ("22+", (1, 22), True),
        ("27.3", (1, 27), True),
        ("37", (1, 37), True),
    ],
)
def test_suspending_and_indexes_are_there_since_1_22(
    minor: str, version: tuple[int, int], there: bool
) -> None:
    async def main() -> Features:
        async with FakeServer(minor) as server, server.api() as api:
            return await detect(api)

    found = asyncio.run(main())
    assert (found.suspend, found.indexed, found.version) == (there, there, version)


def test_of_a_server_that_does_not_say_nothing_is_expected() -> None:
    async def main() -> Features:
        async with FakeServer() as server, server.api() as api:
            server.fail("/version", text='{"major": "", "minor": null}')
            return await detect(api)

    assert asyncio.run(main()) == Features(suspend=False, indexed=False, version=(0, 0))


@pytest.mark.parametrize(("minor", "kept"), [("20", False), ("27", True)])
def test_the_fake_drops_what_a_real_one_drops(minor: str, kept: bool) -> None:
    job = {"metadata": {"namespace": "ns", "name": "j"}, "spec": {"suspend": True, "template": {}}}

    async def main() -> None:
        async with FakeServer(minor) as server, server.api() as api:
            assert ("suspend" in (await api.create(JOBS, "ns", job))["spec"]) == kept

    asyncio.run(main())
