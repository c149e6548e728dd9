"""What the fuzzer calls a problem: a traceback, a case that hangs, a refusal without words."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

import pytest

from tests.translator.fuzz import __main__ as fuzz
from tests.translator.fuzz.sources import Sources, sources
from translator.errors import ManifestErrors


@pytest.fixture(scope="module")
def of() -> Sources:
    return sources()


def _breaks(text: str, draw: random.Random) -> None:
    raise TypeError("unhashable")


def _hangs(text: str, draw: random.Random) -> None:
    while True:
        try:
            draw.random()
        except Exception:  # as a careless handler on the way would
            continue


def _is_silent(text: str, draw: random.Random) -> None:
    raise ManifestErrors([])


@pytest.mark.parametrize(
    ("way", "problem"),
    [
        (_breaks, "TypeError: unhashable"),
        (_hangs, "HangError: over"),
        (_is_silent, "a problem without a line"),
    ],
)
def test_a_way_that_fails_is_a_problem_of_its_case(
    way: Callable[[str, random.Random], None], problem: str, of: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "WAYS", {"planted": way})
    monkeypatch.setattr(fuzz, "HANG_S", 0.1)
    before = signal.signal(signal.SIGPROF, fuzz.hangs)
    try:
        found = fuzz.problems(1, of)
    finally:
        signal.signal(signal.SIGPROF, before)

    assert [each.startswith("planted: ") and problem in each for each in found] == [True]


def test_the_first_cases_have_no_problem(of: Sources) -> None:
    assert [problem for seed in range(30) for problem in fuzz.problems(seed, of)] == []
