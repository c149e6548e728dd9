"""Our own CSV: what it may hold, and every way it can be wrong."""

from __future__ import annotations

import csv
import gzip
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.errors import SimulationError
from sim.readers import read

HEAD = "job_id,arrival_h,duration_h,gpus\n"


def wrong(path: Path, content: str | bytes) -> str:
    """The error of a file with this content, without the path."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SimulationError) as caught:
        read(path, "csv")
    return str(caught.value).replace(str(path), "jobs.csv")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.csv"


def test_columns_in_any_order_and_others_ignored(path: Path) -> None:
    path.write_text(
        "cluster,gpus,job_id,duration_h,arrival_h,nodes,memory_gib,cpus,cost\nx,16,a,2.5,1,2,64,10.5,7\n"
    )
    trace = read(path).trace
    assert trace.ids == ["a"]
    assert (trace.arrival_h[0], trace.duration_h[0], trace.gpus[0], trace.nodes[0]) == (1, 2.5, 16, 2)
    assert (trace.cpus[0], trace.memory_gib[0], trace.cost[0]) == (10.5, 64, 7)


def test_priorities_are_whole_numbers_of_either_sign(path: Path) -> None:
    head = HEAD.replace("gpus", "gpus,priority")
    path.write_text(head + "a,0,1,1,-3\nb,0,1,1,7\n")
    priority = read(path).trace.priority
    assert priority is not None
    assert priority.tolist() == [-3, 7]
    assert "jobs.csv:2: priority: 1.5: must be a whole number" in wrong(path, head + "a,0,1,1,1.5\n")


def test_seconds_are_divided_by_3600_and_the_rest_has_defaults(path: Path) -> None:
    path.write_text("job_id,arrival_s,duration_s,gpus,cpus\na,10,7200,2,53\n")
    trace = read(path).trace
    assert (trace.arrival_h[0], trace.duration_h[0]) == (10 / 3600, 2)
    assert (trace.memory_gib[0], trace.nodes[0], trace.cost[0]) == (0, 1, (2 + 1) * 2)


def test_gzip_blank_lines_a_byte_order_mark_and_quoted_line_ends(path: Path) -> None:
    text = '\ufeffjob_id,arrival_h,duration_h,gpus\r\n\r\n"a\nb",0,1,1\r\nc,1,0,0\r\n\r\n'
    path.write_bytes(gzip.compress(text.encode()))
    assert read(path).trace.ids == ["a\nb", "c"]


def test_limit_takes_the_first_jobs_and_does_not_look_further(path: Path) -> None:
    path.write_text(HEAD + "a,0,1,1\nb,1,1,1\nc,oops,1,1\n")
    assert read(path, limit=2).trace.ids == ["a", "b"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("b,1,-5,1", "jobs.csv:3: duration_h: -5: must be 0 or more"),
        ("b,1,nan,1", "jobs.csv:3: duration_h: nan: must be a finite number"),
        ("b,inf,1,1", "jobs.csv:3: arrival_h: inf: must be a finite number"),
        ("b,1,long,1", "jobs.csv:3: duration_h: long: must be a finite number"),
        ("b,1,,1", "jobs.csv:3: duration_h: '': must be a finite number"),
        ("b,1,1e13,1", "jobs.csv:3: duration_h: 10000000000000: must be at most 1e+12"),
        ("b,1,1,1.5", "jobs.csv:3: gpus: 1.5: must be a whole number"),
        ("b,1,1,-1", "jobs.csv:3: gpus: -1: must be 0 or more"),
        ("a,1,1,1", "jobs.csv:3: job_id: a: is used above; every job needs its own id"),
        (" ,1,1,1", "jobs.csv:3: job_id: ' ': must not be empty"),
        ("b,1,1", "jobs.csv:3: row: 3 cells: must be 4, as in the first line"),
        ('"b"x,1,1,1', "jobs.csv:3: row: ',' expected after '\"': correct the quotes around this cell"),
    ],
)
def test_a_wrong_row_is_named(path: Path, row: str, message: str) -> None:
    assert wrong(path, HEAD + "a,1,1,1\n" + row + "\n") == message


@pytest.mark.parametrize(("column", "hours"), [("estimate_h", 1.0), ("estimate_s", 1 / 3600)])
def test_estimates_of_run_times_may_be_missing(path: Path, column: str, hours: float) -> None:
    path.write_text(HEAD.strip() + f",{column}\na,0,1,1,1\nb,1,1,1,\nc,2,1,1,0\nd,3,1,1,-1\n")
    found = read(path).trace.estimate_h
    assert found is not None
    assert np.array_equal(found, [hours, np.nan, np.nan, np.nan], equal_nan=True)


def test_a_job_before_the_one_above(path: Path) -> None:
    assert wrong(path, HEAD + "a,3,1,1\nb,2,1,1\nc,1,1,1\n") == (
        "jobs.csv:3: arrival_h: 2: is before the 3 of the job above; sort the rows, "
        "as by (head -n 1 FILE; tail -n +2 FILE | sort -s -t, -g -k 2,2)"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "jobs.csv:1: file: empty: the first line must name the columns"),
        (HEAD, "jobs.csv: no jobs: add a row for each job"),
        (
            "job_id,arrival_h\n",
            "jobs.csv:1: duration_h or duration_s: no such column: "
            "add it to the first line and to every row\n"
            "jobs.csv:1: gpus: no such column: add it to the first line and to every row",
        ),
        (
            "job_id,arrival_h,arrival_s,duration_h,gpus\n",
            "jobs.csv:1: arrival_h: given besides arrival_s: keep one of the columns",
        ),
        ("job_id,gpus,gpus\n", "jobs.csv:1: gpus: given twice: keep one of the columns"),
        (
            HEAD.encode() + b"\xff,0,1,1\n",
            "jobs.csv: not UTF-8 text (invalid start byte): save it as UTF-8 or gzip",
        ),
        (gzip.compress(HEAD.encode() * 9, mtime=0)[:-9], "jobs.csv: damaged gzip data: get the file again"),
        (HEAD.replace("gpus", "gpus,nodes") + "a,0,1,1,0\n", "jobs.csv:2: nodes: 0: must be 1 or more"),
        (
            HEAD.strip() + ",estimate_h,estimate_s\n",
            "jobs.csv:1: estimate_h: given besides estimate_s: keep one of the columns",
        ),
        (HEAD.strip() + ",estimate_h\na,0,1,1,-2\n", "jobs.csv:2: estimate_h: -2: must be 0 or more"),
        (
            HEAD.strip() + ",estimate_s\na,0,1,1,x\n",
            "jobs.csv:2: estimate_s: x: must be a finite number or nothing",
        ),
        (HEAD + "a,-1,1,1\n", "jobs.csv:2: arrival_h: -1: must be 0 or more"),
    ],
)
def test_a_wrong_file_is_named(path: Path, content: str | bytes, message: str) -> None:
    assert wrong(path, content) == message


def test_a_missing_file(path: Path) -> None:
    with pytest.raises(SimulationError, match=r"jobs\.csv: cannot be read: No such file or directory"):
        read(path)


def test_problems_come_by_line_and_at_most_twenty(path: Path) -> None:
    lines = wrong(path, HEAD + "".join(f"{i},{i},-1,x\n" for i in range(30))).splitlines()
    assert len(lines) == 21
    assert lines[:2] == [
        "jobs.csv:2: gpus: x: must be a finite number",
        "jobs.csv:2: duration_h: -1: must be 0 or more",
    ]
    assert lines[19] == "jobs.csv:11: duration_h: -1: must be 0 or more"
    assert lines[20] == "and 40 more"


def test_lines_are_right_below_blank_lines_and_quoted_line_ends(path: Path) -> None:
    assert (
        wrong(path, HEAD + '\n"a\nb",0,1,1\n\nc,1,-1,1\n') == "jobs.csv:6: duration_h: -1: must be 0 or more"
    )


AMOUNT = st.floats(0, 1e6)
JOBS = st.lists(st.tuples(AMOUNT, AMOUNT, st.integers(0, 4096), AMOUNT, st.integers(1, 64)), min_size=1)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def written(path: Path, jobs: list[tuple[float, ...]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["job_id", "arrival_h", "duration_h", "gpus", "cpus", "nodes"])
        writer.writerows([f"job,{number}", *job] for number, job in enumerate(jobs))


@QUICK
@given(jobs=JOBS)
def test_what_was_written_comes_back_to_the_last_bit(path: Path, jobs: list[tuple[float, ...]]) -> None:
    jobs.sort(key=lambda job: job[0])
    written(path, jobs)
    trace = read(path).trace
    assert trace.ids == [f"job,{number}" for number in range(len(jobs))]
    columns = (trace.arrival_h, trace.duration_h, trace.gpus, trace.cpus, trace.nodes)
    for ours, theirs in zip(columns, zip(*jobs, strict=True), strict=True):
        assert np.array_equal(ours, np.array(theirs))


@QUICK
@given(jobs=JOBS, at=st.integers(0), cut=st.integers(0, 9), junk=st.binary(max_size=6))
def test_a_mutated_file_is_read_or_refused(
    path: Path, jobs: list[tuple[float, ...]], at: int, cut: int, junk: bytes
) -> None:
    written(path, jobs)
    content = path.read_bytes()
    at %= len(content)
    path.write_bytes(content[:at] + junk + content[at + cut :])
    with suppress(SimulationError):
        trace = read(path, "csv").trace
        assert (np.diff(trace.arrival_h) >= 0).all()
        assert np.isfinite(trace.cost).all()
