"""The co-location table learns from what jobs report, by the rules of Eva, section 4.4."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.policy.packing.colocation import Colocation
from starburst.policy.packing.throughput import throughputs

HOUR = 3600.0


def test_an_unknown_pair_counts_as_the_default() -> None:
    assert Colocation().pair("a", "b") == 0.95
    assert Colocation(default=0.8).pair("a", "b") == 0.8


def test_a_single_task_job_says_how_fast_its_task_is_in_this_set() -> None:
    table = Colocation()
    table.observe([("b", ("a",))], 0.7, now=0)
    table.observe([("a", ("c", "a"))], 0.6, now=0)
    assert table.pair("b", "a") == 0.7
    assert table.pair("a", "b") == 0.95
    assert table.exact(("a", "a", "c")) == {"a": 0.6}
    assert table.exact(("a", "b", "c")) is None


def test_a_recorded_set_goes_before_the_product_over_its_pairs() -> None:
    table = Colocation()
    table.observe([("a", ("b",))], 0.9, now=0)
    table.observe([("a", ("c",))], 0.5, now=0)
    assert throughputs(table, ["a", "b", "c"]) == pytest.approx([0.9 * 0.5, 0.95**2, 0.95**2])
    table.observe([("a", ("c", "b"))], 0.8, now=0)
    assert throughputs(table, ["a", "b", "c"]) == pytest.approx([0.8, 0.95**2, 0.95**2])


def test_who_is_alone_is_not_slowed_by_company() -> None:
    table = Colocation()
    table.observe([("a", ()), ("a", ())], 0.5, now=0)
    assert table.snapshot()["seen"] == []


class TestAJobOfSeveralTasksBlamesOneOfThem:
    def test_with_nothing_recorded_the_one_in_most_company(self) -> None:
        table = Colocation()
        table.observe([("j", ("a",)), ("j", ("b", "c")), ("j", ())], 0.7, now=0)
        assert table.exact(("b", "c", "j")) == {"j": 0.7}
        assert table.pair("j", "a") == 0.95

    def test_with_something_recorded_lower_the_lowest_which_is_so_raised(self) -> None:
        table = Colocation()
        table.observe([("j", ("a",)), ("j", ())], 0.6, now=0)
        table.observe([("j", ("b",)), ("j", ())], 0.7, now=0)
        table.observe([("j", ("a",)), ("j", ("b",)), ("j", ("a", "b"))], 0.8, now=0)
        assert table.pair("j", "a") == 0.8
        assert table.pair("j", "b") == 0.7
        assert table.exact(("a", "b", "j")) is None

    def test_with_all_recorded_higher_the_unrecorded_one_in_most_company(self) -> None:
        table = Colocation()
        table.observe([("j", ("a",)), ("j", ())], 0.9, now=0)
        table.observe([("j", ("a",)), ("j", ("b",)), ("j", ("a", "b"))], 0.5, now=0)
        assert table.pair("j", "a") == 0.9
        assert table.pair("j", "b") == 0.95
        assert table.exact(("a", "b", "j")) == {"j": 0.5}

    def test_with_every_task_recorded_higher_the_lowest_has_become_slower(self) -> None:
        table = Colocation()
        table.observe([("j", ("a",)), ("j", ())], 0.9, now=0)
        table.observe([("j", ("b",)), ("j", ())], 0.8, now=0)
        table.observe([("j", ("a",)), ("j", ("b",))], 0.5, now=0)
        assert (table.pair("j", "a"), table.pair("j", "b")) == (0.9, 0.5)

    def test_a_guess_does_not_outweigh_what_was_seen_directly(self) -> None:
        table = Colocation()
        for _ in range(9):
            table.observe([("j", ("a",))], 0.8, now=0)
        table.observe([("j", ("a",)), ("j", ())], 0.9, now=0)
        assert table.pair("j", "a") == pytest.approx((9 * 0.8 + 0.9) / 10)

    def test_a_guess_is_replaced_by_whatever_comes_next(self) -> None:
        table = Colocation()
        for value in (0.6, 0.7, 0.8):
            table.observe([("j", ("a",)), ("j", ())], value, now=0)
            assert table.pair("j", "a") == value
        table.observe([("j", ("a",))], 0.9, now=0)
        assert table.pair("j", "a") == 0.9


def test_observations_are_averaged_and_old_ones_fade() -> None:
    table = Colocation(half_life_s=HOUR)
    table.observe([("a", ("b",))], 0.5, now=0)
    table.observe([("a", ("b",))], 0.7, now=0)
    assert table.pair("a", "b") == pytest.approx(0.6)
    # Two observations an hour ago weigh as much as one now.
    table.observe([("a", ("b",))], 1.0, now=HOUR)
    assert table.pair("a", "b") == pytest.approx(0.8)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1])
def test_nonsense_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="is not a throughput"):
        Colocation().observe([("a", ("b",))], value, now=0)


def test_nothing_is_faster_in_company_than_alone() -> None:
    table = Colocation()
    table.observe([("a", ("b",))], 1.02, now=0)
    assert table.pair("a", "b") == 1.0


class TestTheVersion:
    def test_stands_still_while_observations_confirm_what_is_known(self) -> None:
        table = Colocation()
        table.observe([("a", ("b",))], 0.9504, now=0)
        assert table.version == 0

    def test_grows_when_a_value_changes(self) -> None:
        table = Colocation()
        table.observe([("a", ("b",))], 0.7, now=0)
        assert table.version == 1
        table.observe([("a", ("b",))], 0.7, now=HOUR)
        assert table.version == 1

    def test_grows_when_small_changes_add_up(self) -> None:
        table = Colocation(half_life_s=1.0)
        for n in range(10):
            table.observe([("a", ("b",))], 0.95 + 0.0005 * n, now=100.0 * n)
        assert table.pair("a", "b") == pytest.approx(0.9545)
        assert 2 <= table.version <= 4


def test_a_full_table_forgets_what_was_confirmed_least_recently() -> None:
    table = Colocation(max_sets=2)
    for beside in ("b", "c", "b", "d"):
        table.observe([("a", (beside,))], 0.5, now=0)
    before = table.version
    assert [table.pair("a", beside) for beside in "bcd"] == [0.5, 0.95, 0.5]
    table.observe([("a", ("b",))], 0.5, now=0)
    assert table.version == before


def test_a_known_profile_is_not_learnt_any_further() -> None:
    table = Colocation.known({("a", "b"): 0.7, ("b", "a"): 0.9})
    table.observe([("a", ("b",))], 0.1, now=0)
    assert (table.pair("a", "b"), table.pair("b", "a"), table.pair("a", "a")) == (0.7, 0.9, 0.95)
    assert table.version == 0


jobs = st.lists(
    st.tuples(st.sampled_from("ab"), st.lists(st.sampled_from("abc"), max_size=3)), min_size=1, max_size=3
)


@given(st.lists(st.tuples(jobs, st.floats(0, 1)), max_size=12), st.integers(1, 6))
def test_a_table_survives_a_restart(
    reports: list[tuple[list[tuple[str, list[str]]], float]], most: int
) -> None:
    table = Colocation(max_sets=most)
    for n, (job, value) in enumerate(reports):
        table.observe(job, value, now=float(n))
    again = Colocation.restored(json.loads(json.dumps(table.snapshot())))
    assert again == table
    assert len({tuple(row[0]) for row in table.snapshot()["seen"]}) <= most
    for one in (table, again):
        one.observe([("a", ("b",))], 0.3, now=99.0)
    assert again == table
