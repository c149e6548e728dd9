"""`starburst up` as processes: connections, kills and ends of the scheduler and of its API."""
# ruff: noqa: F811 - fixtures

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.manifests import manifest
from tests.security.test_http import PATIENCE_S, connect, until
from tests.web.conftest import API, home  # noqa: F401 - a fixture


@pytest.mark.processes
class TestTheWhole:
    """`starburst up` with as few files as a login gives, and what the trial did to it."""

    def test_a_thousand_idle_connections_end_nothing(self, home: Path, tmp_path: Path) -> None:
        with up(tmp_path, home, files=600) as (process, url):
            where = ("127.0.0.1", httpx.URL(url).port or 0)
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
            with ExitStack() as kept:
                kept.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
                for _ in range(1000):
                    kept.enter_context(connect(where))
                body = manifest("amid", "true")
                with httpx.Client(base_url=f"{url}{API}", timeout=PATIENCE_S) as client:
                    answer = client.post("/jobs", content=body, headers={"Content-Type": "text/yaml"})
                    assert answer.status_code == 201
                    (job,) = answer.json()
                    until(lambda: client.get(f"/jobs/{job['id']}").json()["phase"] == "succeeded")
            assert process.poll() is None

    def test_an_api_that_is_killed_comes_back_and_one_whose_scheduler_is_killed_does_not(
        self, home: Path, tmp_path: Path
    ) -> None:
        with up(tmp_path, home) as (process, url):
            first = api_of(process)
            limits = Path(f"/proc/{first}/limits").read_text()
            assert str(2**30) in next(
                line for line in limits.splitlines() if line.startswith("Max data size")
            )
            os.kill(first, signal.SIGKILL)
            assert httpx.get(f"{url}/healthz", timeout=PATIENCE_S).status_code == 200
            second = api_of(process)
            assert second != first
            process.kill()
            until(lambda: is_gone(second))
            with pytest.raises(httpx.TransportError):
                httpx.get(f"{url}/healthz")

    def test_a_scheduler_that_is_told_to_end_ends_its_api(self, home: Path, tmp_path: Path) -> None:
        with up(tmp_path, home) as (process, url):
            api = api_of(process)
            with httpx.stream("GET", f"{url}{API}/watch") as watch:
                lines = watch.iter_lines()
                assert next(lines).startswith("id: ")
                process.terminate()
                assert [line for line in lines if line] == []
            assert process.wait(PATIENCE_S) == 0
            assert is_gone(api)


@contextmanager
def up(tmp_path: Path, home: Path, files: int = 1024) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A Starburst, and where it answers."""
    log, config = tmp_path / "up.log", tmp_path / "starburst.yaml"
    config.write_text("http: {port: 0}\ncloud: {offers: []}\ndebug: {validate: true}\n")
    command = [
        "prlimit",
        f"--nofile={files}:{files}",
        sys.executable,
        "-m",
        "starburst",
        "up",
        "-c",
        str(config),
    ]
    with log.open("wb") as err, subprocess.Popen(command, stderr=err) as process:
        try:
            until(lambda: '"http"' in log.read_text() or process.poll() is not None)
            (said,) = (json.loads(line) for line in log.read_text().splitlines() if '"http"' in line)
            assert httpx.get(f"{said['url']}/healthz", timeout=PATIENCE_S).status_code == 200
            yield process, said["url"]
        finally:
            process.kill()


def api_of(process: subprocess.Popen[bytes]) -> int:
    """The pid of its API."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (found,) = (
        int(pid)
        for pid in children
        if b"starburst.web.serving.process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    return found


def is_gone(pid: int) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True
