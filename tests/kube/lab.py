"""A real Kubernetes to test against, made for the tests and ended by them.

Taken, in this order: the laboratory beside the checkout (STARBURST_SHARED or ../shared; kubelets need root),
the binaries of envtest (KUBEBUILDER_ASSETS: no controllers, no kubelets), kind. Nothing of a cluster that was
there before is ever touched.

KUBE_TEST_HOME names the directory whose bin/ has etcd, kube-apiserver, kube-controller-manager,
kube-scheduler and kubelet, of any version from 1.20 on; without it the laboratory unpacks its own, 1.20.
Tests ask the server for its version (`starburst.kube.features.detect`) and expect what that one does.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from starburst.kube.api import Api
from starburst.kube.objects import read_node
from starburst.kube.resources import NODES
from tests.references import SHARED

PREFIX = "starburst-kube-"
#: Wall seconds a cluster may take to come up.
UP_S = 180.0
#: Controllers of a cluster whose nodes are made through the API alone: nothing marks them NotReady.
NO_KUBELETS = "*,-nodeipam,-route,-cloud-node-lifecycle,-nodelifecycle"


@dataclass(frozen=True, slots=True)
class Lab:
    """A cluster that runs."""

    kubeconfig: Path
    #: Where the laboratory keeps its pids, keys and logs; None for other kinds of cluster.
    state: Path | None

    def restart_api_server(self) -> None:
        """kill -9, and the same again until it answers, as a supervisor would."""
        server = self.pid("kube-apiserver")
        command = Path(f"/proc/{server}/cmdline").read_bytes().decode().split("\0")[:-1]
        self._keep_first_process()
        os.kill(server, signal.SIGKILL)
        (self._state / "apiserver.command").write_text("\0".join(command))
        give_up = time.monotonic() + UP_S
        while self._find("kube-apiserver") == server or self._answers():
            assert time.monotonic() < give_up, "the API server does not end"
            time.sleep(0.02)
        self.revive_api_server()
        if not (self._state / "cluster.pid").exists():  # else all end with their namespace
            (self._state / "apiserver.pid").write_text(str(self.pid("kube-apiserver")))

    def revive_api_server(self) -> None:
        """Start one that was killed until it answers; on a loaded machine it may also end by itself later."""
        saved = self._state / "apiserver.command"
        if not saved.exists():
            return  # it was never killed
        command, etcd = saved.read_text().split("\0"), self.pid("etcd")
        # In the namespaces of its neighbour, so that it ends with the cluster.
        inside = ["setsid", "--fork", "nsenter", "-t", str(etcd), "-n", "-m", "-p", "--", *command]
        give_up = time.monotonic() + UP_S
        with (self._state / "apiserver.log").open("ab") as log:
            while not self._answers():
                assert time.monotonic() < give_up, (
                    f"the API server does not come back\n{self.api_server_log()}"
                )
                if self._find("kube-apiserver") is None:  # also if the port was not free yet
                    subprocess.run(inside, stdout=log, stderr=log, check=True)
                    time.sleep(0.5)
                time.sleep(0.1)

    def api_server_log(self) -> str:
        """The last lines of the API server's log."""
        return (self._state / "apiserver.log").read_text(errors="replace")[-3000:]

    def kill(self, program: str, node: str = "") -> Callable[[], None]:
        """kill -9 of a part of the cluster, or of one of a node; what is returned starts it again."""
        pid = self.pid(program, node)
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        env = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        place = os.readlink(f"/proc/{pid}/cwd")
        beside = self.pid("containerd", node) if node else self.pid("etcd")
        if beside == pid:
            beside = self.pid("kube-apiserver")
        self._keep_first_process()
        os.kill(pid, signal.SIGKILL)
        # In the namespaces of its neighbour, so that it ends with the cluster.
        inside = ["setsid", "--fork", "nsenter", "-t", str(beside), "-n", "-m", "-p", f"--wd={place}", "--"]

        def again() -> None:
            out = subprocess.DEVNULL
            subprocess.run([*inside, *command], env=env, stdout=out, stderr=out, check=True, timeout=20)

        return again

    def _keep_first_process(self) -> None:
        """Stop the first process of the namespace: it would end, and all with it, after its own children."""
        cluster = self._state / "cluster.pid"
        parent = f"PPid:\t{cluster.read_text().strip()}\n" if cluster.exists() else ""
        for status in Path("/proc").glob("[0-9]*/status") if parent else ():
            with suppress(OSError):
                if parent in status.read_text():
                    os.kill(int(status.parent.name), signal.SIGSTOP)

    def _answers(self) -> bool:
        found = re.search(r"https://([0-9.]+):([0-9]+)", self.kubeconfig.read_text())
        assert found is not None
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex((found[1], int(found[2]))) == 0

    @property
    def _state(self) -> Path:
        assert self.state is not None, "only the laboratory's own cluster can be broken"
        return self.state

    def pid(self, program: str, node: str = "") -> int:
        """Of a part of this cluster, or of one of its nodes, as this process sees it."""
        pid = self._find(program, node)
        if pid is None:
            raise LookupError(f"no {program} runs for {self.state}")
        return pid

    def _find(self, program: str, node: str = "") -> int | None:
        place = f"{self._state}/{node}/" if node else str(self._state)
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if words[0].endswith(f"/{program}") and any(place in word for word in words):
                return int(process.name)
        return None


@contextmanager
def control_plane(*, scheduler: bool = False) -> Iterator[Lab]:
    """etcd, API server and controllers, for nodes that are made through the API."""
    script = _script()
    if script is None:
        with _envtest_or_kind() as lab:
            yield lab
        return
    ports = {name: str(_free_port()) for name in ("AP", "EP", "KCMP", "SCHEDP")}
    with _laboratory("up", {**ports, "SCHED": str(int(scheduler)), "KCM_CONTROLLERS": NO_KUBELETS}) as lab:
        yield lab


@contextmanager
def kubelets(nodes: int = 2) -> Iterator[Lab]:
    """A cluster whose nodes truly run pods (image docker.io/local/busybox:1); one at a time per machine."""
    script = _script()
    if script is None or os.geteuid() != 0:
        skip("real kubelets need the laboratory beside the checkout, and root")
    with open(Path(tempfile.gettempdir()) / "starburst-kubelets.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _end_left_over(script)
        with _laboratory("node-up", {"NODES": str(nodes), "SCHED": "0"}) as lab:
            asyncio.run(_nodes_ready(lab, nodes))
            yield lab


def _end_left_over(script: Path) -> None:
    """Clusters of tests that were killed; nobody else can have one while we hold the lock."""
    for pid in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/cluster.pid"):
        env = {**os.environ, "KUBE_TEST_HOME": str(tools())}
        subprocess.run([script, "down", pid.parent], env=env, capture_output=True, timeout=60, check=False)
        shutil.rmtree(pid.parent, ignore_errors=True)


async def _nodes_ready(lab: Lab, nodes: int) -> None:
    """Kubelets register some seconds after the API server answers."""
    give_up = time.monotonic() + UP_S
    async with await Api.connect(lab.kubeconfig) as api:
        while sum(read_node(node).ready for node in await api.list(NODES)) < nodes:
            assert time.monotonic() < give_up, "the kubelets did not register"
            await asyncio.sleep(0.2)


@contextmanager
def _laboratory(how: str, env: Mapping[str, str]) -> Iterator[Lab]:
    script = _script()
    assert script is not None
    state = Path(tempfile.mkdtemp(prefix=PREFIX))
    given = {**os.environ, "KUBE_TEST_HOME": str(tools()), **env}
    log = state.parent / f"{state.name}.log"
    try:
        with _unpacking(), log.open("w") as out:
            subprocess.run([script, how, state], env=given, stdout=out, stderr=out, timeout=UP_S, check=True)
        yield Lab(state / "pki" / "admin.kubeconfig", state)
    except subprocess.SubprocessError as error:
        raise AssertionError(f"the laboratory did not come up: {error}\n{log.read_text()}") from error
    finally:
        subprocess.run([script, "down", state], env=given, capture_output=True, timeout=60, check=False)
        shutil.rmtree(state, ignore_errors=True)
        log.unlink(missing_ok=True)


@contextmanager
def _unpacking() -> Iterator[None]:
    """One process at a time starts a cluster: the first one unpacks the binaries."""
    tools().mkdir(parents=True, exist_ok=True)
    with (tools() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def skip(why: str) -> NoReturn:
    """Skip a test, or fail it where everything it needs is known to be there."""
    if "STARBURST_REQUIRE_SHARED" in os.environ:
        pytest.fail(why)
    pytest.skip(why)


def tools() -> Path:
    """Where binaries are unpacked once and kept."""
    named = os.environ.get("KUBE_TEST_HOME")
    return Path(named) if named else Path(tempfile.gettempdir()) / "starburst-kube-tools"


def _script() -> Path | None:
    script = SHARED / "kube" / "kube"
    return script if script.exists() else None


@contextmanager
def _envtest_or_kind() -> Iterator[Lab]:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets:
        with _envtest(Path(assets)) as lab:
            yield lab
    elif shutil.which("kind"):
        with _kind() as lab:
            yield lab
    else:
        skip("there is no Kubernetes to test against: no laboratory beside the checkout, no envtest, no kind")


@contextmanager
def _envtest(assets: Path) -> Iterator[Lab]:
    """etcd and API server of envtest."""
    with tempfile.TemporaryDirectory(prefix="starburst-envtest-") as directory:
        state, token, etcd, api = Path(directory), secrets.token_hex(16), _free_port(), _free_port()
        (state / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
        for command in (
            ["openssl", "genrsa", "-out", "sa.key", "2048"],
            ["openssl", "rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub"],
        ):
            subprocess.run(command, cwd=state, capture_output=True, timeout=60, check=True)
        peer = f"--listen-peer-urls=http://127.0.0.1:{_free_port()}"
        urls = [f"--{kind}-client-urls=http://127.0.0.1:{etcd}" for kind in ("listen", "advertise")]
        server = [
            str(assets / "kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={api}",
            f"--cert-dir={state}",
            f"--token-auth-file={state}/tokens.csv",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={state}/sa.key",
            f"--service-account-key-file={state}/sa.pub",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",
        ]
        kubeconfig = state / "kubeconfig"
        kubeconfig.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\n"
            "clusters: [{name: c, cluster: {server: "
            f'"https://127.0.0.1:{api}", insecure-skip-tls-verify: true' + "}}]\n"
            f"users: [{{name: u, user: {{token: {token}}}}}]\n"
            "contexts: [{name: x, context: {cluster: c, user: u}}]\n"
        )
        with (
            _process([str(assets / "etcd"), f"--data-dir={state}/etcd", *urls, peer]),
            _process(server),
        ):
            _wait_for_port(api)
            yield Lab(kubeconfig, None)


@contextmanager
def _kind() -> Iterator[Lab]:
    name = f"starburst-{secrets.token_hex(3)}"
    with tempfile.TemporaryDirectory(prefix="starburst-kind-") as directory:
        kubeconfig = Path(directory) / "kubeconfig"
        make = [
            "kind",
            "create",
            "cluster",
            "--name",
            name,
            "--kubeconfig",
            str(kubeconfig),
            "--wait",
            "120s",
        ]
        subprocess.run(make, capture_output=True, timeout=600, check=True)
        try:
            yield Lab(kubeconfig, None)
        finally:
            subprocess.run(
                ["kind", "delete", "cluster", "--name", name], capture_output=True, timeout=120, check=False
            )


@contextmanager
def _process(command: Sequence[str]) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _wait_for_port(port: int) -> None:
    give_up = time.monotonic() + UP_S
    while time.monotonic() < give_up:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail(f"nothing answers on port {port}")
