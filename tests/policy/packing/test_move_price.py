"""Moves are budgeted: the price of one follows how many were made."""

from __future__ import annotations

from dataclasses import replace
from math import e
from random import Random
from typing import Any

import pytest

from starburst.domain.money import Money
from starburst.policy.packing.packers.optimal import Optimal, move_price
from starburst.policy.packing.plan import Memory
from tests.policy.packing.properties import situation_of


class TestThePriceOfAMove:
    """It keeps the moves near a number for each task that comes."""

    def price(self, came: float, moved: float, **settings: Any) -> float:
        """Dollars."""
        return (
            move_price(replace(Optimal(moves_per_task=0.5), **settings), Memory(came=came, moved=moved)) / 1e6
        )

    def test_it_begins_as_told(self) -> None:
        assert self.price(0, 0) == 10
        assert self.price(0, 0, move_price=Money.of(4)) == 4

    def test_it_falls_while_moves_are_left_and_rises_when_too_many_were_made(self) -> None:
        prices = [self.price(100, moved) for moved in (0, 25, 50, 75, 100)]
        assert prices == sorted(prices)
        assert prices[2] == 10

    def test_fifteen_moves_of_a_hundred_tasks_make_it_e_times_more_or_less(self) -> None:
        """Ten, and 5 % of a hundred."""
        assert self.price(100, 65) == pytest.approx(10 * e)
        assert self.price(100, 35) == pytest.approx(10 / e)

    def test_it_has_bounds(self) -> None:
        assert self.price(1e6, 0) == pytest.approx(10 / e**3)
        assert self.price(0, 1e6) == pytest.approx(10 * e**3)

    def test_a_plan_counts_the_tasks_that_came_and_its_moves(self) -> None:
        situation = situation_of(Random(3))
        plan = Optimal(moves_per_task=None, move_price=Money()).plan(situation)
        assert plan.memory.came == len(situation.tasks)
        assert plan.memory.moved == len(plan.migrations)
