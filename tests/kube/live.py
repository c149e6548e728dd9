"""Starburst and Chakra as a user runs them: processes with logs, killed and started again by pid."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from starburst.kube.api import Api
from starburst.kube.resources import NODES, Object
from starburst.store.store import Store
from tests.deploy.render import DEPLOY
from tests.kube.kubectl import kubectl
from tests.kube.lab import Lab

T = TypeVar("T")

#: Busybox, which every kubelet of the laboratory has.
IMAGE = "docker.io/local/busybox:1"
PATIENCE_S = 180.0
#: A config under which all jobs stay on the cluster.
NO_CLOUD = """
policy:
  offload_cpu_only: false
cluster:
  kind: kubernetes
cloud:
  offers: []
"""


@dataclass
class Live:
    """A Starburst with a home of its own beside a cluster; processes by name."""

    lab: Lab
    root: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        """STARBURST_HOME."""
        return self.root / "home"

    @property
    def env(self) -> dict[str, str]:
        """As a user's shell has it."""
        return {**os.environ, "STARBURST_HOME": str(self.home), "KUBECONFIG": str(self.lab.kubeconfig)}

    def start(self, name: str, *command: str) -> None:
        """Start `python -m` something; its log is appended to a file."""
        with (self.root / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", *command], env=self.env, cwd=self.root, stdout=log, stderr=log
            )

    def up(self) -> None:
        """`starburst up`, until it has read its config."""
        before = self.lines("starburst", " up ")
        self.start("starburst", "starburst", "up", "--config", "starburst.yaml", "--log-format", "text")
        self.wait_for("starburst is up", lambda: self.lines("starburst", " up ") > before)

    def chakra(self) -> None:
        """Chakra, alone."""
        self.start("chakra", "chakra_plugin", "--no-leader-elect", "--metrics-port", "0")

    def kill(self, name: str) -> None:
        """kill -9"""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def configure(self, text: str) -> None:
        """Write starburst.yaml; the scheduler checks its state before each commit."""
        (self.root / "starburst.yaml").write_text(f"{text.rstrip()}\ndebug: {{validate: true}}\n")

    def run(self, *args: str, given: str | None = None) -> str:
        """A starburst command that must succeed; what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "starburst", *args],
            env=self.env,
            cwd=self.root,
            input=given,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == 0, f"starburst {' '.join(args)}: {done.stdout}{done.stderr}"
        return done.stdout

    def kubectl(self, *args: str, given: str | None = None) -> str:
        """A kubectl command that must succeed; what it prints."""
        done = subprocess.run(
            [kubectl(), *args],
            env=self.env,
            input=given,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == 0, f"kubectl {' '.join(args)}: {done.stdout}{done.stderr}\n{self.logs()}"
        return done.stdout

    def let_leave(self, namespace: str = "default", account: str = "default") -> None:
        """What the README has an operator do before jobs that people apply may leave for the cloud."""
        name = f"starburst-leave-{account}"
        self.kubectl("apply", "-f", str(DEPLOY / "leave.yaml"))
        self.kubectl("delete", "rolebinding", name, "-n", namespace, "--ignore-not-found")
        who = ("--clusterrole=starburst-leave", f"--serviceaccount={namespace}:{account}")
        self.kubectl("create", "rolebinding", name, "-n", namespace, *who)

    def apply(self, manifests: Sequence[Object]) -> None:
        """kubectl apply"""
        self.kubectl(
            "apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
        )

    @contextmanager
    def store(self) -> Iterator[Store]:
        """The store, read beside whoever writes it."""
        with Store.open(self.home / "starburst.db") as store:
            yield store

    def jobs(self) -> list[dict[str, Any]]:
        """`starburst status -o json`"""
        found: list[dict[str, Any]] = json.loads(self.run("status", "-o", "json"))
        return found

    def ask(self, question: Callable[[Api], Coroutine[Any, Any, T]]) -> T:
        """Put a question to the API server, repeated while it is being restarted."""

        async def asked() -> T:
            async with await Api.connect(self.lab.kubeconfig) as api:
                return await question(api)

        return asyncio.run(asked())

    def wait_for(self, what: str, holds: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
        """Until something holds; what is said about it and all logs if it never does."""
        give_up = time.monotonic() + patience_s
        while True:
            found = holds()
            if found:
                return found
            for name, process in self.processes.items():
                if process.poll() is not None:
                    pytest.fail(f"{name} ended with {process.returncode}\n{self.logs()}")
            if time.monotonic() > give_up:
                pytest.fail(f"not within {patience_s:g} s: {what}\n{self.logs()}")
            time.sleep(0.2)

    def lines(self, name: str, part: str) -> int:
        """How many lines of a log hold a text."""
        log = self.root / f"{name}.log"
        return sum(part in line for line in log.read_text().splitlines()) if log.exists() else 0

    def logs(self) -> str:
        """The ends of all logs."""
        return "\n".join(
            f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-60:])
            for path in sorted(self.root.glob("*.log"))
        )


@contextmanager
def live(lab: Lab, root: Path) -> Iterator[Live]:
    """Processes that end with the test."""
    running = Live(lab, root)
    try:
        yield running
    finally:
        for process in running.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in running.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def working(lab: Lab, root: Path) -> Iterator[Live]:
    """A Starburst and a Chakra beside two kubelets with 8 GPUs each; Jobs and pods go with the block."""
    root.chmod(0o755)
    give_gpus(lab, ["node0", "node1"], 8)
    with live(lab, root) as starburst:
        starburst.configure(NO_CLOUD)
        starburst.up()
        starburst.chakra()
        try:
            yield starburst
        finally:
            starburst.kubectl("delete", "jobs,pods", "--all", "--wait=false")


def give_gpus(lab: Lab, nodes: Sequence[str], gpus: int, kind: str = "Tesla-V100-SXM2-16GB") -> None:
    """Let kubelets believe that they have GPUs."""

    async def give() -> None:
        async with await Api.connect(lab.kubeconfig) as api:
            for name in nodes:
                amount = {"nvidia.com/gpu": str(gpus)}
                status = {"status": {"capacity": amount, "allocatable": amount}}
                await api.patch(NODES, "", name, status, sub="status")
                await api.patch(NODES, "", name, {"metadata": {"labels": {"nvidia.com/gpu.product": kind}}})

    asyncio.run(give())


def job_manifest(
    name: str, script: str, *, gpus: int = 0, keys: dict[str, str] | None = None, volume: Path | None = None
) -> Object:
    """A batch/v1 Job of one shell script that runs in a pod and on this host alike."""
    amounts: Object = {"cpu": "10m", "memory": "8Mi"}
    if gpus:
        amounts["nvidia.com/gpu"] = str(gpus)
    container: Object = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
        "resources": {"requests": amounts, "limits": {k: v for k, v in amounts.items() if k != "cpu"}},
    }
    spec: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 2,
        "containers": [container],
    }
    if volume is not None:
        container["volumeMounts"] = [{"name": "shared", "mountPath": str(volume)}]
        spec["volumes"] = [{"name": "shared", "hostPath": {"path": str(volume)}}]
    keys = keys or {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": {k: v for k, v in keys.items() if k == "starburst.io/queue"},
            "annotations": {k: v for k, v in keys.items() if k != "starburst.io/queue"},
        },
        "spec": {"backoffLimit": 0, "template": {"spec": spec}},
    }


def applied_job(name: str, script: str, *, gpus: int, volume: Path | None = None) -> Object:
    """A Job that is taken into the queue once it is applied."""
    keys = {"starburst.io/queue": "default", "starburst.io/cloud": "never"}
    manifest = job_manifest(name, script, gpus=gpus, keys=keys, volume=volume)
    manifest["spec"]["template"]["spec"]["schedulerName"] = "chakra"
    return manifest


def applied_pod(name: str, script: str, *, gpus: int, volume: Path | None = None) -> Object:
    """The same as a bare Pod."""
    manifest = applied_job(name, script, gpus=gpus, volume=volume)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": manifest["metadata"],
        "spec": manifest["spec"]["template"]["spec"],
    }
