"""A machine that shuts down ends all that runs there: that is no end of a job's own."""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from starburst.core.model.events import RunEnd, RunEnded
from starburst.runs.outcome import verdict
from starburst.runs.supervisor import shutdown
from starburst.runs.supervisor.exits import ITSELF, LOSS, Exit
from starburst.runs.supervisor.files import read_json
from starburst.runs.supervisor.shutdown import Shutdown
from starburst.runs.supervisor.supervisor import SHUT_DOWN
from tests.runs.harness import PLACES, a_runner, log, rank_dir, shell, until, untimed, watching

SAVES = "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"
PLAIN = "echo up; while :; do sleep 0.05; done"
LOST = RunEnded("job", 1, RunEnd.LOST, None, SHUT_DOWN)


@pytest.mark.processes
class TestRuns:
    """Real runs, and signals that say that the first process of the system sent them."""

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
        assert self.ended(root, SAVES, lambda: both(root)) == LOST

    def test_a_job_that_is_told_before_its_supervisor_has_not_failed(self, root: Path) -> None:
        def shut_down() -> None:
            tell_job(root)
            time.sleep(0.1)
            told(root)

        assert self.ended(root, PLAIN, shut_down) == LOST

    def test_a_job_that_is_not_told_is_told_by_its_supervisor_and_can_save(self, root: Path) -> None:
        saves = "trap 'echo 7 > $STARBURST_CHECKPOINT_DIR/step; exit 0' TERM"
        assert self.ended(root, f"{saves}; {PLAIN}", lambda: told(root)) == LOST
        assert (root / "checkpoints" / "job" / "step").read_text() == "7\n"

    def test_the_end_of_a_session_does_not_take_the_grace(self, root: Path) -> None:
        def shut_down() -> None:
            told(root)
            os.kill(supervisor_of(root), signal.SIGHUP)

        saves = "trap 'sleep 0.3; echo 7 > $STARBURST_CHECKPOINT_DIR/step; exit 0' TERM"
        assert self.ended(root, f"{saves}; {PLAIN}", shut_down) == LOST
        assert (root / "checkpoints" / "job" / "step").read_text() == "7\n"

    def test_a_job_that_somebody_else_ends_has_failed(self, root: Path) -> None:
        ended = self.ended(root, PLAIN, lambda: tell_job(root))
        assert ended == RunEnded("job", 1, RunEnd.EXITED, 128 + signal.SIGTERM)

    def test_a_job_that_signals_its_supervisor_has_its_own_exit(self, root: Path) -> None:
        ended = self.ended(root, "echo up; kill -TERM $PPID; sleep 0.2; exit 3", lambda: None)
        assert ended == RunEnded("job", 1, RunEnd.EXITED, 3)


class TestTheSystem:
    """What systemd says."""

    @pytest.mark.parametrize(
        ("said", "stops"), [(b"stopping", True), (b"running", False), (b"degraded", False), (b"", False)]
    )
    def test_is_asked(
        self, said: bytes, stops: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[list[str]] = []

        def run(argv: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
            asked.append(argv)
            return subprocess.CompletedProcess(argv, 1, said + b"\n")

        monkeypatch.setattr(shutdown, "SYSTEMD", str(tmp_path))
        monkeypatch.setattr(subprocess, "run", run)
        monkeypatch.setattr(signal, "sigtimedwait", lambda *_: None)
        assert Shutdown().explains(0) == stops
        assert len(asked) == (1 if said else 2), "root is asked where a user has no answer"

    def test_is_not_there_everywhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shutdown, "SYSTEMD", str(tmp_path / "none"))
        monkeypatch.setattr(signal, "sigtimedwait", lambda *_: None)
        assert not Shutdown().explains(0)


class TestGangs:
    """One task of two was lost with its machine."""

    def end(self, failed_at: float, lost_at: float) -> RunEnd:
        failed = Exit(1, None, ITSELF, "", 0.0, failed_at)
        lost = Exit(0, None, LOSS, SHUT_DOWN, 0.0, lost_at)
        return verdict(("job", 1), [failed, lost], None).end

    def test_a_peer_that_fails_before_it_has_saved_did_not_fail_the_gang(self) -> None:
        assert self.end(10.0, 12.0) == RunEnd.LOST

    def test_a_failure_long_before_is_one(self) -> None:
        assert self.end(10.0, 1000.0) == RunEnd.EXITED


def supervisor_of(root: Path) -> int:
    pid = rank_dir(root).shim_pid()
    assert pid is not None
    return pid


def tell_job(root: Path) -> None:
    os.killpg(read_json(rank_dir(root).path / "started.json")["job"], signal.SIGTERM)


def both(root: Path) -> None:
    told(root)
    with suppress(ProcessLookupError):  # its supervisor has told it, and it is over
        tell_job(root)


def told(root: Path) -> None:
    """SIGTERM to the supervisor, as from the first process: rt_sigqueueinfo(2) lets one say so."""
    number = {"x86_64": 129, "aarch64": 138}.get(platform.machine())
    if number is None:
        pytest.skip(f"no number of rt_sigqueueinfo for {platform.machine()}")
    si_queue, init, roots = -1, 1, 0
    info = struct.pack("iiiiii", signal.SIGTERM, 0, si_queue, 0, init, roots).ljust(128, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.syscall(number, supervisor_of(root), int(signal.SIGTERM), info) == 0, ctypes.get_errno()
