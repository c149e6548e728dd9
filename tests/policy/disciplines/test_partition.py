"""Types of size and the configurations made of them, against the equations in fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.policy.disciplines.configurations import heaviest, reduced
from starburst.policy.disciplines.partition import Partition, levels_for
from starburst.policy.disciplines.scores import alignment, largest_share
from tests.policy.disciplines import definitions

LEVELS = st.integers(2, 7)


@given(LEVELS, st.integers(1, 100_000), st.data())
def test_every_size_has_the_one_type_whose_interval_holds_it(
    levels: int, capacity: int, data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, capacity))
    kind = Partition(capacity, levels).kind(size)
    above, end = definitions.intervals(levels)[kind]
    assert above < Fraction(size, capacity) <= end


@given(LEVELS)
def test_there_are_4j_minus_4_configurations_as_equation_7_has_them(levels: int) -> None:
    found = [
        {**({1: chosen.large} if chosen.large else {}), chosen.kind: chosen.slots}
        for chosen in reduced(levels)
    ]
    assert found == definitions.configurations(levels)
    assert len(found) == 4 * levels - 4


@given(LEVELS, st.integers(1, 10_000))
def test_a_server_holds_what_a_configuration_promises_at_the_largest_sizes(
    levels: int, capacity: int
) -> None:
    tops = Partition(capacity, levels).tops
    for chosen in reduced(levels):
        assert chosen.large * tops[1] + chosen.slots * tops[chosen.kind] <= capacity
        if chosen.large:
            assert 3 * chosen.slots * tops[chosen.kind] <= capacity


@given(LEVELS, st.data())
def test_the_heaviest_configuration_weighs_no_less_than_any_other(levels: int, data: st.DataObject) -> None:
    waiting = data.draw(st.lists(st.integers(0, 99), min_size=2 * levels, max_size=2 * levels))
    weight, chosen = heaviest(reduced(levels), waiting)
    assert chosen.weight(waiting) == weight == max(other.weight(waiting) for other in reduced(levels))


@pytest.mark.parametrize(("smallest", "levels"), [(0.01, 7), (0.1, 4), (0.4, 2), (0.2, 3), (1.0, 2)])
def test_j_is_large_enough_for_the_smallest_size(smallest: float, levels: int) -> None:
    assert levels_for(round(smallest * 1000), 1000) == levels


def test_sizes_below_the_last_type_count_as_its_least() -> None:
    assert [Partition(1024, 4).rounded(size) for size in (1, 63, 64, 65, 500)] == [64, 64, 64, 65, 500]


def test_one_level_is_refused_as_it_has_no_slot_for_type_1() -> None:
    with pytest.raises(ValueError, match="J of 2 or more, not 1"):
        Partition(12, 1)


def test_a_demand_counts_by_its_largest_share_rounded_up() -> None:
    assert largest_share((1, 0, 30), (8, 64, 100), 1000) == 300
    assert largest_share((1, 0, 0), (3, 64, 0), 1000) == 334
    assert largest_share((0, 0, 0), (8, 64, 100), 1000) == 1


def test_alignment_is_the_inner_product_of_shares() -> None:
    assert alignment((4, 0, 25), (8, 64, 50), (8, 64, 100)) == pytest.approx(0.5 + 0.125)
    assert alignment((1, 5), (1, 7), (2, 0)) == pytest.approx(0.25)
