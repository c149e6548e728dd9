"""The decision log as an outbox: what is told, in which order, and how far."""

from __future__ import annotations

import asyncio
import json

from sqlalchemy import delete

from starburst.bus import outbox as outbox_module
from starburst.bus.outbox import Batch, Cursor, follow
from starburst.core.model.events import InstanceGone, InstanceReady, RunEnd, RunEnded, RunStarted
from starburst.domain.job import CloudChoice
from starburst.store import schema
from starburst.store.store import Store
from tests.bus.story import TOPICS, Jobs, outbox
from tests.store.samples import step, submission

BEGINNING = Cursor()


def told(store: Store, cursor: Cursor = BEGINNING) -> tuple[list[tuple[str, object]], Cursor]:
    """Everything from there on, and how far that is."""
    found: list[tuple[str, object]] = []
    while (batch := outbox(store).after(cursor)) is not None:
        found += [(m.topic, json.loads(m.payload) if m.payload else None) for m in batch.messages]
        cursor = batch.cursor
    return found, cursor


def test_every_decision_is_told_once_in_the_order_of_the_log_with_the_keys_of_the_cli(store: Store) -> None:
    jobs = Jobs(store)
    jobs.live(["a", "b"])
    messages, cursor = told(store)
    events = [body for topic, body in messages if topic.endswith("/events")]
    assert events == jobs.logged()
    assert cursor.seq == len(events)
    assert messages[0][0] == "starburst/lab/jobs/a/events"


def test_after_the_decisions_on_a_job_its_state_is_retained(store: Store) -> None:
    jobs = Jobs(store)
    jobs.live(["a", "b"])
    batch = outbox(store).after(Cursor())
    assert batch is not None
    states = {m.topic: json.loads(m.payload) for m in batch.messages if m.retain}
    assert states == jobs.states()
    assert states[TOPICS.job_state("a")]["phase"] == "succeeded"


def test_what_becomes_of_a_machine_is_told_of_it_and_renews_the_states_of_its_jobs(store: Store) -> None:
    jobs = Jobs(store)
    alone = submission("c", cloud=CloudChoice.ONLY)
    store.commit(step(jobs.scheduler, now=1.0, submissions=[alone]))
    (machine,) = jobs.scheduler.state.fleet.instances
    store.commit(step(jobs.scheduler, [InstanceReady(machine, 1.0)], 2.0))
    store.commit(step(jobs.scheduler, [RunStarted("c", 1)], 3.0))
    store.commit(step(jobs.scheduler, [RunEnded("c", 1, RunEnd.EXITED, 0)], 4.0))
    _, cursor = told(store)
    store.commit(step(jobs.scheduler, [InstanceGone(machine, 1.0, 3601.0)], 3601.0))
    messages, _ = told(store, cursor)
    assert [topic for topic, _ in messages] == [
        f"starburst/lab/instances/{machine}/events",
        "starburst/lab/jobs/c/state",
    ]
    state = messages[1][1]
    assert isinstance(state, dict)
    assert state["cloud_cost_usd"] == 3.6


def test_a_log_that_was_cut_off_before_the_listener_read_it_has_a_gap(store: Store) -> None:
    Jobs(store).live(["a", "b"])
    with store.write() as conn:
        conn.execute(delete(schema.decisions).where(schema.decisions.c.seq <= 5))
    messages, _ = told(store, Cursor(2))
    assert messages[0] == (
        "starburst/lab/gap",
        {"missing_from": 3, "missing_to": 5, "goes_on_with": 6},
    )
    assert all(topic != "starburst/lab/gap" for topic, _ in messages[1:])


def test_decisions_that_were_pruned_amid_others_are_a_gap_too(store: Store) -> None:
    Jobs(store).live(["a", "b"])
    with store.write() as conn:
        conn.execute(delete(schema.decisions).where(schema.decisions.c.seq.in_([2, 3, 5])))
    messages, _ = told(store)
    numbers = [body.get("seq") or body for _, body in messages if isinstance(body, dict) and "id" not in body]
    assert numbers[:5] == [
        1,
        {"missing_from": 2, "missing_to": 3, "goes_on_with": 4},
        4,
        {"missing_from": 5, "missing_to": 5, "goes_on_with": 6},
        6,
    ]


def test_states_of_jobs_that_are_long_over_are_cleared_once_and_never_retained_anew(store: Store) -> None:
    Jobs(store).live(["a", "b"])
    box = outbox(store, keep_s=60.0)  # the scheduler's clock began in 1970
    batch = box.after(Cursor())
    assert batch is not None
    assert {m.payload for m in batch.messages if m.retain} == {b""}
    cleared = box.long_over(batch.cursor)
    assert cleared is not None
    assert [(m.topic, m.payload, m.retain) for m in cleared.messages] == [
        (TOPICS.job_state("a"), b"", True),
        (TOPICS.job_state("b"), b"", True),
    ]
    assert box.long_over(cleared.cursor) is None
    assert outbox(store).long_over(batch.cursor) is None


def test_a_batch_is_bounded_and_the_next_goes_on_where_it_ended(store: Store, monkeypatch) -> None:
    monkeypatch.setattr(outbox_module, "BATCH", 3)
    jobs = Jobs(store)
    jobs.live(["a", "b"])
    first = outbox(store).after(Cursor())
    assert first is not None
    assert sum(m.topic.endswith("/events") for m in first.messages) == 3
    messages, _ = told(store)
    assert [body for topic, body in messages if topic.endswith("/events")] == jobs.logged()


def test_how_far_the_broker_was_told_is_kept(store: Store) -> None:
    box = outbox(store)
    assert box.cursor() == Cursor()
    box.settle(Cursor(7, 2.5, "a"))
    assert outbox(store).cursor() == Cursor(7, 2.5, "a")


def test_ids_with_signs_that_mean_something_to_a_broker_are_one_plain_level() -> None:
    assert TOPICS.job_state("a/+#b") == "starburst/lab/jobs/a%2F%2B%23b/state"


def test_listeners_in_this_process_follow_the_log_each_at_its_own_pace(store: Store, reader: Store) -> None:
    async def hear(count: int, after: int) -> list[int]:
        seqs: list[int] = []
        batches = follow(outbox(reader), Cursor(after))
        while len(seqs) < count:
            batch: Batch = await anext(batches)
            seqs += [json.loads(m.payload)["seq"] for m in batch.messages if m.topic.endswith("/events")]
        await batches.aclose()
        return seqs

    async def both() -> None:
        jobs = Jobs(store)
        early = asyncio.create_task(hear(16, 0))
        jobs.live(["a", "b"])
        await asyncio.sleep(0)
        jobs.live(["c", "d"])
        assert await early == list(range(1, 17))
        assert await hear(6, 10) == list(range(11, 17))

    asyncio.run(both())
