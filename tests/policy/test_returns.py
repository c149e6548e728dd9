"""When a cloud run comes home."""

from __future__ import annotations

import pytest

from starburst.policy.returns import RETURNS, CloudRun


def run(elapsed: float, of: float | None = None, *, checkpoint: bool = False) -> CloudRun:
    """A cloud run, `elapsed` seconds old, estimated to take `of`."""
    return CloudRun(elapsed, of, checkpoint)


def test_what_is_left_is_the_estimate_less_what_is_done() -> None:
    assert run(900, of=3600).remaining_s == 2700


@pytest.mark.parametrize("estimate", [None, 900, 600])
def test_unknown_or_overrun_it_takes_as_long_again(estimate: float | None) -> None:
    assert run(900, of=estimate).remaining_s == 900


def test_never_means_never_and_past_t_max_means_always() -> None:
    assert not RETURNS["never"].pays(run(1, of=1e6))
    assert RETURNS["t-max"].pays(run(3599, of=3600))


@pytest.mark.parametrize(
    ("cloud_run", "pays"),
    [
        (run(900, of=1800), True),  # as much to save as to repeat
        (run(901, of=1800), False),
        (run(1700, of=1800, checkpoint=True), True),  # nothing to repeat
        (run(5000), True),  # no estimate: as long again
    ],
)
def test_it_pays_when_what_is_left_outweighs_what_is_repeated(cloud_run: CloudRun, pays: bool) -> None:
    assert RETURNS["if-it-pays"].pays(cloud_run) is pays


def test_only_the_papers_rule_goes_without_a_reserved_slot() -> None:
    assert [name for name, policy in RETURNS.items() if not policy.reserves] == ["t-max"]
