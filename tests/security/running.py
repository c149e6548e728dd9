"""Starburst as a process of its own, on a home that an attacker, or a full disk, gets at."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml

PATIENCE_S = 30.0


def starburst(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command that a user types."""
    return subprocess.run(
        [sys.executable, "-m", "starburst", *words],
        env={**os.environ, "STARBURST_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for a condition."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.05)


@dataclass
class Up:
    """A scheduler that runs."""

    home: Path
    process: subprocess.Popen[bytes]
    log: Path
    url: str

    def said(self, event: str) -> list[dict[str, str]]:
        """The lines of its log of one kind."""
        lines = (json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{"))
        return [line for line in lines if line["event"] == event]

    def get(self, path: str) -> httpx.Response:
        """What its API answers."""
        return httpx.get(self.url + path, timeout=30)

    def phases(self) -> dict[str, str]:
        """Of its jobs, by name."""
        return {row["name"]: row["phase"] for row in self.get("/api/v1/jobs").json()}

    def submit(self, name: str, command: str) -> subprocess.CompletedProcess[str]:
        """Hand in a job that runs a shell command."""
        container = {
            "name": "c",
            "image": "x",
            "command": ["sh", "-c", command],
            "resources": {"limits": {"cpu": "1"}},
        }
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
        }
        file = self.log.with_name(f"{name}.yaml")
        file.write_text(yaml.safe_dump(job))
        return starburst(self.home, "submit", str(file))


@contextmanager
def up(home: Path, beside: Path, **config: object) -> Iterator[Up]:
    """`starburst up` until the end of the block; its log and config lie in `beside`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file, log = beside / "starburst.yaml", beside / "up.log"
    nodes = [{"name": "n", "gpus": 1, "cpus": 8}]
    file.write_text(
        yaml.safe_dump(
            {"http": {"port": port}, "cluster": {"nodes": nodes}, "cloud": {"kind": "none"}}
            | {"debug": {"validate": True}}
            | config
        )
    )
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "starburst", "up", "-c", str(file), "--log-format", "json"],
            env={**os.environ, "STARBURST_HOME": str(home)},
            stdout=out,
            stderr=out,
        )
    running = Up(home, process, log, f"http://127.0.0.1:{port}")
    try:
        until(lambda: bool(running.said("http")) or process.poll() is not None, "up")
        yield running
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@contextmanager
def small_disk(at: Path, size: str) -> Iterator[Path]:
    """A file system of so many bytes, which takes root; skips the test without."""
    at.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(at)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"a file system of {size} cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


def fill(disk: Path) -> Path:
    """Leave no byte free; the file to remove for there to be room again."""
    filler = disk / "filler"
    file = os.open(filler, os.O_CREAT | os.O_WRONLY)
    try:
        for size in (4096, 1):
            try:
                while True:
                    os.write(file, b"x" * size)
            except OSError:
                continue
    finally:
        os.close(file)
    return filler
