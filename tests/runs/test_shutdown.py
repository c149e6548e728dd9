"""A machine that shuts down sends SIGTERM to all that runs there: that is no end of a job's own."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from starburst.core.model.events import RunEnd, RunEnded
from starburst.runs.supervisor.files import read_json
from starburst.runs.supervisor.shutdown import LASTS_S, ShutdownSignal
from tests.runs.harness import PLACES, a_runner, log, rank_dir, shell, until, untimed, watching

SAVES = "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"
PLAIN = "echo up; while :; do sleep 0.05; done"
SHUT_DOWN = RunEnd.LOST, "its machine shut down"


@pytest.mark.processes
@pytest.mark.skipif(os.geteuid() != 0, reason="a shutdown's signals are root's")
class TestShutdown:
    def ended(self, root: Path, script: str, shut_down: Callable[[], None]) -> RunEnded:
        async def main() -> RunEnded:
            runner = a_runner(root)
            async with watching(runner) as reports:
                runner.start(shell(script), PLACES)
                await until(lambda: (rank_dir(root).path / "log").exists() and log(root).startswith("up"))
                await asyncio.to_thread(shut_down)
                return untimed(await reports.ended())

        return asyncio.run(main())

    def test_a_job_that_saves_and_exits_with_0_has_not_succeeded(self, root: Path) -> None:
        def shut_down() -> None:
            tell_supervisor(root)
            tell_job(root)

        assert self.ended(root, SAVES, shut_down) == RunEnded("job", 1, SHUT_DOWN[0], None, SHUT_DOWN[1])

    def test_a_job_that_hears_of_it_before_its_supervisor_has_not_failed(self, root: Path) -> None:
        def shut_down() -> None:
            tell_job(root)
            time.sleep(0.3)
            tell_supervisor(root)

        assert self.ended(root, PLAIN, shut_down) == RunEnded("job", 1, SHUT_DOWN[0], None, SHUT_DOWN[1])

    def test_a_job_that_somebody_else_ends_has_failed(self, root: Path) -> None:
        ended = self.ended(root, PLAIN, lambda: tell_job(root))
        assert ended == RunEnded("job", 1, RunEnd.EXITED, 128 + signal.SIGTERM)


class TestWhatIsTakenForOne:
    """What `ShutdownSignal` makes of signals and exits."""

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        now = [1000.0]
        monkeypatch.setattr("starburst.runs.supervisor.shutdown.time.monotonic", lambda: now[0])
        return now

    def heard(self, monkeypatch: pytest.MonkeyPatch, number: int, sender: int) -> ShutdownSignal:
        """One that heard one signal of a user, and hears no other."""
        coming: list[signal.struct_siginfo | None] = [signal.struct_siginfo((number, 0, 0, 1, sender, 0, 0))]
        monkeypatch.setattr(signal, "sigtimedwait", lambda *_: coming.pop() if coming else None)
        found = ShutdownSignal()
        found.wait({signal.SIGTERM, signal.SIGCHLD}, 60.0)
        return found

    def test_roots_sigterm(self, monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
        found = self.heard(monkeypatch, signal.SIGTERM, 0)
        clock[0] += LASTS_S - 1
        assert found.explains(0)
        assert found.explains(3)

    def test_not_one_that_is_long_past(self, monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
        found = self.heard(monkeypatch, signal.SIGTERM, 0)
        clock[0] += LASTS_S
        assert not found.explains(0)

    def test_not_a_jobs_own(self, monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
        assert not self.heard(monkeypatch, signal.SIGTERM, 1000).explains(0)

    def test_not_the_end_of_a_child(self, monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
        assert not self.heard(monkeypatch, signal.SIGCHLD, 0).explains(-signal.SIGTERM)


def tell_job(root: Path) -> None:
    os.killpg(read_json(rank_dir(root).path / "started.json")["job"], signal.SIGTERM)


def tell_supervisor(root: Path) -> None:
    pid = rank_dir(root).shim_pid()
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
