"""Hints from outside: they do what the API would, once, or nothing at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from structlog.testing import capture_logs

from starburst.app.config.bus import BusConfig
from starburst.app.wiring.bus import bus_of, hints_of
from starburst.bus import hints as hints_module
from starburst.bus.hints import MAX_BYTES, HintKind, HintOutcome, Hints
from starburst.bus.messages import Topics
from starburst.core.model.events import (
    CancelRequested,
    Event,
    InstanceReady,
    InstanceUnreachable,
    Progress,
    RunEnd,
    RunEnded,
    RunStarted,
)
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.domain.job import CloudChoice, Site
from starburst.store.listings import queries
from starburst.store.store import Store
from tests.bus.broker import Mosquitto
from tests.bus.story import Jobs
from tests.cli.manifests import manifest
from tests.store.samples import step, submission

KINDS: list[HintKind] = ["submit", "cancel", "throughput", "heartbeat"]
ALL = BusConfig(kind="mqtt", accept=KINDS)
OPEN = BusConfig(kind="mqtt", accept=KINDS, anybody=True)
#: As docs/bus.md has it.
ACL = """
user starburst
topic readwrite starburst/default/#

pattern write starburst/default/hints/%u/+
"""
TRAIN = {"id": "order-1", "manifest": manifest("train", "true")}


class Nudged:
    """A site that notes how often it was told to look."""

    def __init__(self) -> None:
        self.nudges = 0

    def nudge(self) -> None:
        self.nudges += 1


class Desk:
    """Where hints are handed in."""

    def __init__(self, store: Store, bus: BusConfig = ALL, scheduler: Scheduler | None = None) -> None:
        self.store = store
        self.reported: list[Event] = []
        self.sites = {site: Nudged() for site in Site}
        core = scheduler or Scheduler(Settings())
        self.hints: Hints = hints_of(store, bus, core, self.reported.append, self.sites)  # type: ignore[arg-type]

    def take(self, kind: str, hint: Any, user: str | None = "ada") -> str:
        """Say it as a user, or as nobody; what came of it."""
        before = self.hints.counts.copy()
        payload = hint if isinstance(hint, bytes) else json.dumps(hint).encode()
        asyncio.run(self.hints.take(Topics("lab").hint(kind, user), payload))
        ((_, outcome),) = self.hints.counts - before
        return outcome.value

    @property
    def nudges(self) -> tuple[int, int]:
        """How often the cluster and the cloud were told to look."""
        return self.sites[Site.CLUSTER].nudges, self.sites[Site.CLOUD].nudges

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


@pytest.mark.parametrize("kind", KINDS)
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
        json.dumps({"job": "a"}).encode(),
        json.dumps({"job": "a", "attempt": 0}).encode(),
        json.dumps({"instance": None}).encode(),
        json.dumps({"instance": "i-1", "attempt": 1}).encode(),
        json.dumps({"job": "a", "attempt": 1, "instance": "i-1"}).encode(),
        json.dumps({**TRAIN, "manifest": "x" * MAX_BYTES}).encode(),
    ],
)
def test_what_has_another_shape_changes_nothing(store: Store, kind: str, payload: bytes) -> None:
    desk = Desk(store)
    well = kind == "cancel" and payload == b'{"job": "a"}'
    assert desk.take(kind, payload) == ("refused" if well else "malformed")
    assert not desk.asked()
    assert not desk.reported
    assert desk.nudges == (0, 0)


@settings(max_examples=60)
@given(
    some.sampled_from([*KINDS, "", "/", "#", "a/b/submit"]),
    some.one_of(some.none(), some.text(max_size=3), some.just("x" * 254)),
    some.one_of(
        some.binary(max_size=50),
        some.dictionaries(
            some.sampled_from(
                ["id", "manifest", "user", "job", "attempt", "instance", "done", "total", "per_s", "x"]
            ),
            some.one_of(some.none(), some.booleans(), some.floats(), some.integers(), some.text(max_size=8)),
        ).map(lambda hint: json.dumps(hint).encode()),
    ),
)
def test_nothing_that_comes_in_stops_the_bus_or_starts_anything(
    kind: str, user: str | None, payload: bytes
) -> None:
    calls: list[object] = []

    class Noting:
        def note(self, hint: object, of: str | None) -> None:
            calls.append(hint)
            assert of == user
            assert of is not None

        submit = cancel = throughput = heartbeat = note

    hints = Hints(["submit", "cancel", "heartbeat"], Noting())
    asyncio.run(hints.take(Topics("lab").hint(kind, user), payload))
    ((_, outcome),) = hints.counts
    assert (outcome is HintOutcome.TAKEN) == bool(calls)
    assert outcome is not HintOutcome.REFUSED


def test_hints_are_off_unless_the_config_has_them(store: Store) -> None:
    desk = Desk(store, BusConfig())
    assert desk.take("submit", TRAIN) == "off"
    assert desk.take("heartbeat", {}) == "off"
    assert desk.take("shutdown", {}) == "off"
    assert not desk.asked()


def test_a_hint_speaks_for_the_user_of_its_topic_and_for_nobody_else(store: Store) -> None:
    desk = Desk(store)
    assert desk.take("submit", {**TRAIN, "user": "bob"}) == "refused"
    assert desk.take("submit", {**TRAIN, "user": "ada"}) == "taken"
    assert desk.take("submit", TRAIN, user="b%6Fb") == "malformed", "no user may be called so"
    assert desk.take("submit", TRAIN, user="b.6Fb") == "taken"
    assert [row.user for row in queries.jobs(store)] == ["ada", "b.6Fb"]
    (ada, _) = queries.jobs(store)
    assert desk.take("cancel", {"job": ada.id}, user="bob") == "refused"
    assert desk.take("submit", TRAIN, user="") == "malformed"
    assert [kind for kind, _ in desk.asked()] == ["submit", "submit"]


def test_what_one_user_calls_a_hint_is_not_taken_from_others(store: Store) -> None:
    desk = Desk(store)
    assert [desk.take("submit", TRAIN, user) for user in ("ada", "bob", "ada")] == [
        "taken",
        "taken",
        "doubled",
    ]


def test_only_if_the_config_says_so_may_a_hint_name_no_user_and_then_it_speaks_for_everybody(
    store: Store,
) -> None:
    assert Desk(store).take("submit", TRAIN, user=None) == "off"
    desk = Desk(store, OPEN)
    assert desk.take("submit", {**TRAIN, "user": "bob"}, user=None) == "taken"
    (row,) = queries.jobs(store)
    assert row.user == "bob"
    assert desk.take("cancel", {"job": row.id}, user=None) == "taken"


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
    assert desk.take("throughput", hint, user="bob") == "refused"
    assert len(desk.reported) == 1


def test_a_heartbeat_of_what_is_believed_to_start_has_its_site_asked(store: Store) -> None:
    jobs = Jobs(store)
    store.commit(step(jobs.scheduler, submissions=[submission("a")]))
    desk, beat = Desk(store, scheduler=jobs.scheduler), {"job": "a", "attempt": 1}
    assert desk.take("heartbeat", beat) == "taken"
    assert desk.nudges == (1, 0)
    jobs.scheduler.handle(RunStarted("a", 1), 1.0)
    assert desk.take("heartbeat", beat) == "taken"
    assert desk.nudges == (1, 0), "that it runs is no news"
    assert not desk.reported
    assert desk.hints.counts == {("heartbeat", HintOutcome.TAKEN): 2}


def test_a_heartbeat_of_a_machine_that_is_not_believed_to_be_up_has_the_cloud_asked(store: Store) -> None:
    jobs = Jobs(store)
    store.commit(step(jobs.scheduler, submissions=[submission("a", cloud=CloudChoice.ONLY)]))
    desk, core = Desk(store, scheduler=jobs.scheduler), jobs.scheduler
    (name,) = core.state.fleet.instances
    assert desk.take("heartbeat", {"instance": name}) == "taken"
    assert desk.nudges == (0, 1), "it launches"
    core.handle([InstanceReady(name, 1.0)], 1.0)
    core.handle([RunStarted("a", 1)], 2.0)
    both = [{"instance": name}, {"job": "a", "attempt": 1}]
    assert [desk.take("heartbeat", beat) for beat in both] == ["taken"] * 2
    assert desk.nudges == (0, 1), "it is up"
    core.handle([InstanceUnreachable(name)], 3.0)
    assert [desk.take("heartbeat", beat) for beat in both] == ["taken"] * 2
    assert desk.nudges == (0, 3), "nobody gets through to it"
    assert core.state.fleet.instances[name].unreachable_since == 3.0, "nor does anybody now, for all we know"
    core.handle([CancelRequested("a")], 4.0)
    assert desk.take("heartbeat", {"job": "a", "attempt": 1}) == "taken"
    core.handle([RunEnded("a", 1, RunEnd.STOPPED)], 5.0)
    assert [desk.take("heartbeat", beat) for beat in both][1] == "late"


def test_a_heartbeat_that_is_late_or_forged_changes_nothing(store: Store) -> None:
    jobs = Jobs(store)
    jobs.live(["over"])
    store.commit(step(jobs.scheduler, now=jobs.now, submissions=[submission("a")]))
    desk = Desk(store, scheduler=jobs.scheduler)
    before = asdict(jobs.scheduler.state.jobs["a"])
    for beat in ({"job": "over", "attempt": 1}, {"job": "a", "attempt": 2}, {"instance": "i-000001"}):
        assert desk.take("heartbeat", beat) == "late"
    assert desk.take("heartbeat", {"job": "a", "attempt": 1}, user="bob") == "refused"
    assert desk.nudges == (0, 0)
    assert asdict(jobs.scheduler.state.jobs["a"]) == before
    assert not desk.reported
    assert not desk.asked()


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
    async def main() -> None:
        async with aiomqtt.Client("127.0.0.1", broker.port) as user:
            await user.publish(topic("ada"), json.dumps({**TRAIN, "id": "old"}), 1, retain=True)
            async with listening(path, broker.port):
                while not queries.jobs(store):  # a hint is not kept for who does not listen yet
                    await user.publish(topic(None), json.dumps({**TRAIN, "user": "root"}), 1)
                    await user.publish(topic("ada"), json.dumps(TRAIN), 1)
                    await asyncio.sleep(0.02)

    asyncio.run(asyncio.wait_for(main(), 20))
    assert [row.user for row in queries.jobs(store)] == ["ada"]


def test_the_brokers_access_list_says_who_speaks_for_whom(store: Store, path: Path, tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text(ACL)
    broker = Mosquitto(tmp_path / "strict", ("allow_anonymous true", f"acl_file {rules}"))

    async def main() -> None:
        async with listening(path, broker.port, username="starburst"):
            while not queries.jobs(store):
                for user in ("bob", "ada"):
                    # This broker may end the connection of who is refused.
                    with suppress(aiomqtt.MqttError):
                        async with aiomqtt.Client("127.0.0.1", broker.port, username="ada") as ada:
                            await ada.publish(topic(user), json.dumps({**TRAIN, "id": user}), 1)
                await asyncio.sleep(0.02)

    broker.start()
    try:
        asyncio.run(asyncio.wait_for(main(), 20))
    finally:
        broker.stop()
    assert [row.user for row in queries.jobs(store)] == ["ada"]


def topic(user: str | None) -> str:
    return Topics("default").hint("submit", user)


@asynccontextmanager
async def listening(path: Path, port: int, **more: Any) -> AsyncIterator[None]:
    """The bus of a config, once it is online."""
    bus = BusConfig(kind="mqtt", host="127.0.0.1", port=port, accept=["submit"], **more)
    with Store.open(path) as store:
        run = bus_of(path, bus, store, Scheduler(Settings()), {})
    async with aiomqtt.Client("127.0.0.1", port, username=more.get("username")) as watcher:
        await watcher.subscribe("starburst/default/status")
        task = asyncio.create_task(run(lambda _event: None))
        async for message in watcher.messages:
            if message.payload == b"online":
                break
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
