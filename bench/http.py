"""How long a job waits for its start on an idle cluster, and beside an API that everybody asks at once.

A real `starburst up` on the embedded cluster; the users are raw sockets, which cost little themselves. Jobs
are submitted straight into the store, so that what is measured is the scheduler and not the API before it. It
fails where a job beside the users waits more than `MOST` times as long.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from statistics import median

import yaml

from bench.growth import beyond
from starburst.app.config.home import Home
from starburst.app.jobs import submitting
from starburst.app.reading.sources import ManifestText
from starburst.domain.job import OWNER
from starburst.store.listings import queries
from starburst.store.store import Store

#: What a job's wait for its start may be of that on the idle scheduler; 1.13 on a quiet machine.
MOST = 5.0
#: What people and programs ask, in turn.
MIX = (
    *("/api/v1/summary", "/api/v1/jobs?limit=100", "/api/v1/jobs/{job}", "/api/v1/jobs/{job}/explain"),
    *("/api/v1/nodes", "/api/v1/events?newest=true&limit=50", "/metrics", "/dashboard/overview"),
)
CONFIG = {
    "cluster": {"nodes": [{"name": "node", "count": 4, "gpus": 8}]},
    "cloud": {"offers": []},
    "http": {
        "port": 0,
        "requests_per_second": 1000,
        "streams": 2000,
        "connections": 3000,
        "connections_per_address": 3000,
    },
}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "probe", "annotations": {"starburst.io/cloud": "never"}},
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "busybox", "command": ["true"]}],
            }
        }
    },
}
#: Connections that ask, one question at a time each.
ASKERS = 20
PATIENCE_S = 60.0


@contextmanager
def starburst(root: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A scheduler and the port of its API."""
    log, config = root / "up.log", root / "starburst.yaml"
    config.write_text(yaml.safe_dump(CONFIG))
    command = [sys.executable, "-m", "starburst", "up", "--config", str(config), "--log-format", "json"]
    with log.open("wb") as err:
        process = subprocess.Popen(
            command, stderr=err, env={**os.environ, "STARBURST_HOME": str(root / "home")}
        )
    try:
        while log.read_text().count('"synced"') < 2:
            if process.poll() is not None:
                raise RuntimeError(log.read_text())
            time.sleep(0.05)
        (url,) = (json.loads(line)["url"] for line in log.read_text().splitlines() if '"http"' in line)
        yield process, int(url.rpartition(":")[2])
    finally:
        process.terminate()
        process.wait(30)


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> int:
    """One question on an open connection; its status."""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.split(b":")[1]))
    return int(head.split()[1])


class Users:
    """So many streams that listen, and so many questions a second."""

    def __init__(self, port: int, job: str) -> None:
        self._port = port
        self._paths = cycle([path.format(job=job) for path in MIX])
        self.asked: list[float] = []
        self.statuses = Counter[int]()
        self.heard = 0

    async def listen(self) -> None:
        """One stream, until cancelled."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(b"GET /api/v1/watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            while piece := await reader.read(65536):
                self.heard += piece.count(b"event: decision")
        finally:
            writer.close()

    async def ask(self, per_s: float) -> None:
        """Questions at this rate, or as fast as they are answered."""
        due, begun = asyncio.Semaphore(0), asyncio.get_running_loop()

        async def asker() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                while True:
                    await due.acquire()
                    began = begun.time()
                    self.statuses[await ask(reader, writer, next(self._paths))] += 1
                    self.asked.append(begun.time() - began)
            finally:
                writer.close()

        askers = [asyncio.create_task(asker()) for _ in range(ASKERS)]
        try:
            while True:
                due.release()
                await asyncio.sleep(1 / per_s)
        finally:
            for task in askers:
                task.cancel()
            await asyncio.gather(*askers, return_exceptions=True)


def start_times(store: Store, count: int, pause_s: float) -> list[float]:
    """Seconds from submission to start of jobs that come one by one."""
    found = []
    for _ in range(count):
        (submission,) = submitting.read_sources(
            store, [ManifestText("bench", json.dumps(JOB))], "bench", submitter=OWNER
        )
        began = time.time()
        submitting.submit(store, [submission])
        while (row := queries.job(store, submission.job.id)).started_at is None:
            if time.time() - began > PATIENCE_S:
                raise TimeoutError(f"{row.id} is {row.phase}")
            time.sleep(0.02)
        found.append(row.started_at - began)
        time.sleep(pause_s)
    return found


async def under_load(
    port: int, store: Store, count: int, streams: int, per_s: float
) -> tuple[list[float], Users]:
    """The same while users listen and ask."""
    job = (await asyncio.to_thread(queries.jobs, store))[0].id
    users = Users(port, job)
    tasks = [asyncio.create_task(users.listen()) for _ in range(streams)]
    tasks.append(asyncio.create_task(users.ask(per_s)))
    await asyncio.sleep(3)
    found = await asyncio.to_thread(start_times, store, count, 0.3)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return found, users


def main() -> None:
    """Idle, loaded, idle again: one run, one ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=30, help="of each part")
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--per-second", type=float, default=86.0, help="questions")
    parser.add_argument("--small", action="store_true", help="5 jobs of each part, 100 streams")
    asked = parser.parse_args()
    if asked.small:
        asked.jobs, asked.streams = 5, 100
    with tempfile.TemporaryDirectory() as root, starburst(Path(root)) as (_, port):
        home = Home(Path(root) / "home")
        with Store.open(home.database) as store:
            start_times(store, 3, 0.3)  # what is imported late is imported now
            idle = start_times(store, asked.jobs, 0.3)
            began = time.time()
            loaded, users = asyncio.run(under_load(port, store, asked.jobs, asked.streams, asked.per_second))
            took = time.time() - began
            idle += start_times(store, asked.jobs, 0.3)
    for name, found in (("idle", idle), ("loaded", loaded)):
        print(
            f"submit to start, {name}: median {median(found):.3f} s, worst {max(found):.3f} s of {len(found)}"
        )
    ratio = median(loaded) / median(idle)
    print(f"ratio of medians: {ratio:.2f}")
    waits = sorted(users.asked)
    print(
        f"{len(waits) / took:.0f} answers/s of {asked.per_second:g} wanted, by status {dict(users.statuses)}"
    )
    print(
        f"an answer took: median {median(waits):.2f} s, 99 % less than {waits[int(0.99 * len(waits))]:.2f} s"
    )
    print(f"{asked.streams} streams heard {users.heard} decisions")
    sys.exit(beyond({"a job's start, loaded ÷ idle": ratio}, {"a job's start, loaded ÷ idle": MOST}))


if __name__ == "__main__":
    main()
