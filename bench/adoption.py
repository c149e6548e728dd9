"""How fast applied Jobs are taken in, and how long a submitted job waits for its start meanwhile.

A real `starburst up` and a real `chakra` beside a fake API server in a process of its own (tests/kube_unit),
so the figures hold no work of etcd; all of them share the machine. The measure beside it is a bare client
that writes the same marks to as many Jobs of that server, as fast as it can: what any adoption has to do. It
fails where a ratio to that, or to the quiet scheduler before, is above `MOST`.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import yaml

from bench.growth import beyond
from starburst.app.config.home import Home
from starburst.app.jobs import submitting
from starburst.app.reading.sources import ManifestText
from starburst.domain.job import OWNER
from starburst.kube import names
from starburst.kube.api import Api
from starburst.kube.resources import JOBS, NAMESPACES, NODES, Object
from starburst.store.store import Store
from tests.kube_unit.server import FakeServer, kubeconfig_of

#: Calls of the bare client at a time.
AT_ONCE = 16
#: Wall seconds between submitted jobs, between looks, and after which a measurement is given up.
PAUSE_S, POLL_S, PATIENCE_S = 1.0, 0.05, 900.0
CONFIG: Object = {"cluster": {"kind": "kubernetes"}, "http": {"port": 0}}
#: What a client that does nothing else may be faster by, and how much later a submitted job may start.
MOST = {"bare client ÷ adoption": 20.0, "a job's start, beside ÷ before": 10.0}
#: Of 200 objects, most of the time is what passes before the first is looked at.
MOST_SMALL = {**MOST, "bare client ÷ adoption": 100.0}
CPU_TICKS = os.sysconf("SC_CLK_TCK")


def a_job(name: str, queue: str = "") -> Object:
    """A Job with what people write into theirs, and what kubectl and the server add."""
    container: Object = {
        "name": "main",
        "image": "registry.example.org/team/train:1",
        "command": ["python", "train.py", f"--run={name}"],
        "env": [{"name": f"SETTING_{number}", "value": "x" * 20} for number in range(8)],
        "resources": {"limits": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "8"}},
    }
    pod = {"schedulerName": names.CHAKRA, "restartPolicy": "Never", "containers": [container]}
    spec: Object = {"backoffLimit": 0, "template": {"spec": pod}}
    metadata: Object = {"name": name, "namespace": "default", "labels": {}, "annotations": {}}
    metadata["annotations"]["starburst.io/cloud"] = "never"
    if queue:
        metadata["labels"] = {names.QUEUE: queue}
        applied = json.dumps({"metadata": metadata, "spec": spec})
        metadata["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = applied
        metadata["managedFields"] = [{"manager": "kubectl", "fieldsV1": _fields(spec)}]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _fields(value: object) -> object:
    """As the server writes down whose fields are whose."""
    return {f"f:{key}": _fields(inner) for key, inner in value.items()} if isinstance(value, dict) else {}


# The server, in its own process: told on its standard input, answers with one line each.


async def serve() -> None:
    """A fake API server that makes Jobs when it is told to."""
    async with FakeServer("31") as server:
        status: dict[str, object] = {"conditions": [{"type": "Ready", "status": "True"}]}
        full = {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "8", "pods": "110"}
        node = {"metadata": {"name": "busy"}, "status": {**status, "allocatable": {**full, "cpu": "1"}}}
        server.add(NODES, node)
        small = {"cpu": "64", "memory": "64Gi", "pods": "1000"}
        server.add(NODES, {"metadata": {"name": "small"}, "status": {**status, "allocatable": small}})
        server.add(NAMESPACES, {"metadata": {"name": "default"}})
        print(server.url, flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            what, _, number = line.strip().partition(" ")
            if what == "make":
                for each in range(int(number)):
                    server.add(JOBS, a_job(f"job-{each}", "bench"))
            jobs = server.all(JOBS)
            server.asked.clear()
            marked = [job["metadata"]["name"] for job in jobs if names.JOB in job["metadata"]["labels"]]
            started = [name for name in marked if name.startswith("probe-")]
            taken = sum(name.startswith("job-") for name in marked)
            print(json.dumps({"taken": taken, "started": started}), flush=True)


class Server:
    """The fake server as the bench sees it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.url = self._line().strip()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def tell(self, what: str) -> dict[str, list[str] | int]:
        """What came of it: how many Jobs are marked, and which probes were started."""
        assert self._process.stdin is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        found: dict[str, list[str] | int] = json.loads(self._line())
        return found


@contextmanager
def fake_server() -> Iterator[Server]:
    """It ends with the block."""
    command = [sys.executable, "-m", "bench.adoption", "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Server(process)
        finally:
            process.terminate()


@dataclass(slots=True)
class Programs:
    """`starburst up` and `chakra` on one server."""

    root: Path
    url: str
    pids: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def running(self, name: str, *command: str) -> Iterator[None]:
        """Start one of them; until its log says that it works."""
        log = self.root / f"{name}.log"
        env = {**os.environ, "STARBURST_HOME": str(self.root / "home"), "KUBECONFIG": str(self.root / "kube")}
        before = self.synced(name)
        with log.open("ab") as out:
            process = subprocess.Popen([sys.executable, "-m", *command], stderr=out, stdout=out, env=env)
        self.pids[name] = process.pid
        try:
            until(lambda: self.synced(name) > before or process.poll() is not None)
            assert process.poll() is None, log.read_text()[-2000:]
            yield
        finally:
            process.terminate()
            process.wait(60)

    def synced(self, name: str) -> int:
        """How often it has listed everything."""
        log = self.root / f"{name}.log"
        return log.read_text().count('"site": "cluster"' if name == "up" else '"up"') if log.exists() else 0

    def cpu_s(self, name: str) -> float:
        """CPU seconds so far, without its workers."""
        words = Path(f"/proc/{self.pids[name]}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / CPU_TICKS

    def mib(self) -> float:
        """Peak memory of both, MiB."""
        texts = [Path(f"/proc/{pid}/status").read_text() for pid in self.pids.values()]
        return sum(int(text.partition("VmHWM:")[2].split()[0]) for text in texts) / 1024


def until(holds: Callable[[], bool], pause_s: float = 0.1) -> None:
    """Wait for it."""
    give_up = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > give_up:
            raise RuntimeError(f"not within {PATIENCE_S:g} s")
        time.sleep(pause_s)


async def bare(url: str, jobs: int) -> float:
    """Marks per second of a client that does nothing else."""
    slots = asyncio.Semaphore(AT_ONCE)
    body = {"metadata": {"labels": {names.JOB: "x", names.CONTROLLER: "y"}}}

    async def one(api: Api, name: str) -> None:
        async with slots:
            await api.patch(JOBS, "default", name, body)

    async with await Api.connect(Path(url)) as api:
        for number in range(jobs):
            await api.create(JOBS, "default", a_job(f"bare-{number}"))
        began = time.perf_counter()
        await asyncio.gather(*(one(api, f"bare-{number}") for number in range(jobs)))
        return jobs / (time.perf_counter() - began)


def probe(root: Path, server: Server, number: int) -> float:
    """Seconds from a submission until its Job is in the cluster."""
    job = a_job(f"probe-{number}")
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "10m"}}
    with Store.open(Home(root / "home").database) as store:
        text = ManifestText("probe", yaml.safe_dump(job))
        began = time.perf_counter()
        submitting.submit(store, submitting.read_sources(store, [text], "bench", submitter=OWNER))
    before = began
    name = f"probe-{number}-"
    until(lambda: any(name in each for each in server.tell("look")["started"]), 0.05)  # type: ignore[union-attr]
    return time.perf_counter() - before


def measure(root: Path, server: Server, jobs: int) -> tuple[list[tuple[str, str]], dict[str, float]]:
    """Figures by name, and the ratios that are judged."""
    kubeconfig = root / "kube"
    kubeconfig.write_text(json.dumps(kubeconfig_of(server.url)))
    (root / "starburst.yaml").write_text(yaml.safe_dump(CONFIG))
    programs = Programs(root, server.url)
    up = ("starburst", "up", "--config", str(root / "starburst.yaml"), "--log-format", "json")
    alone = asyncio.run(bare(str(kubeconfig), min(jobs, 1000)))
    with programs.running("chakra", "chakra_plugin", "--no-leader-elect", "--log-format", "json"):
        with programs.running("up", *up):
            quiet = [probe(root, server, number) for number in range(3)]
            cpu_s, began, beside = programs.cpu_s("up"), time.perf_counter(), list[float]()
            server.tell(f"make {jobs}")
            number = 10
            next_probe = began
            while server.tell("look")["taken"] < jobs:  # type: ignore[operator]
                if time.perf_counter() >= next_probe:
                    beside.append(probe(root, server, number))
                    number += 1
                    next_probe = time.perf_counter() + PAUSE_S
                time.sleep(POLL_S)
            took_s, cpu_s = time.perf_counter() - began, programs.cpu_s("up") - cpu_s
            memory = programs.mib()
        began = time.perf_counter()
        with programs.running("up", *up):
            again_s = time.perf_counter() - began
    rows = [
        ("taken in, objects/s", f"{jobs / took_s:,.0f}"),
        ("a bare client that only marks, objects/s", f"{alone:,.0f}"),
        ("adoption ÷ bare client", f"{jobs / took_s / alone:.2f}"),
        (
            "CPU of `up` per object, ms, the writing of events and conditions in it",
            f"{1e3 * cpu_s / jobs:.1f}",
        ),
        ("a submitted job starts after, median, ms, before", f"{1e3 * median(quiet):.0f}"),
        ("… beside the adoption, median, ms", f"{1e3 * median(beside or [0.0]):.0f}"),
        ("… longest, ms", f"{1e3 * max(beside or [0.0]):.0f}"),
        ("peak memory of `up` and `chakra`, MiB", f"{memory:.0f}"),
        ("restart until synced, s", f"{again_s:.1f}"),
    ]
    return rows, {
        "bare client ÷ adoption": alone * took_s / jobs,
        "a job's start, beside ÷ before": median(beside or quiet) / median(quiet),
    }


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--small", action="store_true", help="200 Jobs: only to see that it runs")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        asyncio.run(serve())
        return
    jobs = 200 if args.small else args.jobs
    with tempfile.TemporaryDirectory(prefix="starburst-adoption-") as directory, fake_server() as server:
        rows, ratios = measure(Path(directory), server, jobs)
    print(f"\n| {jobs:,} applied Jobs | |\n|---|---|")
    for name, figure in rows:
        print(f"| {name} | {figure} |")
    sys.exit(beyond(ratios, MOST_SMALL if args.small else MOST))


if __name__ == "__main__":
    main()
