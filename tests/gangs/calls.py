"""Python that starts jobs on rented machines: a function, one that raises, and a command."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from starburst import LocalClient
from starburst.client.job_handle import JobHandle
from tests.kube.live import Live

#: They go by name, as the machines may have another Python.
MODULE = """
import os


def doubled(number):
    print("called", flush=True)
    return {"site": os.environ["STARBURST_SITE"], "number": 2 * number}


def failing(word):
    raise KeyError(word)
"""
#: What the names of its jobs begin with.
NAME = "python"


@dataclass(frozen=True, slots=True)
class Calls:
    """What Python started, and waits for."""

    value: JobHandle
    error: JobHandle
    command: JobHandle

    def are_answered(self, seconds: float) -> None:
        """Each has come back as if it had run here."""
        assert self.value.result(seconds) == {"site": "cloud", "number": 42}
        assert "".join(self.value.logs()) == "called\n"
        with pytest.raises(KeyError, match="lr") as raised:
            self.error.result(seconds)
        assert "in failing" in str(raised.value.__cause__)
        assert self.command.result(seconds) is None
        assert "".join(self.command.logs()) == "on cloud\n"


@contextmanager
def calls(cluster: Live) -> Iterator[Calls]:
    """Three jobs that only rented machines may take."""
    directory = cluster.root / "calls"
    directory.mkdir()
    (directory / "calls_away.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch, LocalClient(cluster.home) as client:
        patch.setenv("KUBECONFIG", str(cluster.lab.kubeconfig))
        patch.syspath_prepend(str(directory))
        ours = importlib.import_module("calls_away")

        def start(kind: str, *what: object) -> JobHandle:
            made = client.run(*what, name=f"{NAME}-{kind}", cloud="only", max_wait="1s", workdir=directory)
            assert isinstance(made, JobHandle)
            return made

        yield Calls(
            start("value", ours.doubled, 21),
            start("error", ours.failing, "lr"),
            start("command", "echo on $STARBURST_SITE"),
        )
