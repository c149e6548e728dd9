"""Chakra's decisions and memory at 5,000 nodes and 50,000 pending pods, without an API server.

Nodes and pods come as a watch brings them, as JSON; the planner then decides in cycles as large as the
scheduler's own, and each binding is told back. Then single pods arrive, and a gang of 512. Times are CPU
time. Prints a table beside a tenth of nodes and pods; fails where the time for a pod is over 3 times that.
`bench/chakra.py` is the same with real servers, on fewer nodes.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import sys
import time
from collections.abc import Callable
from math import inf
from pathlib import Path

from bench.chakra import GPUS_PER_NODE, SIZES
from bench.growth import report
from chakra_plugin.scheduler import AHEAD
from chakra_plugin.scheduling.cycle import SchedulerOptions
from chakra_plugin.scheduling.planner import Planner
from starburst.kube import names
from starburst.kube.objects import read_node, read_pod
from starburst.kube.resources import Object

PODS_PER_NODE, GANG, SINGLES = 10, 512, 200
#: What the time for a pod may be of that at a tenth of the nodes and pods.
GROWS = 3.0
PAGE = 4096


def node(number: int) -> Object:
    """A node as the API server has it."""
    amounts = {"cpu": "96", "memory": "768Gi", "pods": "110", "nvidia.com/gpu": str(GPUS_PER_NODE)}
    status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    labels = {"kubernetes.io/hostname": f"node-{number}", "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    return {"metadata": {"name": f"node-{number}", "uid": f"n-{number}", "labels": labels}, "status": status}


def pod(name: str, gpus: int, cpus: int, gang: str = "") -> Object:
    """A pending pod as the API server has it."""
    amounts = {"cpu": str(cpus), "memory": f"{4 * cpus}Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    container = {"name": "main", "image": "registry/train:1", "resources": {"requests": amounts}}
    annotations = {names.GANG: gang} if gang else {}
    metadata = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "annotations": annotations}
    spec = {"schedulerName": "chakra", "containers": [container], "priority": 0}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def measure(nodes: int) -> dict[str, float]:
    """Figures for so many nodes and ten times as many pods."""
    planner, draw = Planner(SchedulerOptions()), random.Random(1)
    sizes = draw.choices(list(SIZES), list(SIZES.values()), k=nodes * PODS_PER_NODE)
    for number in range(nodes):
        planner.state.node_changed(None, read_node(node(number)))
    gc.collect()
    before = resident_mib()

    def fill() -> None:
        for number, (gpus, cpus) in enumerate(sizes):
            add(planner, pod(f"pod-{number}", gpus, cpus))

    fill_s = cpu_s(fill)
    gc.collect()
    memory = resident_mib() - before
    decide_s = cpu_s(lambda: decide(planner))
    left = len(planner.state.queue.entries)
    singles = [cpu_s(lambda i=i: single(planner, i)) for i in range(SINGLES)]  # type: ignore[misc]
    gang = [pod(f"gang-{i}", 1, 1, f"gang/{GANG}") for i in range(GANG)]
    gang_s = cpu_s(lambda: arrive(planner, gang))
    return {
        "nodes": nodes,
        "pods that wait": len(sizes),
        "of these bound": len(sizes) - left,
        "MiB per 1,000 pods that wait": 1000 * memory / len(sizes),
        "taking in, ms a pod": 1e3 * fill_s / len(sizes),
        "deciding, ms a pod": 1e3 * decide_s / len(sizes),
        "decided a CPU second": len(sizes) / decide_s,
        "single arrival, median ms a pod": 1e3 * statistics.median(singles),
        f"gang of {GANG}, s": gang_s,
        "gang bound": GANG - (len(planner.state.queue.entries) - left),
    }


def add(planner: Planner, found: Object) -> None:
    """A pod is new."""
    planner.state.pod_changed(None, read_pod(found), 1.0)


def decide(planner: Planner) -> None:
    """Cycles until nothing more fits; each binding is told back at once."""
    while binds := planner.plan(1.0, AHEAD).binds:
        for bind in binds:
            planner.state.bound(bind)


def arrive(planner: Planner, pods: list[Object]) -> None:
    """These pods arrive and are decided."""
    for found in pods:
        add(planner, found)
    decide(planner)


def single(planner: Planner, number: int) -> None:
    """One small pod arrives and is decided."""
    arrive(planner, [pod(f"single-{number}", 0, 1)])


def cpu_s(do: Callable[[], object]) -> float:
    """CPU seconds it takes."""
    begin = time.process_time()
    do()
    return time.process_time() - begin


def resident_mib() -> float:
    """Memory of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20


def limit(name: str, _value: float) -> float:
    """What a pod costs may grow by so much."""
    return GROWS if name.endswith("a pod") else inf


def main() -> None:
    """Measure --nodes and a tenth of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--small", action="store_true", help="3,000 nodes: only to see that it runs")
    args = parser.parse_args()
    nodes = 3000 if args.small else args.nodes
    tenth, whole = measure(nodes // 10), measure(nodes)
    sys.exit(report(nodes, tenth, whole, limit))


if __name__ == "__main__":
    main()
