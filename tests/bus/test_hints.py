"""Hints from outside: they do what the API would, once, or nothing at all."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from structlog.testing import capture_logs

from starburst.app.bus import bus_of, hints_of
from starburst.app.config import parse_config
from starburst.app.config_bus import BusConfig
from starburst.bus import hints as hints_module
from starburst.bus.hints import MAX_BYTES, Hints, Outcome
from starburst.core.events import Event, Progress, RunStarted
from starburst.core.scheduler import Scheduler
from starburst.core.settings import Settings
from starburst.store import queries
from starburst.store.store import Store
from tests.bus.broker import Mosquitto
from tests.bus.story import Jobs
from tests.cli.manifests import manifest
from tests.store.samples import step, submission

ALL = BusConfig(kind="mqtt", accept=["submit", "cancel", "throughput"])
TRAIN = {"id": "order-1", "manifest": manifest("train", "true"), "user": "ada"}


class Desk:
    """Where hints are handed in."""

    def __init__(self, store: Store, bus: BusConfig = ALL, scheduler: Scheduler | None = None) -> None:
        self.store = store
        self.reported: list[Event] = []
        core = scheduler or Scheduler(Settings())
        self.hints: Hints = hints_of(store, bus, core, self.reported.append)

    def take(self, kind: str, hint: Any) -> str:
        """Say it; what came of it."""
        before = self.hints.counts.copy()
        payload = hint if isinstance(hint, bytes) else json.dumps(hint).encode()
        asyncio.run(self.hints.take(f"starburst/lab/hints/{kind}", payload))
        ((_, outcome),) = self.hints.counts - before
        return outcome.value

    def asked(self) -> list[tuple[str, str]]:
        return [(request.kind, request.job_id) for request in self.store.requests(100)]


def test_a_submission_said_twice_is_one_submission(store: Store) -> None:
    desk = Desk(store)
    assert [desk.take("submit", TRAIN), desk.take("submit", TRAIN)] == ["taken", "doubled"]
    (row,) = queries.jobs(store)
    assert (row.name, row.user, row.phase) == ("train", "ada", "submitted")
    assert row.id.startswith("train-")
    assert desk.take("submit", {**TRAIN, "id": "order-2"}) == "taken"
    assert len(queries.jobs(store)) == 2


def test_it_stays_one_when_the_job_was_taken_up_meanwhile(store: Store) -> None:
    desk, jobs = Desk(store), Jobs(store)
    desk.take("submit", TRAIN)
    (request,) = store.requests(10)
    assert request.submission is not None
    store.commit(step(jobs.scheduler, submissions=[request.submission], request_seqs=[request.seq]))
    assert desk.take("submit", TRAIN) == "doubled"
    assert len(queries.jobs(store)) == 1


def test_jobs_of_one_name_in_one_hint_are_several_and_all_or_none_are_taken(store: Store) -> None:
    desk = Desk(store)
    two = "\n---\n".join([manifest("train", "true"), manifest("train", "false")])
    assert desk.take("submit", {**TRAIN, "manifest": two}) == "taken"
    assert len({row.id for row in queries.jobs(store)}) == 2
    bad = "\n---\n".join([manifest("other", "true"), '{"kind": "Job"}'])
    assert desk.take("submit", {"id": "order-3", "manifest": bad}) == "refused"
    assert len(queries.jobs(store)) == 2


@pytest.mark.parametrize("bad", ["", "nothing: of use", "kind: [", manifest("no-command")])
def test_what_the_api_would_refuse_is_refused(store: Store, bad: str) -> None:
    assert Desk(store).take("submit", {"id": "x", "manifest": bad or " "}) == "refused"
    assert not queries.jobs(store)


@pytest.mark.parametrize("kind", ["submit", "cancel", "throughput"])
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'"a"',
        b"{}",
        b"{" * 10_000,
        json.dumps({**TRAIN, "root": True}).encode(),
        json.dumps({**TRAIN, "id": 7}).encode(),
        json.dumps({**TRAIN, "id": ""}).encode(),
        json.dumps({"job": ["a"]}).encode(),
        json.dumps({"job": "a", "attempt": 1, "done": -1, "total": 2, "per_s": 1}).encode(),
        json.dumps({"job": "a", "attempt": "1", "done": 1, "total": 2, "per_s": 1}).encode(),
        b'{"job": "a", "attempt": 1, "done": 1, "total": NaN, "per_s": 1}',
        b'{"job": "a", "attempt": 1, "done": 1, "total": 1e999, "per_s": 1}',
        json.dumps({**TRAIN, "manifest": "x" * MAX_BYTES}).encode(),
    ],
)
def test_what_has_another_shape_changes_nothing(store: Store, kind: str, payload: bytes) -> None:
    desk = Desk(store)
    assert desk.take(kind, payload) == "malformed"
    assert not desk.asked()
    assert not desk.reported


@settings(max_examples=60)
@given(
    some.sampled_from(["submit", "cancel", "throughput", "heartbeat", "", "/", "#"]),
    some.one_of(
        some.binary(max_size=50),
        some.dictionaries(
            some.sampled_from(["id", "manifest", "user", "job", "attempt", "done", "total", "per_s", "x"]),
            some.one_of(some.none(), some.booleans(), some.floats(), some.integers(), some.text(max_size=8)),
        ).map(lambda hint: json.dumps(hint).encode()),
    ),
)
def test_nothing_that_comes_in_stops_the_bus_or_starts_anything(kind: str, payload: bytes) -> None:
    calls: list[object] = []
    hints = Hints(["submit", "cancel"], submit=calls.append, cancel=calls.append, throughput=calls.append)
    asyncio.run(hints.take(f"starburst/lab/hints/{kind}", payload))
    ((_, outcome),) = hints.counts
    assert (outcome is Outcome.TAKEN) == bool(calls)
    assert outcome is not Outcome.REFUSED


def test_hints_are_off_unless_the_config_has_them(store: Store) -> None:
    desk = Desk(store, BusConfig())
    assert desk.take("submit", TRAIN) == "off"
    assert desk.take("heartbeat", {}) == "off"
    assert not desk.asked()


def test_a_cancellation_names_a_job_by_its_whole_id_and_comes_before_its_end(store: Store) -> None:
    jobs, desk = Jobs(store), Desk(store)
    jobs.live(["over"])
    store.commit(step(jobs.scheduler, now=jobs.now, submissions=[submission("runs")]))
    assert desk.take("cancel", {"job": "over"}) == "late"
    assert desk.take("cancel", {"job": "run"}) == "refused"
    assert not desk.asked()
    assert [desk.take("cancel", {"job": "runs"}), desk.take("cancel", {"job": "runs"})] == ["taken"] * 2
    assert desk.asked() == [("cancel", "runs")]


def test_a_job_that_was_only_just_submitted_can_be_cancelled(store: Store) -> None:
    desk = Desk(store)
    desk.take("submit", TRAIN)
    (row,) = queries.jobs(store)
    assert desk.take("cancel", {"job": row.id}) == "taken"


def test_throughput_is_reported_of_the_living_attempt_and_of_no_other(store: Store) -> None:
    jobs = Jobs(store)
    store.commit(step(jobs.scheduler, submissions=[submission("a")]))
    store.commit(step(jobs.scheduler, [RunStarted("a", 1)]))
    desk = Desk(store, scheduler=jobs.scheduler)
    hint = {"job": "a", "attempt": 1, "done": 10, "total": 110, "per_s": 2.0}
    assert desk.take("throughput", hint) == "taken"
    assert desk.reported == [Progress("a", 1, 10, 110, 2.0)]
    assert desk.take("throughput", {**hint, "attempt": 2}) == "late"
    assert desk.take("throughput", {**hint, "job": "b"}) == "late"
    assert len(desk.reported) == 1


def test_each_kind_of_failure_is_said_once_in_a_while_and_counted_each_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, now = Desk(store), 1000.0
    monkeypatch.setattr(hints_module.time, "monotonic", lambda: now)
    with capture_logs() as said:
        for _ in range(50):
            desk.take("cancel", b"{}")
        desk.take("submit", b"{}")
        now += hints_module.SAY_S
        desk.take("cancel", b"{}")
    assert [(line["kind"], line["so_far"]) for line in said] == [("cancel", 1), ("submit", 1), ("cancel", 51)]
    assert "job" in said[0]["why"]


def test_over_a_broker_hints_come_in_but_not_those_that_it_retained(
    store: Store, path: Path, broker: Mosquitto
) -> None:
    config = parse_config(
        {"bus": {"kind": "mqtt", "host": "127.0.0.1", "port": broker.port, "accept": ["submit"]}}, "test"
    )
    topic = "starburst/default/hints/submit"

    async def main() -> None:
        old = json.dumps({**TRAIN, "id": "old"})
        async with aiomqtt.Client("127.0.0.1", broker.port) as user:
            await user.publish(topic, old, 1, retain=True)
            await user.subscribe("starburst/default/status")
            run = bus_of(path, config.bus, "c1", Scheduler(Settings()))
            task = asyncio.create_task(run(lambda _event: None))
            await anext(user.messages)  # it is online
            while not queries.jobs(store):  # a hint is not kept for who does not listen yet
                await user.publish(topic, json.dumps(TRAIN), 1)
                await asyncio.sleep(0.02)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(main(), 20))
    assert [row.user for row in queries.jobs(store)] == ["ada"]
