"""The fault simulation itself: a seed is one run, planted bugs can be planted, a failure is made small."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

from tests.sim.ray_cluster import two_nodes
from tests.storm import apart, shrink
from tests.storm.planted import PLANTED
from tests.storm.planting import hunted
from tests.storm.run import Ask, Told, run
from tests.storm.shrink import shrunk, told_as_story
from tests.storm.spread import spread
from tests.storm.weather import FAULTS

SMALL = Ask(seed=2, jobs=4, days=0.05)
#: Another, in which several machines come up at a time.
SEVERAL = Ask(seed=7, jobs=4, days=0.05)


@pytest.mark.parametrize(("ask", "hashes"), [(SMALL, "1"), (SEVERAL, "7")])
def test_a_seed_is_one_run_byte_for_byte_in_any_process(ask: Ask, hashes: str) -> None:
    here = run(ask)
    assert not here.wrong
    assert here.counts, "something went wrong in that time"
    code = f"from tests.storm.run import Ask, run; print(run({ask!r}).digest)"
    env = {**os.environ, "PYTHONHASHSEED": hashes}
    elsewhere = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert elsewhere.stdout.strip() == here.digest


def test_a_seed_in_a_process_of_its_own_is_the_same_run() -> None:
    here, there = run(SMALL), apart.run_apart(SMALL)
    assert (there.digest, there.wrong, there.checked) == (here.digest, here.wrong, here.checked)
    assert there.virtual_s == here.virtual_s


def test_a_seed_whose_process_breaks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "told_of", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(RuntimeError, match="seed 2: its process ended with status -9"):
        apart.run_apart(SMALL)


def test_nothing_of_a_run_stays_in_memory() -> None:
    def there() -> int:
        gc.collect()
        return gc.get_freeze_count() + len(gc.get_objects())

    run(Ask(seed=1, jobs=3, days=0.02))  # what stays of the first ones are modules and caches
    run(SMALL)
    before = there()
    run(Ask(seed=3, jobs=4, days=0.05))
    run(Ask(seed=4, jobs=4, days=0.05))
    assert there() - before < 3_000


@pytest.mark.ray
def test_seeds_on_ray_are_those_of_this_machine() -> None:
    asks = [Ask(seed, jobs=3, days=0.02) for seed in (2, 8)]
    with two_nodes() as address:
        there = {told.ask: told.digest for told in spread(run, asks, on=address, processes=None)}
    assert there == {ask: run(ask).digest for ask in asks}


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_the_text_that_a_planted_bug_changes_is_there(name: str) -> None:
    assert PLANTED[name].changed().__name__ == PLANTED[name].function().__name__


def test_a_planted_bug_is_found_and_gone_afterwards() -> None:
    bug = PLANTED["requests-not-taken"]
    good = bug.function().__code__
    found = hunted(bug, [Ask(seed=8, jobs=3, days=0.02)])
    assert found is not None
    assert bug.function().__code__ is good


def test_a_failing_run_is_reduced_to_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_(ask: Ask) -> Told:
        on = FAULTS.keys() if ask.faults is None else ask.faults
        bad = {"killed", "sold-out"} <= set(on) and ask.jobs >= 3
        wrong = [f"job-{ask.jobs}: lost"] if bad else []
        return Told(
            ask, wrong, Counter(on), "", [(1_767_571_201.0, "FAULT killed ")], 0.0, 0.0, 1, sorted(on)
        )

    monkeypatch.setattr(shrink, "run", run_)
    small = shrunk(run_(Ask(5)))
    assert small.ask.faults == {"killed", "sold-out"}
    assert small.ask.jobs == 3
    told = told_as_story(small)
    assert "--faults killed,sold-out" in told
    assert "day 0 00:00:01  ** the scheduler is killed at any moment [killed]" in told
