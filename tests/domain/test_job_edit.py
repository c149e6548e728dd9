"""What a change of a job is told as."""

from __future__ import annotations

import pytest

from starburst.domain.job import JobEdit


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (JobEdit(priority=-7, runtime_estimate_s=90.5), "priority -7, runtime-estimate 90.5 s"),
        (JobEdit(priority=123_456_789, max_wait_s=30 * 86_400 + 1), "priority 123456789, max-wait 2592001 s"),
        (JobEdit(), ""),
    ],
)
def test_numbers_are_told_to_the_last_digit(edit: JobEdit, told: str) -> None:
    assert str(edit) == told
