"""A report that fails costs no later one, and any number may be counted."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from starburst import iterator
from starburst.iterator import watch
from tests.test_iterator import Clock, told


@pytest.fixture(autouse=True)
def _each_item_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterator.time, "monotonic", Clock(20.0))


def test_after_a_report_that_could_not_be_written_comes_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that was full for a moment must not hide the progress of days."""
    where = tmp_path / "full" / "report.json"
    monkeypatch.setenv("STARBURST_REPORT", str(where))
    for item in watch(range(5)):
        if item == 2:
            where.parent.mkdir()
    assert told(where)["done"] == 5


def test_after_a_thread_that_could_not_start_comes_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = threading.Event()
    monkeypatch.setitem(iterator._SENDERS, "http", lambda url: lambda told: sent.set())
    line = iterator._Line("http://listener.example/")

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            line.put({"done": 1})
    line.put({"done": 2})
    assert sent.wait(timeout=5)


class PreemptedError(Exception):
    """What a program's handler of SIGTERM raises, to leave the loop and save its state."""


def test_what_a_signal_handler_raises_during_a_report_leaves_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handler(signum: int, _frame: object) -> None:
        raise PreemptedError(signum)

    monkeypatch.setenv("STARBURST_REPORT", str(tmp_path / "report.json"))
    monkeypatch.setattr(iterator, "_write", lambda path, data: signal.raise_signal(signal.SIGTERM))
    before = signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(PreemptedError):
            list(watch(range(5)))
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("number", [np.int64, np.float32, np.array], ids=["int", "float", "tensor"])
def test_the_counts_of_a_checkpoint_may_be_any_numbers_and_stay_what_they_are(
    number: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "report.json"
    monkeypatch.setenv("STARBURST_REPORT", str(where))
    done = number(5)
    list(watch(range(5), total=number(60), done=done))
    assert (told(where)["done"], told(where)["total"], int(done)) == (10, 60, 5)
