"""Listings of jobs, decisions and machines."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from starburst.core.model.events import InstanceReady, OffersChanged
from starburst.domain.job import CloudChoice, Phase
from starburst.store.errors import AmbiguousJobError, JobNotFoundError
from starburst.store.listings import pages, queries
from starburst.store.listings.row_types import SUBMITTED, JobRow
from starburst.store.rows import CHUNK
from starburst.store.store import Store
from tests.store.samples import started, step, submission, take_up


def ids(rows: list[JobRow]) -> list[str]:
    return [row.id for row in rows]


@pytest.fixture
def filled(store: Store) -> Store:
    """a runs, b waits, c is not taken up yet."""
    store.submit([submission("a", gpus=2), submission("b", gpus=2, user="bob")], 1.0)
    take_up(store, started(), 1.0)
    store.submit([submission("c")], 2.0)
    store.cancel(["a"], 3.0)
    return store


def test_jobs_come_in_order_of_arrival_those_not_taken_up_last(filled: Store) -> None:
    assert [(row.id, row.phase, row.seq) for row in queries.jobs(filled)] == [
        ("a", "starting", 1),
        ("b", "queued", 2),
        ("c", "submitted", None),
    ]


def test_jobs_submitted_together_keep_their_order_before_and_after(store: Store) -> None:
    names = ["z", "y", "x", "a"]
    store.submit([submission(name) for name in names], 1.0)
    assert ids(queries.jobs(store)) == names
    take_up(store, started(), 1.0)
    assert ids(queries.jobs(store)) == names


def test_jobs_can_be_chosen(filled: Store) -> None:
    assert ids(queries.jobs(filled, phases=["queued", "submitted"])) == ["b", "c"]
    assert ids(queries.jobs(filled, phases=["starting"])) == ["a"]
    assert ids(queries.jobs(filled, phases=[])) == ["a", "b", "c"]
    assert ids(queries.jobs(filled, user="bob")) == ["b"]
    assert ids(queries.jobs(filled, user="ada", phases=["submitted"])) == ["c"]
    assert ids(queries.jobs(filled, ids=["c", "a", "nobody"])) == ["a", "c"]
    assert ids(queries.jobs(filled, ids=[])) == []


def test_a_limit_keeps_the_newest(filled: Store) -> None:
    assert [ids(queries.jobs(filled, limit=n)) for n in (0, 1, 2, 9)] == [
        [],
        ["c"],
        ["b", "c"],
        ["a", "b", "c"],
    ]


def test_more_ids_can_be_asked_for_than_one_statement_holds(filled: Store) -> None:
    many = [f"nobody-{n}" for n in range(2 * CHUNK)]
    assert ids(queries.jobs(filled, ids=["a", *many, "c"])) == ["a", "c"]


def test_a_row_has_the_columns_people_look_at(filled: Store) -> None:
    row = queries.job(filled, "a")
    assert asdict(row) == {
        "id": "a",
        "name": "a",
        "user": "ada",
        "queue": "default",
        "need": "2 GPUs",
        "phase": "starting",
        "submitted_at": 1.0,
        "seq": 1,
        "site": "cluster",
        "runs_on": "n1",
        "attempt": 1,
        "deadline": row.deadline,
        "started_at": None,
        "ended_at": None,
        "exit_code": None,
        "message": "",
        "cloud_micro_usd": 0,
        "open_bills": 0,
    }
    assert row.deadline is not None
    assert row.deadline > 1.0


def test_a_job_that_waits_as_long_as_it_takes_has_no_deadline(store: Store) -> None:
    store.commit(step(started(), submissions=[submission("a", cloud=CloudChoice.NEVER)]))
    assert queries.job(store, "a").deadline is None
    record = queries.record(store, "a")
    assert record is not None
    assert record.deadline == float("inf")


def test_where_the_cloud_has_no_offers_no_job_shows_a_deadline(store: Store) -> None:
    scheduler = started()
    store.commit(step(scheduler, submissions=[submission("a", gpus=2), submission("b", gpus=2)]))
    assert queries.job(store, "b").deadline is not None
    store.commit(step(scheduler, [OffersChanged(())], 1.0))
    assert [row.deadline for row in queries.jobs(store)] == [None, None]


def test_a_job_not_taken_up_has_no_record_but_a_time_on_the_schedulers_clock(filled: Store) -> None:
    filled.set_fact("clock", {"origin": 1.0, "speed": 60.0})
    assert queries.record(filled, "c") is None
    assert queries.job(filled, "c").submitted_at == 61.0


@pytest.fixture
def named(store: Store) -> Store:
    store.submit([submission("train-1", name="train"), submission("tune-1", name="tune")], 1.0)
    take_up(store, started(), 1.0)
    store.submit([submission("tune-2", name="tune"), submission("train", name="other")], 2.0)
    return store


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("train-1", "train-1"),
        ("tune-2", "tune-2"),
        ("train", "train"),  # an id goes before a name
        ("other", "train"),
        ("train-", "train-1"),
        ("oth", "train"),
    ],
)
def test_a_job_is_found_by_id_then_name_then_beginning(named: Store, text: str, found: str) -> None:
    assert queries.job(named, text).id == found


@pytest.mark.parametrize("text", ["tune", "tun"])
def test_a_name_or_beginning_of_several_jobs_names_them(named: Store, text: str) -> None:
    with pytest.raises(AmbiguousJobError, match=f"'{text}' could be tune-1, tune-2; give the whole id"):
        queries.job(named, text)


def test_of_very_many_candidates_some_are_named(store: Store) -> None:
    store.submit([submission(f"j{n}") for n in range(9)], 1.0)
    with pytest.raises(AmbiguousJobError, match="j0, j1, j2, j3, j4 and 4 more; give"):
        queries.job(store, "j")


def test_a_misspelt_name_gets_a_suggestion(named: Store) -> None:
    with pytest.raises(JobNotFoundError, match="there is no job 'trian-1'; did you mean train-1 or train"):
        queries.job(named, "trian-1")


@pytest.mark.parametrize("text", ["%", "_u", "zzz"])
def test_nothing_like_it_gets_none(named: Store, text: str) -> None:
    with pytest.raises(JobNotFoundError, match=f"^there is no job '{text}'$"):
        queries.job(named, text)


def test_an_empty_name_is_that_of_no_job_also_where_there_is_only_one(store: Store) -> None:
    store.submit([submission("train-1")], 1.0)
    with pytest.raises(JobNotFoundError, match="there is no job ''"):
        queries.job(store, "")
    for queues in (None, ("default",)):
        with pytest.raises(JobNotFoundError):
            pages.named(store, [""], queues)


def test_decisions_can_be_followed(filled: Store) -> None:
    every = queries.decisions(filled)
    assert [row.seq for row in every] == [1, 2, 3]
    assert queries.decisions(filled, after_seq=1) == every[1:]
    assert queries.decisions(filled, limit=2) == every[:2]
    assert queries.decisions(filled, last=2) == every[1:]
    assert queries.decisions(filled, "b") == [row for row in every if row.subject == "b"] != []


def test_a_decision_has_its_reason_and_its_numbers(filled: Store) -> None:
    placed = queries.decisions(filled, "a")[-1]
    assert (placed.kind, placed.event, placed.at) == ("placed", "JobSubmitted", 1.0)
    assert placed.reason.startswith("starts on n1: 2 GPUs free there")
    assert placed.numbers == {"where": "n1", "need": "2 GPUs", "passed": "", "waited_s": 0.0}


def test_events_can_be_followed(filled: Store) -> None:
    first, second = queries.events(filled)
    assert (first.kind, first.subject, first.body["job"]["user"]) == ("JobSubmitted", "a", "ada")
    assert queries.events(filled, after_seq=first.seq) == [second]
    assert queries.events(filled, limit=1) == [first]


def test_machines_are_listed_and_counted(store: Store) -> None:
    scheduler = started()
    new = [submission(name, cloud=CloudChoice.ONLY) for name in "ab"]
    store.commit(step(scheduler, submissions=new))
    store.commit(step(scheduler, [InstanceReady("i-000001", 0.0)], 1.0))
    assert queries.instance_records(store) == list(scheduler.state.fleet.instances.values())
    assert queries.summary(store).instances == {"launching": 1, "ready": 1}


def test_the_summary_counts_every_phase_there_is(filled: Store) -> None:
    assert queries.summary(filled).jobs == {"submitted": 1, "queued": 1, "starting": 1}


def test_no_phase_of_the_scheduler_is_called_submitted() -> None:
    assert SUBMITTED not in {phase.value for phase in Phase}
