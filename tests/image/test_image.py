"""The image that deploy/Dockerfile builds, and both programs in it as the chart starts them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
import yaml

from starburst.kube import names
from starburst.kube.api import Api
from starburst.kube.resources import JOBS, PODS
from tests.deploy.render import objects
from tests.image.engine import IMAGE, Engine, engine
from tests.kube.chakra_lab import make_node
from tests.kube.deployed import WORK, Deployed, ask, free_port
from tests.kube.lab import control_plane
from tests.kube.live import applied_job

pytestmark = pytest.mark.image

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
PATIENCE_S = 90.0
#: What the translation below knows of a container's rights; anything else would be left out without a word.
RIGHTS = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """With the image in it."""
    with engine(tmp_path_factory.mktemp("engine")) as made:
        made.build(tmp_path_factory.mktemp("image"))
        yield made


def until(what: str, holds: Callable[[], Any], docker: Engine, container: str) -> Any:
    """Ask until the answer is not empty."""
    give_up = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < give_up, f"not within {PATIENCE_S:g} s: {what}\n{docker.logs(container)}"
        time.sleep(0.2)
    return found


def as_told(pod: Mapping[str, Any], mounts: Mapping[str, str]) -> list[str]:
    """Words for `docker run` of a pod of one container; `mounts` are its volumes, by name."""
    (container,) = pod["containers"]
    who, rights = pod["securityContext"], container["securityContext"]
    assert rights == RIGHTS
    words = ["--user", f"{who['runAsUser']}:{who['runAsGroup']}", "--read-only", "--cap-drop", "ALL"]
    words += ["--security-opt", "no-new-privileges"]
    words += ["--memory", container["resources"]["limits"]["memory"].removesuffix("i").lower()]
    for variable in container.get("env", ()):
        words += ["--env", f"{variable['name']}={variable['value']}"]
    for mount in container.get("volumeMounts", ()):
        readonly = ",readonly" if mount.get("readOnly") else ""
        words += ["--mount", f"{mounts[mount['name']]},target={mount['mountPath']}{readonly}"]
    return [*words, container["image"], *container["command"]]


def in_cluster(deployed: Deployed, account: str, root: Path) -> list[str]:
    """What a kubelet would give a container of this account."""
    told = yaml.safe_load(deployed.account(account).kubeconfig.read_text())
    cluster, user = told["clusters"][0]["cluster"], told["users"][0]["user"]
    address, files = urlsplit(cluster["server"]), root / account
    files.mkdir()
    (files / "token").write_text(user["token"])
    (files / "ca.crt").write_bytes(Path(cluster["certificate-authority"]).read_bytes())
    where = (f"KUBERNETES_SERVICE_HOST={address.hostname}", f"KUBERNETES_SERVICE_PORT={address.port}")
    mount = f"type=bind,source={files},target={ACCOUNT},readonly"
    return ["--network", "host", *(word for pair in where for word in ("--env", pair)), "--mount", mount]


def volumes(root: Path, config: str) -> dict[str, str]:
    """The chart's volumes: a claim of the group of its pod, a ConfigMap, an emptyDir."""
    for name in ("home", "config"):
        (root / name).mkdir()
    (root / "home").chmod(0o2777)  # in place of fsGroup
    (root / "config" / "starburst.yaml").write_text(config)
    bound = {name: f"type=bind,source={root / name}" for name in ("home", "config")}
    return {**bound, "tmp": "type=tmpfs"}


def test_it_has_both_programs_and_is_nobodys(docker: Engine) -> None:
    def said(*command: str) -> str:
        return docker.docker("run", "--rm", "--network", "none", IMAGE, *command)

    assert said("id", "-u") == "10001"
    assert said("starburst", "--version").startswith("starburst ")
    assert "--lease-namespace" in said("python", "-m", "chakra_plugin", "--help")
    assert said("python", "-c", "import kubernetes, psycopg, starburst.web, starburst.clouds.sky") == ""


def test_both_programs_of_the_chart_place_a_job_and_end_when_they_are_told_to(
    docker: Engine, tmp_path: Path
) -> None:
    port, metrics = free_port(), free_port()
    config = {
        "cluster": {"kind": "kubernetes", "namespace": WORK},
        "policy": {"offload_cpu_only": False},
        "cloud": {"offers": []},
        "http": {"port": port},
    }
    programs = {"starburst": {"config": config}, "chakra": {"metricsPort": metrics}}
    values = {"image": IMAGE, "namespaces": [WORK], **programs}
    chart = {(item["kind"], item["metadata"]["name"]): item for item in objects(values)}

    def pod(name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = chart["Deployment", name]["spec"]["template"]["spec"]
        return found

    with control_plane() as lab:
        deployed = Deployed(lab, tmp_path)
        ask(lab, lambda api: make_node(api, "node-1", gpus=8))
        mounts = volumes(tmp_path, chart["ConfigMap", "starburst"]["data"]["starburst.yaml"])
        for name in ("starburst-chakra", "starburst"):
            cluster = in_cluster(deployed, pod(name)["serviceAccountName"], tmp_path)
            docker.docker("run", "--detach", "--name", name, *cluster, *as_told(pod(name), mounts))
        page = f"http://127.0.0.1:{port}/healthz"
        until("it is up", lambda: _answer(page), docker, "starburst")
        until(
            "Chakra is up", lambda: _answer(f"http://127.0.0.1:{metrics}/metrics"), docker, "starburst-chakra"
        )

        async def apply(api: Api) -> None:
            await api.create(JOBS, WORK, applied_job("hello", "true", gpus=1))

        ask(lab, apply)
        job_id = until("it is taken in", lambda: ask(lab, _job_id), docker, "starburst")
        until("its pod is bound", lambda: ask(lab, _node), docker, "starburst-chakra")
        told = docker.docker("exec", "starburst", "starburst", "explain", job_id)
        assert "on node-1" in told, told
        for name in ("starburst", "starburst-chakra"):
            docker.docker("stop", "--time", "30", name, patience_s=60.0)
            ended = docker.docker("inspect", "--format", "{{.State.ExitCode}} {{.State.OOMKilled}}", name)
            assert ended == "0 false", docker.logs(name)


def _answer(url: str) -> bytes:
    try:
        with urlopen(url, timeout=5.0) as answer:
            found: bytes = answer.read()
            return found
    except OSError:
        return b""


async def _job_id(api: Api) -> str:
    found: str = (await api.get(JOBS, WORK, "hello"))["metadata"]["labels"].get(names.JOB, "")
    return found


async def _node(api: Api) -> str:
    pods = [pod for pod in await api.list(PODS, WORK) if pod["metadata"]["name"].startswith("hello")]
    return pods[0]["spec"].get("nodeName", "") if pods else ""
