"""`starburst exec` and `shell`: what is refused. tests/runs/test_enter.py enters tasks."""

from __future__ import annotations

import pytest

from starburst.cli.runs import execute
from tests.cli.conftest import Cli
from tests.cli.past import Past


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("exec", "wait", "--", "ls"), "job/wait-55555 does not run: it is queued"),
        (("shell", "done"), "job/done-11111 does not run: it is succeeded"),
        (
            ("shell", "train", "--rank", "1"),
            "--rank: 1: the last task of job/train-44444 is 0; give one up to that",
        ),
        (("shell", "train"), "job/train-44444: it does not run now"),  # its supervisor is dead
    ],
)
def test_what_cannot_be_entered_is_refused_in_a_line(
    cli: Cli, past: Past, words: tuple[str, ...], problem: str
) -> None:
    past.morning()
    told = cli(*words)
    assert (told.code, told.err.splitlines()) == (2, [f"error: {problem}"])


def test_who_enters_a_job_before_the_scheduler_has_noted_the_last_one_is_noted_too(
    cli: Cli, past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    past.morning()
    for name in ("ada", "bob", "ada"):
        monkeypatch.setattr(execute, "this_user", lambda name=name: name)
        assert "it does not run now" in cli("shell", "train").err  # its supervisor is dead
    (noted,) = past.store.requests(9)
    assert (noted.kind, noted.job_id, noted.by) == ("enter", "train-44444", "ada, bob")


@pytest.mark.parametrize(("does", "code"), [("exit 7", 7), ("kill -9 $$", 128 + 9)])
def test_the_exit_code_is_the_commands_or_of_the_signal_that_ended_it(
    cli: Cli, past: Past, monkeypatch: pytest.MonkeyPatch, does: str, code: int
) -> None:
    past.morning()
    login = ["sh", "-c", does]  # stands for kubectl or ssh
    monkeypatch.setattr(execute, "_place", lambda *_: (login, None))
    assert cli("exec", "train", "--", "ls").code == code


def test_it_asks_no_server(cli: Cli) -> None:
    told = cli("--server", "http://127.0.0.1:1", "exec", "a", "--", "ls")
    assert told.err.startswith("error: exec: is about this machine, it asks no server")
