"""The bus over an MQTT 5 broker: one connection at a time, re-established without a limit of attempts."""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiomqtt
import structlog

from starburst.aio import Backoff, first_of
from starburst.bus.messages import Message, Topics
from starburst.bus.outbox import Outbox, follow

log = structlog.get_logger()

#: Largest number of unacknowledged messages; mosquitto's default limit is 20.
IN_FLIGHT = 20
#: Largest number of received hints that wait to be processed; the excess is dropped.
HINTS_WAITING = 1000
#: Wall seconds that the broker has to answer, and to take the last message at shutdown.
ANSWER_S, FAREWELL_S = 10.0, 1.0
#: First and longest wall seconds between connection attempts; each pause is twice the previous one.
FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 30.0
KEEPALIVE_S = 20
ONLINE, OFFLINE = b"online", b"offline"

#: Processes the topic and payload of a hint; never raises.
Take = Callable[[str, bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Broker:
    """Address of the broker, and the credentials for it."""

    host: str
    port: int
    #: Unique to this scheduler: the broker drops a connection when another client uses the same id.
    client_id: str
    username: str | None = None
    password_file: Path | None = None
    tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def password(self) -> str | None:
        """The first line of the password file.

        Raises:
            OSError: the file cannot be read.
        """
        if self.password_file is None:
            return None
        return self.password_file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")

    def context(self) -> ssl.SSLContext | None:
        """A TLS context that verifies the broker by `ca` or the system's authorities; None without TLS.

        Raises:
            OSError: a file cannot be read, or has the wrong format.
        """
        if not self.tls:
            return None
        context = ssl.create_default_context(cafile=self.ca)
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key)
        return context


class _Client(aiomqtt.Client):
    """An MQTT client that records negative acknowledgements: aiomqtt treats them as delivery."""

    refusal = ""

    def _on_publish(self, client: Any, userdata: Any, mid: int, reason_code: Any, properties: Any) -> None:
        if reason_code.is_failure:
            self.refusal = str(reason_code)
        super()._on_publish(client, userdata, mid, reason_code, properties)


class MqttBus:
    """Publishes the outbox to a broker, and passes received hints on."""

    def __init__(
        self, broker: Broker, topics: Topics, outbox: Outbox, *, hints: Sequence[str] = (), take: Take
    ) -> None:
        """`hints` are the topics to subscribe to."""
        self._broker = broker
        self._topics = topics
        self._outbox = outbox
        self._hints = hints
        self._take = take
        self._problem = ""

    async def run(self) -> None:
        """Publish and receive until cancelled. After any error, also of the disk, it connects again."""
        backoff = Backoff(FIRST_PAUSE_S, LAST_PAUSE_S)
        while True:
            try:
                async with self._client() as client:
                    backoff.reset()
                    await self._converse(client)
            except (aiomqtt.MqttError, OSError, UnicodeDecodeError) as error:
                self._note(str(error) or type(error).__name__)
            except Exception:  # errors of the bus must not stop the scheduler
                log.exception("bus-failed")
            await backoff.pause()

    def _client(self) -> _Client:
        client = _Client(
            self._broker.host,
            self._broker.port,
            identifier=self._broker.client_id,
            username=self._broker.username,
            password=self._broker.password(),
            tls_context=self._broker.context(),
            protocol=aiomqtt.ProtocolVersion.V5,
            will=aiomqtt.Will(self._topics.status, OFFLINE, qos=1, retain=True),
            timeout=ANSWER_S,
            keepalive=KEEPALIVE_S,
            max_inflight_messages=IN_FLIGHT,
            max_queued_incoming_messages=HINTS_WAITING,
        )
        client.pending_calls_threshold = math.inf  # type: ignore[assignment]  # it warns above ten pending calls
        return client

    async def _converse(self, client: _Client) -> None:
        """Publish and receive until the connection fails."""
        await self._send(client, [Message(self._topics.status, ONLINE, retain=True)])
        log.info("bus-online", broker=f"{self._broker.host}:{self._broker.port}")
        self._problem = ""
        try:
            await first_of({"publish": self._publish(client), "listen": self._listen(client)})
        except asyncio.CancelledError:
            client.timeout = FAREWELL_S
            with suppress(aiomqtt.MqttError):  # a clean disconnect discards the will
                await self._send(client, [Message(self._topics.status, OFFLINE, retain=True)])
            raise

    async def _publish(self, client: _Client) -> None:
        cursor = await asyncio.to_thread(self._outbox.cursor)
        async for batch in follow(self._outbox, cursor):
            await self._send(client, batch.messages)
            await asyncio.to_thread(self._outbox.settle, batch.cursor)

    async def _send(self, client: _Client, messages: Sequence[Message]) -> None:
        """Publish messages in order; returns when the broker has acknowledged all of them.

        Raises:
            MqttError: the broker refused a message, or did not answer.
        """
        for some in _pieces(messages):
            # The tasks start in this order, and each passes its message to the client before its first await.
            sent = (client.publish(m.topic, m.payload, 1, m.retain) for m in some)
            results = await asyncio.gather(*sent, return_exceptions=True)
            for error in filter(None, results):
                raise error
            if client.refusal:
                raise aiomqtt.MqttError(f"the broker does not take our messages: {client.refusal}")

    async def _listen(self, client: _Client) -> None:
        if self._hints:
            await client.subscribe([(topic, 1) for topic in self._hints])
        async for message in client.messages:  # also without hints: it raises when the connection is lost
            if not message.retain:  # the broker repeats retained messages at each subscription
                await self._take(str(message.topic), message.payload)

    def _note(self, problem: str) -> None:
        """Log a problem once, not at every attempt."""
        if problem != self._problem:
            self._problem = problem
            log.warning("bus-offline", broker=f"{self._broker.host}:{self._broker.port}", error=problem)


def _pieces(messages: Sequence[Message]) -> Iterable[Sequence[Message]]:
    return (messages[start : start + IN_FLIGHT] for start in range(0, len(messages), IN_FLIGHT))
