"""Events at a real broker: all of them, in order, whatever is cut off in the middle."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import aiomqtt
import pytest

from starburst.bus import mqtt as mqtt_module
from starburst.bus.mqtt import Broker, MqttBus
from starburst.store.store import Store
from tests.bus.broker import Listener, Mosquitto, Wire, retained, write_password
from tests.bus.story import TOPICS, Jobs, outbox, running, until_told

EVENTS, STATES = "starburst/lab/jobs/+/events", "starburst/lab/jobs/+/state"
STATUS = "starburst/lab/status"
#: After which tens of jobs what is broken.
UNHEARD, CUT, RESTARTED = (3, 9, 20), (5, 16, 23), (12, 18)


class Told(NamedTuple):
    """What was heard, and what there was to tell."""

    heard: list[dict[str, Any]]
    logged: list[dict[str, Any]]
    states: dict[str, Any]
    retained: dict[str, bytes]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_module, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(mqtt_module, "LAST_PAUSE_S", 0.1)
    monkeypatch.setattr(mqtt_module, "ANSWER_S", 1.0)


async def heard_all(listener: Listener, count: int) -> None:
    """Wait until so many numbers were heard."""
    while len({json.loads(payload)["seq"] for _, payload in listener.heard}) < count:
        await asyncio.sleep(0.05)


async def grown(listener: Listener, heard: int) -> None:
    """Wait until more was heard."""
    while len(listener.heard) <= heard:
        await asyncio.sleep(0.01)


async def until_status(port: int, status: bytes) -> None:
    while (await retained(port, STATUS)).get(STATUS) != status:
        await asyncio.sleep(0.02)


@pytest.mark.sqlite  # another process opens the file
def test_cuts_and_restarts_amid_a_thousand_decisions_lose_nothing_and_mix_nothing_up(
    store: Store, reader: Store, path: Path, broker: Mosquitto
) -> None:
    async def scenario() -> Told:
        jobs = Jobs(store)
        async with Wire(broker.port) as wire, Listener(broker.port, EVENTS) as listener:
            async with running(reader, wire.port):
                for ten in range(25):
                    if ten in UNHEARD:  # what the broker takes now it takes without our knowing
                        await until_told(path)
                        wire.deafen()
                    heard = len(listener.heard)
                    await asyncio.to_thread(jobs.live, [f"j{ten}-{one}" for one in range(10)])
                    if ten in UNHEARD:
                        await grown(listener, heard)
                    if ten in UNHEARD or ten in CUT:
                        wire.cut()
                    if ten in RESTARTED:
                        await asyncio.to_thread(broker.stop)
                        await asyncio.to_thread(jobs.live, [f"{ten}-more"])
                        await asyncio.to_thread(broker.start)
                await heard_all(listener, len(jobs.logged()))
                await until_told(path)
            heard_at_last = [json.loads(payload) for _, payload in listener.heard]
            return Told(heard_at_last, jobs.logged(), jobs.states(), await retained(broker.port, STATES))

    told = asyncio.run(asyncio.wait_for(scenario(), 60))
    heard, logged = told.heard, told.logged
    assert len(logged) == 4 * (250 + len(RESTARTED))
    first_heard = {event["seq"]: event for event in reversed(heard)}
    assert [first_heard[event["seq"]] for event in logged] == logged, "nothing is lost or altered"
    assert all(event == first_heard[event["seq"]] for event in heard), "what has one number is one thing"
    assert len(heard) > len(logged), "some were told again, for nobody could know that they had arrived"
    order: dict[str, list[int]] = defaultdict(list)
    for event in heard:
        if event["seq"] not in order[event["subject"]]:
            order[event["subject"]].append(event["seq"])
    assert all(seqs == sorted(seqs) for seqs in order.values())
    assert {topic: json.loads(payload) for topic, payload in told.retained.items()} == told.states


def test_no_broker_at_the_start_is_waited_for(
    store: Store, reader: Store, path: Path, tmp_path: Path
) -> None:
    late = Mosquitto(tmp_path / "late")

    async def scenario() -> dict[str, bytes]:
        Jobs(store).live(["a"])
        async with running(reader, late.port):
            await asyncio.sleep(0.05)
            await asyncio.to_thread(late.start)
            await until_told(path)
            return await retained(late.port, "starburst/lab/#")

    try:
        kept = asyncio.run(asyncio.wait_for(scenario(), 20))
    finally:
        late.stop()
    assert json.loads(kept[TOPICS.job_state("a")])["phase"] == "succeeded"
    assert kept[STATUS] == b"online"


def test_who_stops_says_so_and_a_job_long_over_leaves_nothing_behind(
    store: Store, reader: Store, path: Path, broker: Mosquitto
) -> None:
    async def scenario() -> dict[str, bytes]:
        Jobs(store).live(["a"])
        async with running(reader, broker.port):
            await until_told(path)
        first = await retained(broker.port, "starburst/lab/#")
        assert set(first) == {STATUS, TOPICS.job_state("a")}
        async with running(reader, broker.port, keep_s=60.0):
            while TOPICS.job_state("a") in await retained(broker.port, "starburst/lab/#"):
                await asyncio.sleep(0.02)
        return await retained(broker.port, "starburst/lab/#")

    assert asyncio.run(asyncio.wait_for(scenario(), 20)) == {STATUS: b"offline"}


def test_the_last_will_of_a_killed_scheduler_is_seen(path: Path, store: Store, broker: Mosquitto) -> None:
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from starburst.store.store import Store\n"
        "from tests.bus.story import running\n"
        "async def main():\n"
        "    async with running(Store.open(Path(sys.argv[1])), int(sys.argv[2])):\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(path), str(broker.port)])
    try:
        asyncio.run(asyncio.wait_for(until_status(broker.port, b"online"), 20))
        os.kill(process.pid, signal.SIGKILL)
        asyncio.run(asyncio.wait_for(until_status(broker.port, b"offline"), 20))
    finally:
        process.kill()
        process.wait()


def test_a_broker_that_does_not_take_what_it_is_sent_is_tried_again_until_it_does(
    store: Store, reader: Store, path: Path, tmp_path: Path
) -> None:
    rights = tmp_path / "rights"
    rights.write_text("topic readwrite starburst/lab/status\ntopic readwrite end/of/retained\n")
    strict = Mosquitto(tmp_path / "strict", ["allow_anonymous true", f"acl_file {rights}"])
    strict.start()

    async def scenario() -> None:
        Jobs(store).live(["a"])
        async with running(reader, strict.port):
            await until_status(strict.port, b"online")
            await asyncio.sleep(0.1)
            assert store.fact("bus") is None
            rights.write_text("topic readwrite #\n")
            await asyncio.to_thread(strict.stop)
            await asyncio.to_thread(strict.start)
            await until_told(path)

    try:
        asyncio.run(asyncio.wait_for(scenario(), 20))
    finally:
        strict.stop()


@pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket")  # of the refused, by paho
def test_over_tls_the_broker_must_be_the_one_that_is_vouched_for_and_know_our_password(
    store: Store, reader: Store, path: Path, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    make += ["-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=lab"]
    make += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(make, cwd=keys, capture_output=True, check=True)
    passwords = keys / "passwords"
    write_password(passwords, "starburst", "secret")
    secure = Mosquitto(
        tmp_path / "secure",
        [
            "allow_anonymous false",
            f"password_file {passwords}",
            f"certfile {keys / 'cert.pem'}",
            f"keyfile {keys / 'key.pem'}",
        ],
    )
    secure.start()
    secret = keys / "secret"
    secret.write_text("secret\n")
    good: dict[str, Any] = {
        "tls": True, "ca": keys / "cert.pem", "username": "starburst", "password_file": secret
    }  # fmt: skip

    async def refused(**of_broker: Any) -> str:
        async def take(_topic: str, _payload: bytes) -> None:
            """Nobody sends hints."""

        bus = MqttBus(
            Broker("127.0.0.1", secure.port, "starburst-test", **of_broker), TOPICS, outbox(reader), take=take
        )
        with pytest.raises((aiomqtt.MqttError, OSError)) as error:
            async with bus._client():
                pass
        return str(error.value)

    async def scenario() -> None:
        Jobs(store).live(["a"])
        assert "CERTIFICATE_VERIFY_FAILED" in await refused(**{**good, "ca": None})
        secret.write_text("wrong\n")
        assert "uthori" in await refused(**good)
        secret.write_text("secret\n")
        async with running(reader, secure.port, **good):
            await until_told(path)

    try:
        asyncio.run(asyncio.wait_for(scenario(), 20))
    finally:
        secure.stop()
        gc.collect()  # here, and not in a test that has nothing to do with it
