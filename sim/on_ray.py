"""Tasks on a Ray cluster that exists, through Ray's client: `ray://HOST:PORT`.

The cluster's nodes need the Python and Ray of this machine and our dependencies; our own packages are sent
along. Ray does a task again whose worker or node was lost.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from typing import Any, TypeVar

from sim.errors import SimulationError

G = TypeVar("G")
T = TypeVar("T")
R = TypeVar("R")

#: Our packages that simulations import.
PACKAGES = ("sim", "starburst", "translator")
#: How often Ray does a task again whose worker was lost.
RETRIES = 4
#: Tasks that are handed to Ray at a time; an autoscaler sees these.
WINDOW = 1000


def check_address(option: str, address: str) -> None:
    """Refuse what is no address of a Ray cluster.

    Raises:
        SimulationError: in the words of the option.
    """
    if not re.fullmatch(r"ray://[^/\s]+:[0-9]+", address):
        raise SimulationError(f"{option}: {address!r}: write ray://HOST:PORT; Ray's client listens at 10001")


def on_ray(
    address: str, work: Callable[[G, T], R], tasks: Sequence[tuple[G, T]], packages: Sequence[str] = PACKAGES
) -> Iterator[tuple[int, R]]:
    """See `sim.parallel.in_parallel`."""
    with _connected(address, packages) as ray:
        call = ray.remote(max_retries=RETRIES)(work)
        given = {id(item): item for item, _ in tasks}
        shared = {key: ray.put(item) for key, item in given.items()}
        numbered = iter(enumerate(tasks))
        open_: dict[Any, int] = {}
        while True:
            for number, (item, task) in islice(numbered, WINDOW - len(open_)):
                open_[call.remote(shared[id(item)], task)] = number
            if not open_:
                return
            ready, _ = ray.wait(list(open_))
            for ref in ready:
                yield open_.pop(ref), ray.get(ref)


@contextmanager
def _connected(address: str, packages: Sequence[str]) -> Iterator[Any]:
    """Ray, connected to the cluster; its errors in one line.

    Raises:
        SimulationError: Ray is not installed, or the cluster cannot be reached, is lost or lacks something.
    """
    try:
        import ray  # noqa: PLC0415 - an optional dependency
        from ray.exceptions import RayError, RayTaskError  # noqa: PLC0415
    except ImportError:
        raise SimulationError(
            f"--on {address}: needs the extra: pip install 'starburst-hybrid[ray]'"
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what its error says
            ray.init(
                address,
                runtime_env={"py_modules": list(map(_directory, packages))},
                log_to_driver=False,
                logging_level=logging.CRITICAL,
            )
        yield ray
    except RayTaskError as failed:
        if isinstance(failed.cause, ImportError):
            raise SimulationError(
                f"--on {address}: its nodes lack something ({failed.cause}): install starburst-hybrid there"
            ) from None
        raise failed.cause from None
    except RayError as error:
        raise SimulationError(f"--on {address}: gave up after {RETRIES} retries: {_line(error)}") from None
    except (ConnectionError, RuntimeError) as error:
        raise SimulationError(f"--on {address}: {_line(error)}; is that Ray's client port?") from None
    finally:
        ray.shutdown()


def _directory(package: str) -> str:
    (where,) = import_module(package).__path__
    return where


def _line(error: Exception) -> str:
    """The first line of an error; where that only announces what the server raised, with its last one."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"{lines[0]} {lines[-1].strip()}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]
