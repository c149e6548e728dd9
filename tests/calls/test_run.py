"""`client.run`: commands and functions as jobs, and what becomes of their values and exceptions."""

from __future__ import annotations

import ast
import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from starburst.client import JobFailedError, NoResultError, StarburstError
from starburst.client.calls import packed_call, runner
from starburst.client.job_handle import JobArray, JobHandle
from starburst.runs.supervisor.log_pump import TAIL
from tests.calls.bench import Bench

NOISE = "50%"


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: int = 0


class TwoWordsError(Exception):
    """Cannot be unpickled, as its constructor takes other arguments than it keeps."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} {other}")


def moved(point: Point, by: int = 1) -> Point:
    print("moving", flush=True)
    print(NOISE, end="")
    return dataclasses.replace(point, x=point.x + by)


def failing(text: str) -> None:
    raise KeyError(text)


def failing_oddly() -> None:
    raise TwoWordsError("no", "luck")


def stopping() -> None:
    os._exit(0)


def named(name: str) -> str:
    return name


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "here"
    path.mkdir()
    monkeypatch.chdir(path)
    return path


@pytest.fixture
def bench(tmp_path: Path, here: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def module(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module of the user's directory, below a path of its own."""
    (here / "src").mkdir()
    (here / "src" / "ours_tripling.py").write_text("def tripled(x):\n    return 3 * x\n")
    monkeypatch.syspath_prepend(str(here / "src"))
    import ours_tripling  # type: ignore[import-not-found]

    yield ours_tripling
    del sys.modules["ours_tripling"]


def test_a_function_is_called_in_its_job_and_its_value_comes_back(bench: Bench, here: Path) -> None:
    (here / "data.txt").write_text("x")
    said: list[str] = []
    job = bench.run(moved, Point(1, 2), by=10, gpus="A100:2", max_wait=60, env={"A": 1}, note=said.append)
    assert job.result() == Point(11, 2)
    assert type(job.result()) is Point
    assert "".join(job.logs()) == f"moving\n{NOISE}"
    (item,) = bench.submitted
    assert (item.job.name, item.job.tasks[0].gpus, item.job.max_wait_s) == ("moved", 2, 60.0)
    assert dict(item.workload.env)["A"] == "1"
    assert said[0].startswith(f"taking along {here}, the call of moved: ")


def test_an_array_has_all_that_a_job_has_as_lists(bench: Bench) -> None:
    first, second = bench.run(named, "a"), bench.run(["echo", "b"])
    array = JobArray("named-a0", (first, second))
    assert ["".join(log) for log in array.logs()] == ["", "b\n"]
    for name in (name for name in vars(JobHandle) if not name.startswith("_")):
        assert hasattr(array, name) or name in ("client", "key")


def test_a_function_of_a_module_in_the_directory_goes_by_name(bench: Bench, module: Any) -> None:
    assert (
        not packed_call.packed_call(module.tripled, [1], {}, Path.cwd()).files["origin.json"].count(b"true")
    )
    assert bench.run(module.tripled, 5).result() == 15
    assert bench.run(module.tripled, 5, workdir=None).result() == 15  # as code: its file stays here


def test_what_a_function_raises_is_raised_here(bench: Bench) -> None:
    job = bench.run(failing, "lr")
    with pytest.raises(KeyError, match="lr") as raised:
        job.result()
    assert "in failing" in str(raised.value.__cause__)
    assert "KeyError" in "".join(job.logs())
    assert job.status()["phase"] == "failed"


def test_an_exception_that_cannot_come_back_is_told_with_its_traceback(bench: Bench) -> None:
    with pytest.raises(JobFailedError, match=r"(?s)exit code 1.*in failing_oddly.*no luck"):
        bench.run(failing_oddly).result()


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda: os.urandom(100_000), "98 KiB pickled and compressed, and 40 KiB come back"),
        (lambda: (each for each in ()), "it cannot be pickled .*generator"),
        (stopping, "its log has no result"),
    ],
)
def test_a_value_that_does_not_come_back_is_no_failure_of_the_job(
    bench: Bench, function: Callable[[], Any], why: str
) -> None:
    job = bench.run(function)
    assert job.wait()["phase"] == "succeeded"
    with pytest.raises(NoResultError, match=why):
        job.result()


def test_a_value_of_several_lines_is_put_together(bench: Bench) -> None:
    data = os.urandom(30_000)
    assert bench.run(lambda: data, workdir=None).result() == data


def test_a_result_is_asked_for_at_the_end_of_the_log_first(bench: Bench) -> None:
    assert bench.run(lambda: 1).result() == 1
    assert bench.asked_since == ["2026-03-02T11:59:00+00:00"]


def test_a_printed_text_is_never_taken_for_a_result(bench: Bench) -> None:
    job = bench.run(lambda: 1)
    key = bytes.fromhex(job.key)
    forged = runner.sealed(b"another key", runner.VALUE, b"\x80\x05K\x02.", "")
    bench.logs_before = f"{runner.mark(b'another key')} 1/1 {_base64(forged)}\n"
    assert job.result() == 1
    bench.texts[job.id] = f"{runner.mark(key)} 1/1 {_base64(forged)}\n"  # the mark is known, the key is not
    with pytest.raises(NoResultError):
        job.result()
    with pytest.raises(NoResultError):
        JobHandle(bench, job.id, "00").result()


def _base64(text: bytes) -> str:
    import base64

    return base64.b64encode(text).decode()


def test_code_of_another_python_is_refused_before_it_runs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, module: Any
) -> None:
    monkeypatch.setattr(packed_call, "_this_python", lambda: "3.99")
    job = bench.run(moved, Point(1))
    with pytest.raises(JobFailedError):
        job.result()
    assert "moved was submitted from Python 3.99 and came along as bytecode" in "".join(job.logs())
    assert bench.run(module.tripled, 2).result() == 6


def test_the_program_that_is_sent_along_is_read_by_python_3_8() -> None:
    ast.parse(Path(runner.__file__).read_text(), feature_version=(3, 8))


def test_without_the_callers_python_another_one_calls(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert bench.run(lambda: 1).result() == 1
    job = bench.run(lambda: 1, python="python-of-nobody")
    assert "there is no python-of-nobody here" in "".join(job.logs())


def test_a_handle_is_made_again_from_its_reference(bench: Bench) -> None:
    job = bench.run(lambda: 7)
    assert bench.attach(job.reference).result() == 7
    assert bench.attach(job.id).result() is None  # without the key it is a job like any other
    with pytest.raises(StarburstError, match="there is no job 'other'"):
        bench.attach("other")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("echo 'a b' c", ("echo", "a b", "c")),
        (["echo", "$A"], ("echo", "$A")),
        ("echo $A | cat", ("/bin/sh", "-c", "echo $A | cat")),
        ("exit 3", ("/bin/sh", "-c", "exit 3")),
        ("LR=1 env", ("/bin/sh", "-c", "LR=1 env")),
    ],
)
def test_a_string_is_a_line_of_sh_and_a_sequence_a_program(
    bench: Bench, command: str | list[str], words: tuple[str, ...]
) -> None:
    job = bench.run(command, workdir=None)
    assert bench.submitted[0].workload.command == words
    if words[-1] == "exit 3":
        with pytest.raises(JobFailedError, match="exit code 3"):
            job.result()
    else:
        assert job.result() is None


@pytest.mark.parametrize(
    ("what", "arguments", "options", "line"),
    [
        (moved, (), {}, "moved: missing a required argument: 'point'"),
        (moved, (open,), {"b": 1}, "moved: got an unexpected keyword argument 'b'"),
        ("true", (), {"gpu": 1}, "run: there is no option 'gpu'; did you mean 'gpus'?"),
        ("true", ("x",), {}, "run: arguments and python= are for a function"),
        (" ", (), {}, "run: ' ': give a command"),
        ("true", (), {"name": 3}, "run: name: 3: must be a text"),
        ("true", (), {"gpus": "zz"}, "gpus: 'zz': names no model of a GPU"),
        ("true", (), {"time": "5"}, "time: '5': a duration needs a unit"),
        ("true", (), {"env": ["A-B=1"]}, "env: 'A-B=1': write NAME=VALUE"),
        (
            "true",
            (),
            {"workdir": "nowhere"},
            "workdir: 'nowhere': is no directory; name one, or give workdir=",
        ),
        (named, (), {"name": "x"}, "run: 'name' is an option and a parameter of the function; bind"),
        (moved, (sys._getframe(),), {}, "moved: the call cannot be pickled: "),
        (moved, (os.urandom(600_000),), {}, "the largest are the call of moved"),
    ],
)
def test_a_mistake_is_one_line_and_submits_nothing(
    bench: Bench, what: Any, arguments: tuple[Any, ...], options: dict[str, Any], line: str
) -> None:
    with pytest.raises((TypeError, StarburstError)) as told:
        bench.run(what, *arguments, **options)
    assert line in str(told.value)
    assert "\n" not in str(told.value)
    assert bench.submitted == []


def test_a_parameter_with_the_name_of_an_option_is_bound(bench: Bench) -> None:
    assert bench.run(functools.partial(named, name="x"), name="job").result() == "x"
    assert bench.submitted[0].job.name == "job"


def test_the_largest_result_is_in_the_kept_end_of_a_log_that_is_too_long() -> None:
    lines = -(-4 * runner.MAX_RESULT // 3 // runner.LINE) + 1
    assert 4 * runner.MAX_RESULT / 3 + lines * len(f"{runner.mark(b'')} 10/10 \n") < TAIL
