"""Aliases that stand for very much, or for themselves, are refused at once in one line."""

from __future__ import annotations

import time

import pytest

from tests.cli.answers import one_line
from tests.translator.test_aliases import SELF, bomb


@pytest.mark.parametrize("command", ["submit", "translate"])
@pytest.mark.parametrize(
    ("text", "mend"),
    [
        (bomb(6), "aliases stand for more than 20000 values; write them out"),
        (bomb(12), "aliases stand for more than 20000 values; write them out"),
        (SELF, "the alias 'm' stands for itself; write it out"),
    ],
    ids=["six levels", "twelve levels", "itself"],
)
def test_such_aliases_cost_nothing(text, mend, command, cli, tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(text)
    started = time.process_time()
    assert mend in one_line(cli(command, path))
    assert time.process_time() - started < 2
