"""A client of the broker: its hints do what its topic's user might do by the API, or nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from starburst.app.config import parse_config
from starburst.bus.messages import Topics
from starburst.store.listings import queries
from starburst.store.store import Store
from tests.bus.broker import Mosquitto
from tests.bus.conftest import broker, path  # noqa: F401 - fixtures
from tests.bus.test_hints import Desk, listening, topic
from tests.cli.manifests import manifest

TRAIN = {"id": "order-1", "manifest": manifest("train", "true")}
NATIVE = {"cluster": {"kind": "kubernetes"}, "cloud": {"kind": "none"}, "limits": {"pending_per_user": 2}}


@pytest.fixture
def store(path: Path) -> Iterator[Store]:  # noqa: F811
    """Of a Starburst on Kubernetes."""
    with Store.open(path) as opened:
        opened.set_fact("config", parse_config(NATIVE, "test").model_dump(mode="json"))
        yield opened


def order(number: int, text: str) -> dict[str, Any]:
    return {"id": f"order-{number}", "manifest": text}


def pod(**spec: Any) -> str:
    job = json.loads(manifest("pwn", "id"))
    job["spec"]["template"]["spec"] |= spec
    return json.dumps(job)


@pytest.mark.parametrize(
    "asks",
    [
        {"hostPID": True},
        {"serviceAccountName": "cluster-boss"},
        {"volumes": [{"name": "host", "hostPath": {"path": "/"}}]},
        {"imagePullSecrets": [{"name": "registry"}]},
    ],
)
def test_a_hint_is_no_admins_manifest(store: Store, asks: dict[str, Any]) -> None:
    desk = Desk(store)
    assert desk.take("submit", order(1, pod(**asks))) == "refused"
    assert desk.take("submit", order(2, pod())) == "taken"
    assert [row.name for row in queries.jobs(store)] == ["pwn"]


def test_other_namespaces_are_not_a_hints(store: Store) -> None:
    job = json.loads(manifest("pwn", "id"))
    job["metadata"]["namespace"] = "kube-system"
    assert Desk(store).take("submit", order(1, json.dumps(job))) == "refused"
    assert not queries.jobs(store)


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, y]\nb: [" + "*a," * 40_000 + "]",
        "[" * 100_000,
        "--- a\n" * 30_000,
    ],
)
def test_a_text_that_grows_when_it_is_read_is_refused(store: Store, text: str) -> None:
    assert Desk(store).take("submit", order(1, text)) == "refused"
    assert not queries.jobs(store)


def test_a_user_has_no_more_jobs_waiting_than_the_limit_says(store: Store) -> None:
    desk = Desk(store)
    said = [desk.take("submit", order(number, manifest("train", "true"))) for number in range(4)]
    assert said == ["taken", "taken", "refused", "refused"]
    assert desk.take("submit", order(1, manifest("train", "true")), "bob") == "taken"


@pytest.mark.parametrize("user", ["a\x1b[31mred", "a\nb", "-rf", "a" * 65, ""])
def test_a_topic_whose_user_is_no_name_is_nobodys(store: Store, user: str) -> None:
    assert Desk(store).take("submit", TRAIN, user) in ("malformed", "off")
    assert not queries.jobs(store)


def test_topics_with_more_levels_than_a_user_are_nobodys(store: Store) -> None:
    desk = Desk(store)
    for place in ("hints/ada/bob/submit", "hints/ada/submit/submit", "hints//submit/", "hints"):
        asyncio.run(desk.hints.take(f"starburst/default/{place}", json.dumps(TRAIN).encode()))
    assert not queries.jobs(store)


def test_a_flood_is_dropped_and_the_next_hint_is_heard(store: Store, path: Path, broker: Mosquitto) -> None:  # noqa: F811
    flood, mine = 3_000, {**TRAIN, "id": "mine"}

    async def main() -> None:
        async with (
            aiomqtt.Client("127.0.0.1", broker.port) as attacker,
            aiomqtt.Client("127.0.0.1", broker.port) as ada,
            listening(path, broker.port),
        ):
            for number in range(flood):
                await attacker.publish(Topics("default").hint("submit", "eve"), b"x" * (number % 1_000))
            while not queries.jobs(store):
                await ada.publish(topic("ada"), json.dumps(mine), 1)
                await asyncio.sleep(0.02)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert [row.user for row in queries.jobs(store)] == ["ada"]
