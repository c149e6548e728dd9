"""A broker that speaks MQTT 5: one connection at a time, made again for as long as it takes."""

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

#: Messages sent and not yet acknowledged at most; mosquitto's own limit is 20 unless it is told otherwise.
IN_FLIGHT = 20
#: Hints that came in and wait for their turn at most; more are thrown away.
HINTS_WAITING = 1000
#: Wall seconds for the broker to answer, and when we go.
ANSWER_S, FAREWELL_S = 10.0, 1.0
#: Wall seconds between tries to reach it: each time twice as long.
FIRST_PAUSE_S, LAST_PAUSE_S = 0.5, 30.0
KEEPALIVE_S = 20
ONLINE, OFFLINE = b"online", b"offline"

#: Takes in the topic and payload of a hint; never raises.
Take = Callable[[str, bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Broker:
    """Where it is, and how it knows us."""

    host: str
    port: int
    #: Ours alone: whoever comes with the same one is put in our place by the broker.
    client_id: str
    username: str | None = None
    password_file: Path | None = None
    tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def password(self) -> str | None:
        """The first line of its file.

        Raises:
            OSError: it cannot be read.
        """
        if self.password_file is None:
            return None
        return self.password_file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")

    def context(self) -> ssl.SSLContext | None:
        """Checks that the broker is who it says, by `ca` or the system's authorities.

        Raises:
            OSError: a file cannot be read, or is none of its kind.
        """
        if not self.tls:
            return None
        context = ssl.create_default_context(cafile=self.ca)
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key)
        return context


class _Client(aiomqtt.Client):
    """One that notes when the broker acknowledged a message only to say that it does not take it."""

    refusal = ""

    def _on_publish(self, client: Any, userdata: Any, mid: int, reason_code: Any, properties: Any) -> None:
        if reason_code.is_failure:
            self.refusal = str(reason_code)
        super()._on_publish(client, userdata, mid, reason_code, properties)


class MqttBus:
    """Tells a broker what the outbox holds, and hands on what comes in."""

    def __init__(
        self, broker: Broker, topics: Topics, outbox: Outbox, *, hints: Sequence[str] = (), take: Take
    ) -> None:
        """`hints`: the topics that are listened to."""
        self._broker = broker
        self._topics = topics
        self._outbox = outbox
        self._hints = hints
        self._take = take
        self._problem = ""

    async def run(self) -> None:
        """Go on until cancelled. No broker, none that takes what it is sent, a disk: all is tried again."""
        backoff = Backoff(FIRST_PAUSE_S, LAST_PAUSE_S)
        while True:
            try:
                async with self._client() as client:
                    backoff.reset()
                    await self._converse(client)
            except (aiomqtt.MqttError, OSError, UnicodeDecodeError) as error:
                self._note(str(error) or type(error).__name__)
            except Exception:  # whatever is wrong with the bus, the scheduler goes on
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
        client.pending_calls_threshold = math.inf  # type: ignore[assignment]  # it warns of more than ten
        return client

    async def _converse(self, client: _Client) -> None:
        """Publish and listen until the connection fails."""
        await self._send(client, [Message(self._topics.status, ONLINE, retain=True)])
        log.info("bus-online", broker=f"{self._broker.host}:{self._broker.port}")
        self._problem = ""
        try:
            await first_of({"publish": self._publish(client), "listen": self._listen(client)})
        except asyncio.CancelledError:
            client.timeout = FAREWELL_S
            with suppress(aiomqtt.MqttError):  # the last will is for those who cannot say it
                await self._send(client, [Message(self._topics.status, OFFLINE, retain=True)])
            raise

    async def _publish(self, client: _Client) -> None:
        cursor = await asyncio.to_thread(self._outbox.cursor)
        async for batch in follow(self._outbox, cursor):
            await self._send(client, batch.messages)
            await asyncio.to_thread(self._outbox.settle, batch.cursor)

    async def _send(self, client: _Client, messages: Sequence[Message]) -> None:
        """In order; returns when the broker has taken all of them.

        Raises:
            MqttError: it did not take one of them, or did not answer.
        """
        for some in _pieces(messages):
            # The tasks begin in this order, and each hands its message over before it first waits.
            sent = (client.publish(m.topic, m.payload, 1, m.retain) for m in some)
            results = await asyncio.gather(*sent, return_exceptions=True)
            for error in filter(None, results):
                raise error
            if client.refusal:
                raise aiomqtt.MqttError(f"the broker does not take our messages: {client.refusal}")

    async def _listen(self, client: _Client) -> None:
        if self._hints:
            await client.subscribe([(topic, 1) for topic in self._hints])
        async for message in client.messages:  # also if there are none: this is how we learn that it is gone
            if not message.retain:  # what was said once is not said anew whenever we come
                await self._take(str(message.topic), message.payload)

    def _note(self, problem: str) -> None:
        """Say what is wrong once, not at every try."""
        if problem != self._problem:
            self._problem = problem
            log.warning("bus-offline", broker=f"{self._broker.host}:{self._broker.port}", error=problem)


def _pieces(messages: Sequence[Message]) -> Iterable[Sequence[Message]]:
    return (messages[start : start + IN_FLIGHT] for start in range(0, len(messages), IN_FLIGHT))
