"""Tasks on a Ray cluster of two nodes: the results are those of this process; processes: test_sweep.py."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sim.errors import SimulationError
from sim.on_ray import _line, check_address
from sim.parallel import in_parallel
from sim.sweep import parse_axis, sweep
from tests.sim.ray_cluster import two_nodes
from tests.sim.test_sweep import BASE, busy

#: Our packages that the functions below are in, or import.
OURS = ("sim", "starburst", "translator", "tests", "bench")
TASKS = [(10, number) for number in range(8)] + [(20, number) for number in range(8)]


def added(given: int, task: int) -> int:
    return given + task


def doubtful(given: int, task: int) -> int:
    if task == 3:
        raise SimulationError(f"task 3 of {given} cannot be done")
    return task


def mortal(given: str, task: int) -> int:
    """Kills its worker in the middle, the first time."""
    begun = Path(given) / str(task)
    if not begun.exists():
        begun.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 100 + task


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with two_nodes() as address:
        yield address


def test_one_worker_is_this_process() -> None:
    assert list(in_parallel(added, TASKS, workers=1)) == [(i, sum(task)) for i, task in enumerate(TASKS)]


def test_a_killed_process_is_told_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match="was killed, as the system does where memory is short"):
        list(in_parallel(mortal, [(str(tmp_path), number) for number in (0, 1)], workers=2))


def test_an_address_is_that_of_a_client_port() -> None:
    check_address("--on", "ray://head.example:10001")
    for wrong in ("head:10001", "ray://head", "ray://:10001", "http://head:10001", "ray://head:x"):
        with pytest.raises(SimulationError, match="write ray://HOST:PORT"):
            check_address("--on", wrong)


def test_of_a_long_error_the_line_that_says_something_is_told() -> None:
    assert _line(RuntimeError("it broke\n  at a line")) == "it broke"
    told = "Initialization failure from server:\nTraceback:\n  File x\nTimeoutError: no agent\n"
    assert _line(RuntimeError(told)) == "Initialization failure from server: TimeoutError: no agent"
    assert _line(ConnectionError()) == "ConnectionError"


@pytest.mark.ray
def test_a_grid_on_ray_is_the_one_of_this_machine(address: str) -> None:
    axes = [parse_axis("budget=100,10,25")]
    here = sweep(busy(), BASE, axes, engine="core", workers=1)
    there = sweep(busy(), BASE, axes, engine="core", on=address)
    assert [p.result for p in here] == [p.result for p in there]
    assert [p.gantt for p in here] == [p.gantt for p in there]


@pytest.mark.ray
def test_a_worker_killed_in_the_middle_costs_a_retry_and_no_result(address: str, tmp_path: Path) -> None:
    tasks = [(str(tmp_path), number) for number in (0, 1)]
    found = in_parallel(mortal, tasks, on=address, packages=OURS)
    assert sorted(found) == [(0, 100), (1, 101)]
    assert {file.name for file in tmp_path.iterdir()} == {"0", "1"}, "each task's first worker was killed"


@pytest.mark.ray
def test_a_task_that_fails_on_ray_says_so_in_the_words_of_this_machine(address: str) -> None:
    with pytest.raises(SimulationError, match=r"^task 3 of 10 cannot be done$"):
        list(in_parallel(doubtful, [(10, 3)], on=address, packages=OURS))


@pytest.mark.ray
def test_a_port_that_is_no_clients_is_one_line() -> None:
    with pytest.raises(SimulationError, match=r"^--on ray://127\.0\.0\.1:9: .*is that Ray's client port\?$"):
        list(in_parallel(added, TASKS, on="ray://127.0.0.1:9"))
