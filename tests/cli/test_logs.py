"""`starburst logs`: whose lines, and what is said where there are none."""

from __future__ import annotations

import pytest

from starburst.app.config.home import Home
from starburst.runs.attempt_dir import log_path
from starburst.runs.supervisor.line_times import note_time
from starburst.store.listings.queries import pace


@pytest.fixture(autouse=True)
def _morning(past):
    past.morning()


@pytest.fixture
def write(home):
    def write(job, rank, text, *, cloud=False):
        place = Home(home)
        path = log_path(place.cloud / "runs" if cloud else place.cluster, job, 1, rank)
        path.parent.mkdir(parents=True)
        path.write_text(text)

    return write


def test_what_a_job_wrote_is_printed_as_it_is(cli, write):
    write("bad-22222", 0, "one\n\ttwo", cloud=True)
    assert cli("logs", "bad").out == "one\n\ttwo"
    assert cli("logs", "bad", "--follow").out == "one\n\ttwo"


def test_lines_of_a_gang_begin_with_their_rank(cli, write):
    write("done-11111", 1, "b\n")
    write("done-11111", 0, "a\nc\n")
    assert cli("logs", "done").out == "[0] a\n[0] c\n[1] b\n"
    assert cli("logs", "done", "--rank", "1").out == "b\n"


def test_the_last_lines_of_a_log(cli, write):
    write("bad-22222", 0, "one\ntwo\nthree\nnot ended", cloud=True)
    assert cli("logs", "bad", "--tail", "2").out == "three\nnot ended"
    assert cli("logs", "bad", "--tail", "3", "-f").out == "two\nthree\nnot ended"
    assert cli("logs", "bad", "--tail", "99").out == "one\ntwo\nthree\nnot ended"
    assert cli("logs", "bad", "--tail", "0").out == ""


@pytest.mark.parametrize("separator", ["\u2028", "\u0085", "\x0c", "\x1e"])
def test_only_the_ends_of_lines_part_the_last_lines(cli, write, separator):
    write("bad-22222", 0, f"one\ntwo{separator}2\nthree\n", cloud=True)
    assert cli("logs", "bad", "--tail", "2").out == f"two{separator}2\nthree\n"
    assert cli("logs", "bad", "--tail", "2", "-f").out == f"two{separator}2\nthree\n"


def test_the_times_of_lines_and_lines_since(cli, write, home, past):
    write("bad-22222", 0, "one\ntwo\nthree\n", cloud=True)
    times = str(Home(home).cloud / "runs" / "bad-22222" / "1" / "0" / "log.times")
    wall = pace(past.store).wall_time
    nine = 1_772_442_000.0  # 2026-03-02 09:00 UTC on the scheduler's clock
    for offset, at in ((4, wall(nine)), (6, wall(nine) + 0.5), (8, wall(nine + 3600))):
        note_time(times, offset, at)  # at most one a second is kept
    assert cli("logs", "bad", "--timestamps").out.splitlines() == [
        "- one",
        "2026-03-02T09:00:00.000+00:00 two",
        "2026-03-02T10:00:00.000+00:00 three",
    ]
    since = "2026-03-02T09:30:00+00:00"
    assert cli("logs", "bad", "--since", since).out == "one\nthree\n", "what has no time is not left out"
    assert cli("logs", "bad", "--since", since, "--tail", "1").out == "three\n"
    (line,) = cli("logs", "bad", "--since", "soon").err.splitlines()
    assert line.startswith("error: --since: 'soon': write a duration")


def test_times_that_a_job_has_spoiled_are_none(cli, write, home):
    write("bad-22222", 0, "one\n", cloud=True)
    (Home(home).cloud / "runs" / "bad-22222" / "1" / "0" / "log.times").write_bytes(b"\xff" * 40)
    assert cli("logs", "bad", "--timestamps").out == "- one\n"


def test_a_job_that_wrote_nothing(cli):
    told = cli("logs", "wait")
    assert (told.code, told.out, told.err) == (0, "", "job/wait-55555 has written nothing: queued\n")


def test_a_run_or_a_task_that_never_was(cli, write):
    write("done-11111", 0, "a\n")
    told = cli("logs", "done", "--attempt", "2")
    assert (told.code, told.err) == (
        2,
        "error: --attempt: 2: the last run of job/done-11111 is 1; give one up to that\n",
    )
    told = cli("logs", "done", "--rank", "1")
    assert (told.code, told.err) == (
        2,
        "error: --rank: 1: the last task of job/done-11111 is 0; give one up to that\n",
    )
