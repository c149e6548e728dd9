"""Chakra beside kube-scheduler: one control plane, nodes made through its API, the same pods for both.

Each scheduler is stopped (SIGSTOP) while its pods are made, so that all of them wait when it goes on; then
pods arrive one by one. Latencies are seen by a watch of this process. Prints a table in Markdown. Needs the
laboratory beside the checkout (../shared/kube).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from starburst.kube.api import Api
from starburst.kube.names import GANG
from starburst.kube.resources import NODES, PODS, Object
from tests.kube import chakra_lab
from tests.kube.lab import Lab, control_plane

#: GPUs and CPUs per pod, and how often: ten pods per node ask for 3/4 of its GPUs and half of its CPUs.
SIZES = {(0, 2): 40, (0, 8): 24, (1, 4): 25, (2, 8): 7, (4, 16): 3, (8, 32): 1}
GPUS_PER_NODE = 8
#: Pods per second when they come one by one: well below kube-scheduler's limit of 50 calls.
ARRIVALS_PER_S = 20.0
#: Wall seconds without a binding after which what is unbound stays so.
QUIET_S = 8.0
MAKERS = 16
#: kube-scheduler with its own limit of calls; and from so many pods on it is to be beaten without it, too.
LIMITED, MANY = "kube-scheduler", 10_000
#: Pods of one GPU each that begin together or not at all; on fewer nodes as many as nodes.
GANG_TASKS = 512


@dataclass(slots=True)
class Watched:
    """When each pod was seen bound, and where."""

    bound_at: dict[str, float] = field(default_factory=dict)
    node: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one scheduler."""

    pods: int
    bound: int
    #: From the moment it goes on to the last binding.
    seconds: float
    waited_s: list[float]
    arrived_s: list[float]
    nodes_in_use: int
    largest_block: int
    whole_nodes: int
    cpu_s: float
    #: Of the scheduler at its largest, and what it grew by with the pods that wait.
    peak_mib: float
    grown_mib: float
    #: From the last pod of a gang to the last of its bindings; None for a scheduler without gangs.
    gang_s: float | None
    gang_tasks: int

    def rows(self) -> Iterator[tuple[str, float, str]]:
        """Name, figure, format."""
        yield f"pods bound, of {self.pods:,} waiting", self.bound, ",.0f"
        yield "pods bound per second", self.bound / self.seconds, ",.0f"
        yield "latency while all wait, median, s", statistics.median(self.waited_s), ".2f"
        yield "latency while all wait, p99, s", p99(self.waited_s), ".2f"
        yield "latency of single arrivals, median, ms", 1e3 * statistics.median(self.arrived_s), ".1f"
        yield "latency of single arrivals, p99, ms", 1e3 * p99(self.arrived_s), ".1f"
        yield "nodes in use", self.nodes_in_use, ",.0f"
        yield "largest free block of GPUs on a node", self.largest_block, ".0f"
        yield f"nodes with all {GPUS_PER_NODE} GPUs free", self.whole_nodes, ",.0f"
        yield "CPU seconds of the scheduler", self.cpu_s, ".1f"
        yield "peak memory of the scheduler, MiB", self.peak_mib, ",.0f"
        yield "memory it grew by, MiB per 1,000 pods", 1000 * self.grown_mib / self.pods, ",.2f"
        if self.gang_s is not None:
            yield f"gang of {self.gang_tasks}: from its last pod to its last binding, s", self.gang_s, ".2f"


def main() -> None:
    """Measure both and print them side by side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--arrivals", type=int, default=200, help="pods that come one by one")
    parser.add_argument(
        "--skip-limited", action="store_true", help="not with kube-scheduler's limit of 50 calls per second"
    )
    parser.add_argument("--small", action="store_true", help="20 nodes, 200 pods: only to see that it runs")
    args = parser.parse_args()
    nodes, pods, arrivals = (20, 200, 40) if args.small else (args.nodes, args.pods, args.arrivals)
    try:
        with control_plane(scheduler=True) as lab:
            found = asyncio.run(measure(lab, nodes, pods, arrivals, skip_limited=args.skip_limited))
    except pytest.skip.Exception as nothing:
        print(f"Chakra beside kube-scheduler is not measured: {nothing}")
        return
    tell(nodes, pods, found)
    ours = found.pop("Chakra")
    for name, theirs in found.items():
        if name != LIMITED and pods < MANY:
            continue  # a fraction of a second says nothing
        assert ours.bound / ours.seconds >= theirs.bound / theirs.seconds, "Chakra binds fewer pods a second"
        assert ours.nodes_in_use <= theirs.nodes_in_use, "Chakra packs less tightly"


def tell(nodes: int, pods: int, found: dict[str, Figures]) -> None:
    """Figures side by side; × is Chakra over the column before."""
    ours = {name: figure for name, figure, _ in found["Chakra"].rows()}
    others = {name: figures for name, figures in found.items() if name != "Chakra"}
    titles = ["Chakra", *(title for name in others for title in (name, "×"))]
    print(f"\n| {nodes:,} nodes, {pods:,} pods | {' | '.join(titles)} |\n|{'---|' * (len(titles) + 1)}")
    theirs = [{name: figure for name, figure, _ in figures.rows()} for figures in others.values()]
    for name, figure, form in found["Chakra"].rows():
        cells = [f"{figure:{form}}"]
        for one in theirs:
            cells.append(f"{one[name]:{form}}" if name in one else "")
            cells.append(f"{ours[name] / one[name]:.2f}" if one.get(name) else "")
        print(f"| {name} | {' | '.join(cells)} |")


async def measure(
    lab: Lab, nodes: int, pods: int, arrivals: int, *, skip_limited: bool
) -> dict[str, Figures]:
    """kube-scheduler, the same without its limit of 50 calls per second, Chakra: one after the other."""
    found: dict[str, Figures] = {}
    async with await Api.connect(lab.kubeconfig) as api:
        await in_parallel(
            chakra_lab.make_node(api, f"node{number:04d}", gpus=GPUS_PER_NODE) for number in range(nodes)
        )
        assert lab.state is not None
        pid = int((lab.state / "sched.pid").read_text())
        if not skip_limited:
            found[LIMITED] = await one(api, "limited", "default-scheduler", pid, pods=pods, arrivals=arrivals)
            await chakra_lab.empty(api, "limited")
        command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
        os.kill(pid, signal.SIGTERM)
        limits = ("--kube-api-qps=10000", "--kube-api-burst=10000")
        with rerun([*command, *limits], lab.state) as again:
            await asyncio.sleep(5)
            found["kube-scheduler, no limit"] = await one(
                api, "unlimited", "default-scheduler", again, pods=pods, arrivals=arrivals
            )
        await chakra_lab.empty(api, "unlimited")
        log = Path(tempfile.gettempdir()) / f"starburst-bench-chakra-{os.getpid()}.log"
        with chakra_lab.chakra(lab, log, "--no-leader-elect") as process:
            await chakra_lab.until("Chakra is up", as_async(lambda: "up" in log.read_text()))
            await asyncio.sleep(2)
            found["Chakra"] = await one(
                api,
                "chakra",
                "chakra",
                process.pid,
                pods=pods,
                arrivals=arrivals,
                gang=min(GANG_TASKS, nodes),
            )
        log.unlink()
    return found


@contextmanager
def rerun(command: list[str], state: Path) -> Iterator[int]:
    """A part of the control plane, run once more; its pid."""
    with (state / "again.log").open("w") as log:
        started = subprocess.Popen(command, stdout=log, stderr=log, cwd=state / "pki")
    try:
        yield started.pid
    finally:
        started.kill()
        started.wait()


def as_async(question: Callable[[], bool]):  # type: ignore[no-untyped-def]
    """For `until`."""

    async def asked() -> bool:
        return question()

    return asked


async def one(
    api: Api, namespace: str, scheduler: str, pid: int, *, pods: int, arrivals: int, gang: int = 0
) -> Figures:
    """Figures of one scheduler, which is that process; `gang`: tasks of one that comes at the end."""
    await chakra_lab.make_namespace(api, namespace)
    draw = random.Random(7)
    sizes = draw.choices(list(SIZES), list(SIZES.values()), k=pods)
    cpu_before, before_mib = cpu_s(pid), memory_mib(pid, "VmRSS")
    async with watching(api, namespace) as seen:
        with stopped(pid):
            await make(api, namespace, scheduler, sizes)
        begin = time.monotonic()
        await quiet(seen, pods)
        waited = [at - begin for at in seen.bound_at.values()]
        spent_s = cpu_s(pid) - cpu_before
        in_use, blocks = packing(seen, dict(zip(map(pod_name, range(pods)), sizes, strict=True)))
        peak_mib = memory_mib(pid, "VmHWM")
        arrived = await arrive(api, namespace, scheduler, seen, arrivals)
        gang_s = await together(api, namespace, scheduler, seen, gang) if gang else None
    count = {node["metadata"]["name"] for node in await api.list(NODES)}
    free = [blocks.get(name, 0) for name in count]
    return Figures(
        pods=pods,
        bound=len(waited),
        seconds=max(waited),
        waited_s=waited,
        arrived_s=arrived,
        nodes_in_use=in_use,
        largest_block=GPUS_PER_NODE - min(free),
        whole_nodes=free.count(0),
        cpu_s=spent_s,
        peak_mib=peak_mib,
        grown_mib=max(0.0, peak_mib - before_mib),
        gang_s=gang_s,
        gang_tasks=gang,
    )


def packing(seen: Watched, sizes: dict[str, tuple[int, int]]) -> tuple[int, Counter[str]]:
    """Nodes with any pod, and GPUs taken by node."""
    taken: Counter[str] = Counter()
    for name, node in seen.node.items():
        taken[node] += sizes[name][0]
    return len(set(seen.node.values())), taken


def pod_name(number: int) -> str:
    """Of the pods that wait."""
    return f"pod-{number:05d}"


async def make(api: Api, namespace: str, scheduler: str, sizes: list[tuple[int, int]]) -> None:
    """The pods, in order, several at a time."""
    await in_parallel(
        api.create(PODS, namespace, manifest(pod_name(number), scheduler, gpus, cpus))
        for number, (gpus, cpus) in enumerate(sizes)
    )


async def in_parallel(calls: Iterator[Awaitable[object]]) -> None:
    """Make the calls in order, several at a time."""

    async def maker() -> None:
        for call in calls:
            await call

    await asyncio.gather(*(maker() for _ in range(MAKERS)))


async def together(api: Api, namespace: str, scheduler: str, seen: Watched, tasks: int) -> float:
    """Seconds from the answer to the creation of a gang's last pod until its last is seen bound."""
    names = [f"task-{rank:03d}" for rank in range(tasks)]
    keys = {GANG: f"gang/{tasks}"}
    pods = (chakra_lab.pod(name, gpus=1, cpu="1", keys=keys, schedulerName=scheduler) for name in names)
    await in_parallel(api.create(PODS, namespace, pod) for pod in pods)
    made_at = time.monotonic()
    await quiet(seen, len(seen.bound_at) + tasks)
    return max(seen.bound_at[name] for name in names) - made_at


def manifest(name: str, scheduler: str, gpus: int, cpus: int) -> Object:
    """One pod for one of the schedulers."""
    return chakra_lab.pod(name, gpus=gpus, cpu=str(cpus), schedulerName=scheduler)


async def arrive(api: Api, namespace: str, scheduler: str, seen: Watched, arrivals: int) -> list[float]:
    """Seconds from the answer to a pod's creation until it is seen bound, pods coming at a steady rate."""
    made_at: dict[str, float] = {}
    for number in range(arrivals):
        name = f"arrival-{number:05d}"
        await api.create(PODS, namespace, manifest(name, scheduler, 0, 1))
        made_at[name] = time.monotonic()
        await asyncio.sleep(1 / ARRIVALS_PER_S)
    await quiet(seen, len(seen.bound_at.keys() - made_at.keys()) + arrivals)
    return [max(0.0, seen.bound_at[name] - at) for name, at in made_at.items() if name in seen.bound_at]


async def quiet(seen: Watched, expected: int) -> None:
    """Until so many are bound, or nothing more is."""
    since, count = time.monotonic(), len(seen.bound_at)
    while len(seen.bound_at) < expected and time.monotonic() - since < QUIET_S:
        await asyncio.sleep(0.05)
        if len(seen.bound_at) != count:
            since, count = time.monotonic(), len(seen.bound_at)


@asynccontextmanager
async def watching(api: Api, namespace: str) -> AsyncIterator[Watched]:
    """Note when pods are bound."""
    seen = Watched()
    version = ""
    async for _, version in api.pages(PODS, namespace):  # noqa: B007
        pass

    async def follow() -> None:
        async for event in api.watch(PODS, version, namespace=namespace, last_s=3600):
            pod = event["object"]
            node = pod.get("spec", {}).get("nodeName")
            if event["type"] == "MODIFIED" and node and pod["metadata"]["name"] not in seen.node:
                seen.node[pod["metadata"]["name"]] = node
                seen.bound_at[pod["metadata"]["name"]] = time.monotonic()

    task = asyncio.ensure_future(follow())
    try:
        yield seen
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does not run for a while."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def cpu_s(pid: int) -> float:
    """User and system seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int, which: str) -> float:
    """A figure of /proc/PID/status in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{which}:"))) / 1024


def p99(values: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(values, n=100)[98]


if __name__ == "__main__":
    main()
