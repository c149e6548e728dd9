"""A pod, which shares no disk with Starburst, says by HTTP how far it is, and `explain` when it will end."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from starburst.kube.resources import PODS
from tests.kube.lab import Lab
from tests.kube.live import Live, job_manifest, live

CONFIG = """
policy:
  offload_cpu_only: false
cluster:
  kind: kubernetes
cloud:
  offers: []
http:
  host: {host}
  port: {port}
  report_url: http://{host}:{port}
"""
#: This machine's Python and packages, which a node of the laboratory sees as well.
LOOP = f"""
import itertools, sys, time
sys.path[:0] = [{str(Path(__file__).parents[2])!r}]
from starburst import iterator
iterator.WINDOW_S = 0.5
for _ in iterator.watch(itertools.repeat(0), total=10**6):
    time.sleep(0.001)
"""


@pytest.fixture
def running(two_kubelets: Lab, tmp_path: Path) -> Iterator[Live]:
    tmp_path.chmod(0o755)
    with live(two_kubelets, tmp_path) as starburst:
        yield starburst


def test_a_pod_says_how_far_it_is_and_may_do_nothing_else(running: Live) -> None:
    host = seen_from(running.lab)
    with socket.create_server((host, 0)) as probe:
        port = probe.getsockname()[1]
    running.configure(CONFIG.format(host=host, port=port))
    running.up()  # at an address that others reach, and without a token
    running.chakra()
    job = job_manifest("train", "")
    spec = job["spec"]["template"]["spec"]
    spec["hostNetwork"] = True  # pods of the laboratory's own network have no way back from this machine
    job["metadata"]["annotations"]["starburst.io/cloud"] = "never"
    (container,) = spec["containers"]
    container["command"] = ["chroot", "/host", sys.executable, "-c", LOOP]
    container["volumeMounts"] = [{"name": "machine", "mountPath": "/host"}]
    container["resources"]["limits"] = {"memory": "128Mi"}
    spec["volumes"] = [{"name": "machine", "hostPath": {"path": "/"}}]
    (running.root / "train.yaml").write_text(json.dumps(job))
    job_id = running.run("submit", "train.yaml", "-o", "name").strip().removeprefix("job/")

    def explained() -> str:
        found: str = json.loads(running.run("explain", job_id, "-o", "json"))["explanation"]
        return found

    running.wait_for("it says when it ends", lambda: "by its own account until about" in explained())
    (pod,) = running.ask(lambda api: api.list(PODS, "default", f"starburst.io/job={job_id}"))
    env = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
    where = f"http://{host}:{port}/api/v1/jobs/{job_id}"
    assert env["STARBURST_REPORT"] == f"{where}/attempts/1/progress"
    for method, url in (("GET", where), ("POST", f"{where}/cancel"), ("GET", f"http://{host}:{port}/")):
        headers = {"Authorization": f"Bearer {env['STARBURST_REPORT_TOKEN']}"}
        assert httpx.request(method, url, headers=headers).status_code == 401
    running.run("cancel", job_id)
    running.wait_for("it is over", lambda: [job["phase"] for job in running.jobs()] == ["cancelled"])


def seen_from(lab: Lab) -> str:
    """The address that this machine has in the cluster's network."""
    server = re.search(r"https://([0-9.]+):([0-9]+)", lab.kubeconfig.read_text())
    assert server is not None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((server[1], int(server[2])))  # sends nothing
        return str(probe.getsockname()[0])
