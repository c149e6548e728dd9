"""What jobs wrote is found where the sites put it."""

from __future__ import annotations

import pytest

from starburst.app.home import Home
from starburst.app.logs import Log, find_logs
from starburst.runs.attempt_dir import log_path


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def write(home, job, attempt, rank=0, text="", *, cloud=False):
    """A task's log, where its site has it."""
    path = log_path(home.cloud / "runs" if cloud else home.cluster, job, attempt, rank)
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode())
    return path


def places(logs):
    return [(log.attempt, log.rank) for log in logs]


def lines(log, *, final=True):
    return list(log.new_lines(final=final))


def test_the_last_run_is_found_on_whichever_site_it_was(home):
    write(home, "a", 9)
    path = write(home, "a", 10, cloud=True)
    (log,) = find_logs(home, "a")
    assert (log.path, log.attempt, log.rank) == (path, 10, 0)


def test_an_earlier_run_is_found_by_its_number(home):
    write(home, "a", 1)
    write(home, "a", 2)
    assert places(find_logs(home, "a", attempt=1)) == [(1, 0)]
    assert find_logs(home, "a", attempt=3) == []


def test_the_tasks_of_a_gang_come_by_rank(home):
    for rank in (10, 2, 0):
        write(home, "a", 1, rank)
    assert places(find_logs(home, "a")) == [(1, 0), (1, 2), (1, 10)]
    assert places(find_logs(home, "a", rank=2)) == [(1, 2)]


@pytest.mark.parametrize("job", ["with.dot", "with/slash", "..", "ä"])
def test_any_id_is_found_and_no_other_job(home, job):
    write(home, job, 1, text="mine\n")
    write(home, "other", 1)
    assert [lines(log) for log in find_logs(home, job)] == [["mine\n"]]


def test_a_job_that_never_ran_has_no_logs(home):
    assert find_logs(home, "a") == []


def test_a_log_is_read_on_from_where_it_was_left(tmp_path):
    path = tmp_path / "log"
    path.write_text("one\ntwo")
    log = Log(path, 1, 0)
    assert lines(log, final=False) == ["one\n"], "two is not finished"
    path.write_text("one\ntwo\nthree")
    assert lines(log, final=False) == ["two\n"]
    assert lines(log) == ["three"]
    assert lines(log) == []


def test_bytes_that_are_no_text_do_not_stop_it(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"ok \xff\n")
    assert lines(Log(path, 1, 0)) == ["ok \N{REPLACEMENT CHARACTER}\n"]
