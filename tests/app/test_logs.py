"""What jobs wrote is found where the sites put it."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as some

from starburst.app.config.home import Home
from starburst.app.logs import job_log
from starburst.app.logs.sites import BLOCK, LogFile, find_logs
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
    log = LogFile(path, 1, 0)
    assert lines(log, final=False) == ["one\n"], "two is not finished"
    path.write_text("one\ntwo\nthree")
    assert lines(log, final=False) == ["two\n"]
    assert lines(log) == ["three"]
    assert lines(log) == []


def test_bytes_that_are_no_text_do_not_stop_it(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"ok \xff\n")
    assert lines(LogFile(path, 1, 0)) == ["ok \N{REPLACEMENT CHARACTER}\n"]


def test_a_progress_bar_is_lines_that_end_with_a_carriage_return(tmp_path):
    """As tqdm writes it; and each is read once."""
    path = tmp_path / "log"
    path.write_bytes(b"\r 10%\r 20%")
    log = LogFile(path, 1, 0)
    assert lines(log, final=False) == ["\r", " 10%\r"]
    path.write_bytes(b"\r 10%\r 20%\r 30%\r")
    assert lines(log, final=False) == [" 20%\r"], "the last may be half of an end of line"
    path.write_bytes(b"\r 10%\r 20%\r 30%\r\ndone\r\n")
    assert lines(log, final=False) == [" 30%\r\n", "done\r\n"]
    assert log.offset == path.stat().st_size


@pytest.mark.parametrize("text", ["ä", "€", "🙂", "\r\n", "x\r", "a"])
@pytest.mark.parametrize("shift", range(5))
def test_a_line_longer_than_a_block_comes_in_pieces_that_cut_no_sign(tmp_path, text, shift):
    path = tmp_path / "log"
    whole = "y" * shift + (text * BLOCK if text.strip() == text else "z" * (BLOCK - shift - 1) + text) * 2
    path.write_bytes(whole.encode())
    log = LogFile(path, 1, 0)
    found = lines(log)
    assert "".join(found) == whole
    assert log.offset == len(whole.encode())
    assert max(map(len, found)) <= 2 * BLOCK
    assert "\n" not in found, "a return and its newline stay together"


@given(
    some.lists(some.sampled_from([b"a", b"\r", b"\n", b"\r\n", b"\xc3", b"\xa4", b"b" * BLOCK]), max_size=9)
)
def test_what_is_read_in_steps_is_what_was_written(tmp_path_factory, parts):
    path = tmp_path_factory.mktemp("steps") / "log"
    path.touch()
    log, read, written = LogFile(path, 1, 0), 0, b""
    for part in parts:
        with path.open("ab") as file:
            file.write(part)
        written += part
        lines(log, final=False)
        assert read <= log.offset <= len(written)
        read = log.offset
    assert lines(log) or log.offset == len(written)
    assert log.offset == len(written)


def test_a_line_without_end_costs_little_memory(tmp_path):
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.truncate(256 << 20)  # a hole: a quarter of a GiB of zeros, and no line end
    log = LogFile(path, 1, 0)
    tracemalloc.start()
    read = log.new_lines(final=True)
    total = 0
    while text := job_log._block(read):
        assert len(text) <= job_log.LETTERS + BLOCK
        total += len(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == 256 << 20
    assert peak < 4 << 20
