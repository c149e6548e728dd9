"""A loop says how fast it goes over a real broker, as a hint that is understood."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import aiomqtt

from starburst.bus.hints import ThroughputHint
from tests.bus.broker import Mosquitto, write_password
from tests.test_iterator import ran

TOPIC = "starburst/lab/hints/ada/throughput"
RUN = {"STARBURST_JOB": "train-x2x4b", "STARBURST_ATTEMPT": "3"}


def last_heard(listener: Callable[[], aiomqtt.Client], where: str, **env: str) -> ThroughputHint | None:
    """What comes last of a program that reports to `where`; None if nothing comes."""

    async def main() -> ThroughputHint | None:
        async with listener() as client:
            await client.subscribe("#", 1)
            await asyncio.to_thread(ran, where, **RUN, **env)
            await client.publish("end", b"", 1)
            last = None
            async for message in client.messages:
                if str(message.topic) == "end":
                    return last
                assert (str(message.topic), message.retain) == (TOPIC, False)
                assert isinstance(message.payload, bytes)
                last = ThroughputHint.model_validate_json(message.payload)
            return last

    return asyncio.run(asyncio.wait_for(main(), 20))


def test_it_is_a_hint_of_throughput(broker: Mosquitto) -> None:
    listener = partial(aiomqtt.Client, "127.0.0.1", broker.port)
    said = last_heard(listener, f"mqtt://127.0.0.1:{broker.port}/{TOPIC}", STARBURST_RANK="1")
    assert said is not None
    assert (said.job, said.attempt, said.done, said.total, said.rank) == ("train-x2x4b", 3, 50, 50, 1)
    assert said.per_s > 0


def test_over_tls_it_believes_only_a_broker_that_is_vouched_for_and_says_its_password(tmp_path: Path) -> None:
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    make += ["-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=lab"]
    make += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(make, cwd=tmp_path, capture_output=True, check=True)
    passwords, cert = tmp_path / "passwords", tmp_path / "cert.pem"
    write_password(passwords, "ada", "p@ss/word")
    settings = ["allow_anonymous false", f"password_file {passwords}"]
    settings += [f"certfile {cert}", f"keyfile {tmp_path / 'key.pem'}"]
    secure = Mosquitto(tmp_path / "secure", settings)

    def done(login: str, trusted: Path) -> float | None:
        listener = partial(
            aiomqtt.Client,
            "127.0.0.1",
            secure.port,
            username="ada",
            password="p@ss/word",
            tls_params=aiomqtt.TLSParameters(ca_certs=str(cert)),
        )
        where = f"mqtts://{login}@127.0.0.1:{secure.port}/{TOPIC}"
        said = last_heard(listener, where, SSL_CERT_FILE=str(trusted))
        return None if said is None else said.done

    secure.start()
    try:
        assert done("ada:p%40ss%2Fword", cert) == 50
        assert done("ada:wrong", cert) is None
        assert done("ada:p%40ss%2Fword", Path("/dev/null")) is None
    finally:
        secure.stop()
