"""A Ray cluster of two nodes on this machine, started for the tests and ended by them."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.kube.lab import skip

#: Seconds in which a node comes up or goes, on a loaded machine.
UP_S, DOWN_S = 180.0, 60.0
OBJECTS = 80_000_000


@contextmanager
def two_nodes() -> Iterator[str]:
    """The address of the cluster for Ray's client; one core each. Skips the test without Ray."""
    if find_spec("ray") is None:
        skip("Ray is not installed: make ray")
    gcs, client = _free_port(), _free_port()
    head = ["--head", f"--port={gcs}", f"--ray-client-server-port={client}", "--include-dashboard=false"]
    # Ray's sockets have long names below this directory.
    root = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    try:
        with ExitStack() as stack:
            stack.enter_context(_node(root, "head", [*head, f"--temp-dir={root}"]))
            _wait_for(gcs)
            stack.enter_context(_node(root, "other", [f"--address=127.0.0.1:{gcs}"]))
            _wait_for(client)
            yield f"ray://127.0.0.1:{client}"
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def _node(root: Path, name: str, options: list[str]) -> Iterator[None]:
    """A node whose processes end with it."""
    fixed = ["--block", "--num-cpus=1", "--disable-usage-stats", "--node-ip-address=127.0.0.1"]
    fixed.append(f"--object-store-memory={OBJECTS}")
    agent = f"--dashboard-agent-listen-port={_free_port()}"
    command = [str(Path(sys.executable).with_name("ray")), "start", *options, *fixed, agent]
    with (root / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield
        assert process.poll() is None, (root / f"{name}.log").read_text()[-3000:]
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(DOWN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(port: int) -> None:
    """Until something listens at a port."""
    give_up = time.monotonic() + UP_S
    while True:
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < give_up, f"nothing listens at port {port}"
        time.sleep(0.2)


def _free_port() -> int:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
