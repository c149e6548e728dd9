"""Arrays in the store: one row each, out of which jobs are taken up, and which listings show as jobs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from starburst.domain.array import member
from starburst.domain.job import Member, Submission
from starburst.store import schema as t
from starburst.store.arrays import ArrayJobs
from starburst.store.errors import AmbiguousJobError, DuplicateJobError, JobNotFoundError
from starburst.store.listings import pages, queries
from starburst.store.listings.group_counts import tally
from starburst.store.listings.job_list import JobChoice
from starburst.store.quota import Quota, QuotaError
from starburst.store.store import Store
from tests.store.samples import started, step, submission


def array(
    name: str = "x", size: int = 5, first: int = 0, at_once: int | None = None, **job: object
) -> Submission:
    return submission(
        f"{name}-id", name=name, array=Member(f"{name}-id", first, size, at_once), hold=True, **job
    )


class Taking:
    """A scheduler that takes jobs up; all are held."""

    def __init__(self, store: Store) -> None:
        self.store, self.scheduler = store, started()

    def __call__(self, most: int, asked: Iterable[str] = ()) -> list[str]:
        """The ends of the ids of the jobs of a step: those asked for, and so many more."""
        found = self.store.array_jobs(most, lambda _array, _at_once: most, asked)
        taken = [item.job.id for item in found.submissions]
        assert all(queries.record(self.store, name) is None for name in taken), "none is taken up twice"
        self.store.commit(step(self.scheduler, submissions=found.submissions, arrays=found.taken))
        return [name.removeprefix("x-id-") for name in taken]


@pytest.fixture
def take(store: Store) -> Taking:
    return Taking(store)


def phases(store: Store) -> list[tuple[str, str]]:
    return [(row.name, row.phase) for row in queries.jobs(store)]


def test_a_long_array_is_one_row(store: Store) -> None:
    store.submit([array(size=100_000)], 1.0)
    with store.read() as conn:
        rows = {
            table.name: conn.scalar(select(func.count()).select_from(table))
            for table in (t.arrays, t.requests)
        }
    assert rows == {"arrays": 1, "requests": 0}
    assert pages.counts(store, None) == {"submitted": 100_000}


def test_jobs_are_taken_up_in_order_and_the_row_goes_with_the_last(store: Store, take: Taking) -> None:
    store.submit([array(size=5, first=3)], 1.0)
    assert [take(2) for _ in range(4)] == [["3", "4"], ["5", "6"], ["7"], []]
    assert phases(store) == [(f"x-{n}", "held") for n in range(3, 8)]
    assert store.submissions(["x-id-4"])["x-id-4"] == member(array(size=5, first=3), 4)


def test_what_is_asked_for_is_taken_up_out_of_order_and_not_again(store: Store, take: Taking) -> None:
    store.submit([array(size=6)], 1.0)
    assert take(0, ["x-id-3", "x-id-9", "x-id-03", "y-id-1", "x"]) == ["3"]
    assert take(1, ["x-id-0", "x-id-3"]) == ["0"], "the next one is among those asked for"
    assert take(9) == ["1", "2", "4", "5"]
    assert store.array_jobs(9, lambda *_: 9).left == {}


def test_arrays_share_what_a_step_takes_up_and_the_oldest_has_the_rest(store: Store) -> None:
    store.submit([array("x", 9), array("y", 9), array("z", 1)], 1.0)
    found = store.array_jobs(7, lambda name, _at_once: 1 if name == "z-id" else 9)
    assert {one.array: one.count for one in found.taken} == {"x-id": 4, "y-id": 2, "z-id": 1}


def test_the_limit_of_an_array_is_told_to_who_knows_how_many_are_there(store: Store) -> None:
    store.submit([array("x", 9, at_once=2), array("y", 9)], 1.0)
    found = store.array_jobs(100, lambda _name, at_once: at_once or 5)
    assert {one.array: one.count for one in found.taken} == {"x-id": 2, "y-id": 5}
    assert found.left == {"x-id": 2, "y-id": None}


def test_an_array_is_not_begun_before_older_requests(store: Store) -> None:
    store.submit([submission("a"), array(after_ok=("a",)), submission("b")], 1.0)
    first, second = store.requests(9)
    assert store.array_jobs(9, lambda *_: 9, before=first.seq).submissions == []
    assert len(store.array_jobs(9, lambda *_: 9, before=second.seq).submissions) == 5


def test_jobs_of_another_array_that_one_comes_after_are_taken_up_before_it(store: Store) -> None:
    store.submit([array("w", 3), array("x", 3, after_ok=("w-id-1",))], 1.0)
    found = store.array_jobs(0, lambda *_: 0, ["x-id-2"])
    assert [item.job.id for item in found.submissions] == ["w-id-1", "x-id-2"]


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(1, 12),
    steps=st.lists(st.tuples(st.integers(0, 4), st.lists(st.integers(0, 14), max_size=3)), max_size=12),
)
def test_each_job_is_taken_up_once_and_listed_once_at_any_time(
    tmp_path_factory: pytest.TempPathFactory, size: int, steps: list[tuple[int, list[int]]]
) -> None:
    with Store.open(tmp_path_factory.mktemp("home") / "store.db") as store:
        store.submit([array(size=size)], 1.0)
        take, taken = Taking(store), list[str]()
        for most, asked in [*steps, (size, [])]:
            taken += take(most, [f"x-id-{n}" for n in asked])
            names = [row.id for row in queries.jobs(store)]
            assert sorted(names) == sorted(f"x-id-{n}" for n in range(size))
            assert sum(pages.counts(store, None).values()) == size
            assert set(names[: len(taken)]) == {f"x-id-{n}" for n in taken}
        assert sorted(taken, key=int) == [str(n) for n in range(size)]
        assert store.array_jobs(9, lambda *_: 9) == ArrayJobs([], [], {}, {})


def test_an_id_has_one_job_whether_it_is_in_a_row_or_taken_up(store: Store, take: Taking) -> None:
    store.submit([array()], 1.0)
    for twice in (array(), submission("x-id-4"), submission("x-id-0")):
        with pytest.raises(DuplicateJobError):
            store.submit([twice], 2.0)
    store.submit([submission("x-id-5")], 2.0)
    take(9)
    for twice in (array(), submission("x-id-4")):
        with pytest.raises(DuplicateJobError):
            store.submit([twice], 3.0)


def test_all_jobs_of_an_array_count_for_the_quota(store: Store, take: Taking) -> None:
    store.submit([array(size=8)], 1.0, Quota(per_user=10))
    with pytest.raises(QuotaError, match=r"'ada' has 8 jobs waiting, and these are 3 more: .* is 10"):
        store.submit([array("y", 3)], 2.0, Quota(per_user=10))
    take(3)
    store.submit([array("y", 2)], 2.0, Quota(per_user=10, per_queue=10))
    assert pages.counts(store, ["default"]) == {"submitted": 7, "held": 3}
    assert pages.counts_by_queue(store, None) == {"default": {"submitted": 7, "held": 3}}
    with store.read() as conn:
        assert +tally(conn, JobChoice(array="x-id")).counts == {"submitted": 5, "held": 3}
        assert tally(conn, JobChoice(user="ada")).counts["submitted"] == 7


def test_jobs_are_found_by_id_name_and_beginning_before_they_are_taken_up(store: Store) -> None:
    store.submit([array("sweep", 30, at_once=2), submission("a")], 1.0)
    for text in ("sweep-id-7", "sweep-7", "sweep-id-29", "sweep-29"):
        row = queries.job(store, text)
        assert (row.id.rpartition("-")[2], row.phase) == (text.rpartition("-")[2], "blocked")
        assert row.message == "waits for its turn: at most 2 jobs of sweep-id at a time"
        assert pages.find(store, text, ["default"]) == row
        with pytest.raises(JobNotFoundError):
            pages.find(store, text, ["another"])
    for text, count in (("sw", 30), ("sweep-id", 30), ("sweep-", 30), ("sweep-2", 1), ("sweep-id-2", 1)):
        if count == 1:
            assert queries.job(store, text).id == "sweep-id-2"
        else:
            with pytest.raises(AmbiguousJobError) as several:
                queries.job(store, text)
            assert len(several.value.candidates) == count
    for text in ("sweep-30", "sweep-id-007", "sweep-x", "sweep--1"):
        with pytest.raises(JobNotFoundError):
            queries.job(store, text)


@pytest.mark.parametrize("name", ["x", "x-id"])
def test_the_name_of_an_array_is_all_of_its_jobs_wherever_they_are(
    store: Store, take: Taking, name: str
) -> None:
    store.submit([array(size=12)], 1.0)
    take(2, ["x-id-7"])
    assert [row.id for row in pages.named(store, [name])] == [f"x-id-{n}" for n in range(12)]
    assert {row.phase for row in pages.named(store, [name])} == {"submitted", "held"}


def test_pages_end_where_the_next_begins(store: Store) -> None:
    store.submit([submission("a"), array("x", 7), submission("b"), array("y", 4, user="bob")], 1.0)
    found, after = [], None
    while page := pages.page(store, after=after, limit=3):
        found += page
        after = page[-1]
    every = ["a", "b", *(f"x-id-{n}" for n in range(7)), *(f"y-id-{n}" for n in range(4))]
    assert [row.id for row in found] == every
    assert [row.id for row in pages.page(store, user="bob", limit=9)] == every[-4:]
    assert [row.id for row in queries.jobs(store, limit=2)] == every[-2:]
    assert pages.page(store, phases=["held"], limit=9) == []


def test_long_pages_of_what_is_not_taken_up_end_where_the_next_begins(store: Store) -> None:
    store.submit([array("y", 1500)], 1.0)
    store.submit([submission("a")], 2.0)
    found, after = [], None
    while page := pages.page(store, after=after, limit=700):
        found += page
        after = page[-1]
    assert [row.id for row in found] == ["a", *(f"y-id-{n}" for n in range(1500))]


def test_a_job_that_is_not_taken_up_can_be_read(store: Store) -> None:
    store.submit([array(size=3)], 1.0)
    assert store.submission("x-id-1") == member(array(size=3), 1)
    assert store.submission("x-id-3") is None
    assert store.submission("x-id") is None


@pytest.mark.sqlite
def test_a_store_from_before_arrays_had_rows_opens(path: Path) -> None:
    with Store.open(path) as store, store.write() as conn:
        conn.exec_driver_sql("DROP TABLE arrays")
        for later in ("INDEX ix_instances_ended", "INDEX ix_jobs_obstructed"):
            conn.exec_driver_sql(f"DROP {later}")
        conn.exec_driver_sql("ALTER TABLE jobs DROP COLUMN obstructed")
        conn.exec_driver_sql("ALTER TABLE history DROP COLUMN estimate_s")
        conn.exec_driver_sql("UPDATE alembic_version SET version_num = '0016'")
    with Store.open(path) as store:
        store.submit([array()], 1.0)
        assert len(queries.jobs(store)) == 5
