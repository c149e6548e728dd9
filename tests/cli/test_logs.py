"""`starburst logs`: whose lines, and what is said where there are none."""

from __future__ import annotations

import pytest

from starburst.app.config.home import Home
from starburst.runs.attempt_dir import log_path


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
