"""Faults of the cluster's own parts: kubelets, networks, etcd, controllers, whole nodes; and a full disk."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.kube.chaos import LASTS_S, NODES, Chaos, uptime_s
from tests.kube.lab import Lab
from tests.kube.live import PATIENCE_S, give_gpus

#: Size of the file system of Starburst's home, bytes.
HOME_BYTES = 96 * 1024**2
CGROUPS = Path("/sys/fs/cgroup")


@contextmanager
def small_home(home: Path) -> Iterator[None]:
    """A home on a file system of its own, which can be filled."""
    home.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={HOME_BYTES}", "tmpfs", home], check=True, timeout=10
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", home], check=True, timeout=10)


def fill_home(chaos: Chaos) -> str:
    """The disk of Starburst's home is full for a while."""
    ballast = chaos.starburst.home / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            while file.write(bytes(1024**2)) == 1024**2:
                pass
    except OSError:
        pass  # it is full
    time.sleep(LASTS_S)
    ballast.unlink()
    return "home full"


def kill_kubelet(chaos: Chaos) -> str:
    """kill -9 of a kubelet, which is away for a while; its pods live on."""
    node = chaos.draw.choice(NODES)
    again = chaos.starburst.lab.kill("kubelet", node)
    time.sleep(LASTS_S)
    again()
    return f"kubelet of {node} killed"


def stop_kubelet(chaos: Chaos) -> str:
    """A kubelet that hangs for a while."""
    node = chaos.draw.choice(NODES)
    pid = chaos.starburst.lab.pid("kubelet", node)
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(2 * LASTS_S)
    finally:
        os.kill(pid, signal.SIGCONT)
    return f"kubelet of {node} stopped"


def silence_node(chaos: Chaos) -> str:
    """A node is cut off until it is NotReady; its pods live on."""
    node = chaos.draw.choice(NODES)
    with _cut_off(chaos.starburst.lab, node):
        _until(lambda: not _is_ready(chaos, node))
        time.sleep(LASTS_S)
    _until(lambda: _is_ready(chaos, node))
    return f"{node} NotReady"


def cut_off(chaos: Chaos) -> str:
    """A node is cut off for a moment."""
    node = chaos.draw.choice(NODES)
    with _cut_off(chaos.starburst.lab, node):
        time.sleep(LASTS_S)
    return f"{node} cut off"


def lose_node(chaos: Chaos) -> str:
    """A node dies with all that runs on it, and is deleted; it comes back empty, under its name."""
    node = chaos.draw.choice(NODES)
    began_s = uptime_s()
    again = chaos.starburst.lab.kill("kubelet", node)
    for processes in CGROUPS.glob(f"*/k8s-{node}/**/cgroup.procs"):
        for pid in processes.read_text().split():
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(int(pid), signal.SIGKILL)
    chaos.kills.append((began_s - 1.0, uptime_s()))
    chaos.kubectl("delete", "node", node, "--wait=false", "--ignore-not-found")
    time.sleep(LASTS_S)
    again()
    _until(lambda: _is_ready(chaos, node))
    give_gpus(chaos.starburst.lab, [node], 8)
    return f"{node} lost, deleted, and back"


def kill_controllers(chaos: Chaos) -> str:
    """kill -9 of the controller-manager, which is away for a while."""
    again = chaos.starburst.lab.kill("kube-controller-manager")
    time.sleep(LASTS_S)
    again()
    return "controller-manager killed"


def kill_etcd(chaos: Chaos) -> str:
    """kill -9 of etcd, which is away for a while."""
    again = chaos.starburst.lab.kill("etcd")
    time.sleep(chaos.draw.uniform(0.0, LASTS_S))
    again()
    return "etcd killed"


def recreate(chaos: Chaos) -> str:
    """Somebody deletes a Job and applies it again under its name: another job, and the first is cancelled."""
    live = {name.partition("/")[2] for name in chaos.kubectl("get", "jobs", "-o", "name").split()}
    jobs = [job for job in chaos.jobs if job.how == "Job" and job.name in live]
    fresh = [job for job in jobs if job.name not in chaos.recreated]
    if not fresh:
        return "nothing recreated"
    job = chaos.draw.choice(fresh)
    chaos.recreated.add(job.name)
    chaos.kubectl("delete", "job", job.name)
    chaos.apply(job.manifest)
    return f"{job.name} deleted and created again"


DEEP_FAULTS: Sequence[Callable[[Chaos], str]] = (
    kill_kubelet,
    stop_kubelet,
    cut_off,
    silence_node,
    lose_node,
    kill_controllers,
    kill_etcd,
    recreate,
    fill_home,
)


@contextmanager
def _cut_off(lab: Lab, node: str) -> Iterator[None]:
    wire = f"v{node.removeprefix('node')}"
    command = ["nsenter", "-t", str(lab.pid("etcd")), "-n", "ip", "link", "set", wire]
    subprocess.run([*command, "down"], check=True, timeout=10)
    try:
        yield
    finally:
        subprocess.run([*command, "up"], check=True, timeout=10)


def _is_ready(chaos: Chaos, node: str) -> bool:
    path = '-o=jsonpath={.status.conditions[?(@.type=="Ready")].status}'
    return chaos.kubectl("get", "node", node, "--ignore-not-found", path) == "True"


def _until(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 2 * PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up, "the node does not change"
        time.sleep(1.0)
