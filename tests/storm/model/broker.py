"""An MQTT broker in memory, and a client of it: what has arrived there, in order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiomqtt

from tests.storm.weather import Weather

#: From a publication to its acknowledgement, and between two looks whether the connection is there, seconds.
ACK_S, LOOK_S = 0.05, 600.0


class ModelBroker:
    """What is so at the broker; it lives on when a scheduler dies."""

    def __init__(self, weather: Weather) -> None:
        self.weather = weather
        self.up = True
        self.is_of_one_log = True
        #: Numbers of the decisions that arrived, in order; and of those that were said to be missing.
        self.arrived: list[int] = []
        self.missing: set[int] = set()
        #: Job → its retained state.
        self.phases: dict[str, str] = {}

    def begin_anew(self) -> None:
        """The log was put back: its numbers are given out again, for other decisions."""
        self.is_of_one_log = False

    def take(self, topic: str, payload: bytes) -> None:
        """A message arrives."""
        told = json.loads(payload) if payload.startswith(b"{") else {}
        if topic.endswith("/events"):
            self.arrived.append(told["seq"])
        elif topic.endswith("/gap"):
            self.missing |= set(range(told["missing_from"], told["missing_to"] + 1))
        elif topic.endswith("/state") and told:
            self.phases[told["id"]] = told["phase"]

    def wrong(self, stored: set[int], ended: dict[str, str]) -> Iterator[str]:
        """What a listener was not told of the numbers in the log and the phases of ended jobs."""
        if not self.is_of_one_log:
            return
        lost = stored - set(self.arrived) - self.missing
        if lost:
            yield f"{len(lost)} decisions never came to the broker: {sorted(lost)[:3]}"
        seen = 0
        for number in self.arrived:
            if number > seen + 1 and not set(range(seen + 1, number)) <= self.missing:
                yield f"decision {number} came to the broker before {seen + 1}"
            seen = max(seen, number)
        for job_id, phase in ended.items():
            if self.phases.get(job_id) != phase:
                yield f"{job_id}: the broker keeps {self.phases.get(job_id)}, and it is {phase}"


class ModelClient:
    """A connection, in place of aiomqtt's."""

    refusal = ""
    timeout = 10.0

    def __init__(self, broker: ModelBroker) -> None:
        self._broker = broker
        self._cut = False

    async def __aenter__(self) -> ModelClient:
        await asyncio.sleep(ACK_S)
        self._reach()
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Nothing to do."""

    async def publish(self, topic: str, payload: bytes, _qos: int, _retain: bool) -> None:
        """Arrives at once, and its acknowledgement later or never."""
        self._cut |= self._broker.weather.strikes("broker-cut-before", topic)
        self._reach()
        self._broker.take(topic, payload)
        self._cut |= self._broker.weather.strikes("broker-ack-lost", topic)
        await asyncio.sleep(ACK_S)
        self._reach()

    @property
    async def messages(self) -> AsyncIterator[Any]:
        """No hints; ends with the connection."""
        while True:
            await asyncio.sleep(LOOK_S)
            self._reach()
            for message in ():
                yield message

    def _reach(self) -> None:
        if self._cut or not self._broker.up:
            raise aiomqtt.MqttError("connection refused")
