"""What holds for every packer, whatever it is asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given

from starburst.policy.packing.plan import Packer, Situation
from starburst.policy.packing.registry import PACKERS, packer
from tests.policy.packing.properties import (
    asked_again_nothing_changes,
    every_task_has_one_place_or_a_reason,
    no_machine_is_too_full,
    situations,
    the_books_agree,
)

every_packer = pytest.mark.parametrize(
    "make", [lambda name=name: packer(name) for name in PACKERS], ids=PACKERS
)
Make = Callable[[], Packer]


@every_packer
@given(situation=situations())
def test_a_plan_can_be_carried_out(make: Make, situation: Situation) -> None:
    plan = make().plan(situation)
    every_task_has_one_place_or_a_reason(situation, plan)
    no_machine_is_too_full(situation, plan)
    the_books_agree(situation, plan)


@every_packer
@given(situation=situations())
def test_a_plan_that_was_carried_out_is_left_alone(make: Make, situation: Situation) -> None:
    asked_again_nothing_changes(make(), situation, make().plan(situation))


@every_packer
@given(situation=situations())
def test_the_same_question_has_the_same_answer(make: Make, situation: Situation) -> None:
    assert make().plan(situation) == make().plan(situation)


def test_nobody_gets_a_packer_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="no packer is called 'x'; there are none, stratus, synergy, owl"):
        packer("x")
