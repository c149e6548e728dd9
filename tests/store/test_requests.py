"""What users ask for waits in the store until the scheduler takes it up."""

from __future__ import annotations

from pathlib import Path

import pytest

from starburst.domain.job import JobEdit
from starburst.store.errors import DuplicateJobError
from starburst.store.rows import CHUNK
from starburst.store.store import Store
from tests.store.samples import started, submission, take_up


def test_requests_come_in_the_order_they_were_made(store: Store) -> None:
    store.submit([submission("a"), submission("b")], 10.0)
    store.cancel(["a"], 11.0)
    assert [(r.kind, r.job_id, r.submission) for r in store.requests(10)] == [
        ("submit", "a", submission("a")),
        ("submit", "b", submission("b")),
        ("cancel", "a", None),
    ]
    assert [r.job_id for r in store.requests(1)] == ["a"]


def test_a_request_is_gone_with_the_step_that_took_it(store: Store) -> None:
    store.submit([submission("a")], 10.0)
    take_up(store, started(), 11.0)
    assert store.requests(10) == []


def test_asking_twice_to_cancel_is_asking_once(store: Store) -> None:
    store.cancel(["a", "b", "a"], 10.0)
    store.cancel(["b", "c"], 11.0)
    assert [r.job_id for r in store.requests(10)] == ["a", "b", "c"]


def test_a_submission_can_be_had_before_and_after_it_was_taken_up(store: Store) -> None:
    store.submit([submission("a")], 10.0)
    assert store.submission("a") == submission("a")
    take_up(store, started(), 11.0)
    assert store.submission("a") == submission("a")
    assert store.submission("b") is None


def test_an_id_that_waits_to_be_taken_up_is_taken(store: Store) -> None:
    store.submit([submission("a")], 10.0)
    with pytest.raises(DuplicateJobError, match="there is a job 'a' already; give the new one another name"):
        store.submit([submission("b"), submission("a")], 11.0)
    assert [r.job_id for r in store.requests(10)] == ["a"]


def test_an_id_of_a_stored_job_is_taken(store: Store) -> None:
    store.submit([submission("a")], 10.0)
    take_up(store, started(), 11.0)
    with pytest.raises(DuplicateJobError) as refusal:
        store.submit([submission("b"), submission("a")], 12.0)
    assert refusal.value.job_id == "a"
    assert store.requests(10) == []


def test_an_id_may_not_be_twice_in_one_submission(store: Store) -> None:
    with pytest.raises(DuplicateJobError) as refusal:
        store.submit([submission("a"), submission("b"), submission("b")], 10.0)
    assert refusal.value.job_id == "b"
    assert store.requests(10) == []


def test_a_duplicate_far_down_a_long_list_is_found_and_nothing_is_kept(store: Store) -> None:
    store.submit([submission("x")], 9.0)
    many = [submission(f"j{n}") for n in range(2 * CHUNK)]
    with pytest.raises(DuplicateJobError) as refusal:
        store.submit([*many, submission("x")], 10.0)
    assert refusal.value.job_id == "x"
    assert [r.job_id for r in store.requests(10)] == ["x"]


def test_no_job_is_too_many_and_none_is_too_few(store: Store) -> None:
    store.submit([], 10.0)
    store.submit([submission(f"j{n}") for n in range(3 * CHUNK + 1)], 10.0)
    assert len(store.requests(10_000)) == 3 * CHUNK + 1


def test_the_number_of_a_request_is_never_given_out_again(store: Store) -> None:
    store.submit([submission("a")], 10.0)
    first = store.requests(1)[0].seq
    take_up(store, started(), 11.0)
    store.submit([submission("b")], 12.0)
    assert store.requests(1)[0].seq > first


def test_writes_of_others_are_noticed_and_own_ones_are_not(store: Store, path: Path) -> None:
    before = store.data_version()
    store.submit([submission("a")], 10.0)
    assert store.data_version() == before
    with Store.open(path) as other:
        other.submit([submission("b")], 11.0)
    assert any(store.data_version() != before for _ in range(100_000))  # PostgreSQL's word takes its time
    assert store.data_version() == store.data_version()


def test_edits_of_a_job_are_merged_and_the_last_word_counts(store: Store) -> None:
    store.edit(["a", "b", "a"], JobEdit(priority=1, max_wait_s=60), 9.0)
    store.edit(["a"], JobEdit(priority=2, runtime_estimate_s=5), 10.0)
    assert {(each.job_id, each.edit) for each in store.requests(9)} == {
        ("a", JobEdit(2, 60, 5)),
        ("b", JobEdit(1, 60)),
    }


def test_of_hold_and_release_the_last_word_counts(store: Store) -> None:
    store.submit([submission("a")], 9.0)
    store.hold(["a", "b", "a"], 10.0)
    store.release(["a"], 11.0)
    store.hold(["a"], 12.0)
    store.release(["b"], 13.0)
    wishes = [("submit", "a"), ("hold", "a"), ("release", "b")]
    assert [(r.kind, r.job_id) for r in store.requests(10)] == wishes
