"""`starburst doctor` about a Kubernetes cluster: a line for each thing that is needed, with its remedy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starburst.app.config import Config
from starburst.app.config.sites import KubernetesConfig
from starburst.app.doctor.cluster_checks import CLAIMS, cluster_checks
from starburst.app.doctor.doctor import DoctorCheck
from starburst.clusters.kubernetes import leadership
from starburst.kube.resources import LEASES, NAMESPACES, NODES, PODS
from tests.kube_unit.server import FakeServer

Change = Callable[[FakeServer], Any]

pytestmark = pytest.mark.usefixtures("home")  # its store is asked for this scheduler's identity


def diagnose(
    tmp_path: Path, *changes: Change, minor: str = "20", whole: bool = True, **config: Any
) -> list[DoctorCheck]:
    """What is found at a cluster in good order after these changes."""

    async def look() -> list[DoctorCheck]:
        async with FakeServer(minor) as server:
            server.add(NAMESPACES, {"metadata": {"name": "default"}})
            server.add(NODES, gpu_node("n0", label="NVIDIA-A100-SXM4-80GB"))
            server.add(LEASES, lease("starburst-system"))
            for change in changes:
                change(server)
            cluster = KubernetesConfig(kubeconfig=str(server.kubeconfig(tmp_path / "kubeconfig")), **config)

            async def renew(_: float) -> None:
                spec = {"renewTime": f"2026-01-01T00:00:{len(server.asked) % 60:02}.000000Z"}
                for item in server.all(LEASES):
                    if item["spec"].get("holderIdentity") == "chakra-0":
                        server.change(LEASES, item["metadata"]["namespace"], "chakra", {"spec": spec})

            return await cluster_checks(Config(cluster=cluster), whole=whole, sleep=renew)

    return asyncio.run(look())


def lease(namespace: str, holder: str = "chakra-0") -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2025-01-01T00:00:00.000000Z"}
    return {"metadata": {"namespace": namespace, "name": "chakra"}, "spec": spec}


def gpu_node(name: str, *, label: str = "", ready: bool = True) -> dict[str, Any]:
    labels = {"nvidia.com/gpu.product": label} if label else {}
    conditions = [{"type": "Ready", "status": str(ready)}]
    allocatable = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "8"}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": allocatable, "conditions": conditions},
    }


def claim(*modes: str) -> Change:
    item = {"metadata": {"namespace": "default", "name": "ckpt"}, "spec": {"accessModes": list(modes)}}
    return lambda server: server.add(CLAIMS, item)


ON_CLAIM = {"checkpoints": {"persistentVolumeClaim": {"claimName": "ckpt"}}}


def of(checks: list[DoctorCheck], name: str) -> tuple[str, str]:
    """Status and line of one check."""
    (check,) = [check for check in checks if check.check == name]
    return check.status.value, check.line.removeprefix(f"{name}: ")


def test_a_cluster_in_good_order_is_found_to_be_so(tmp_path: Path) -> None:
    checks = diagnose(tmp_path, claim("ReadWriteMany"), **ON_CLAIM)
    assert [(check.check, check.status.value, check.mend) for check in checks] == [
        (name, "ok", "")
        for name in (
            "kubeconfig", "server", "version", "permissions", "chakra", "lease", "nodes", "namespace",
            "pod-security", "leaving", "checkpoints",
        )
    ]  # fmt: skip
    assert of(checks, "chakra")[1] == "chakra-0 leads, in starburst-system"
    assert of(checks, "nodes")[1] == "1, 1 Ready, 8 GPUs"


def test_gpus_that_another_scheduler_gives_away_are_told_with_what_follows(tmp_path: Path) -> None:
    def bound(name: str, scheduler: str, gpus: str, phase: str = "Running") -> Change:
        container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
        spec = {"nodeName": "n0", "schedulerName": scheduler, "containers": [container]}
        metadata = {"namespace": "other", "name": name}
        return lambda server: server.add(
            PODS, {"metadata": metadata, "spec": spec, "status": {"phase": phase}}
        )

    harmless = bound("a", "chakra", "1"), bound("b", "default-scheduler", "1", "Succeeded")
    assert "schedulers" not in [check.check for check in diagnose(tmp_path, *harmless)]
    status, line = of(diagnose(tmp_path, *harmless, bound("c", "default-scheduler", "2")), "schedulers")
    assert status == "warn"
    assert line.startswith("on n0 pods with GPUs are bound by default-scheduler: other/c; ")
    assert "OutOf" in line


def test_a_start_looks_at_what_it_must_have_only(tmp_path: Path) -> None:
    checks = [check.check for check in diagnose(tmp_path, whole=False)]
    assert checks == ["kubeconfig", "server", "version", "permissions", "namespace", "checkpoints"]


@pytest.mark.parametrize(
    ("minor", "status", "line"),
    [
        ("19", "fail", "v1.19; Starburst needs Kubernetes 1.20 or newer: upgrade it"),
        ("20", "ok", "v1.20, without Job suspend and Indexed Jobs, so Starburst does without"),
        ("27+", "ok", "v1.27+, with Job suspend and Indexed Jobs"),
    ],
)
def test_the_version_and_what_it_brings(tmp_path: Path, minor: str, status: str, line: str) -> None:
    checks = diagnose(tmp_path, minor=minor)
    assert of(checks, "version") == (status, line)
    assert (checks[-1].check == "version") == (status == "fail"), "nothing is asked of what is too old"


def test_credentials_that_the_server_does_not_know(tmp_path: Path) -> None:
    def lock_out(server: FakeServer) -> None:
        server.tokens = {"another"}

    status, line = of(diagnose(tmp_path, lock_out), "server")
    assert status == "fail"
    assert line.endswith(
        " does not know these credentials (401); renew the token or certificate in the kubeconfig"
    )


def test_each_missing_right_is_named_with_its_purpose(tmp_path: Path) -> None:
    def forbid(server: FakeServer) -> None:
        server.allows = lambda asked: (asked["verb"], asked["resource"]) != ("create", "jobs")

    status, line = of(diagnose(tmp_path, forbid), "permissions")
    assert status == "fail"
    assert line.startswith("it may not create jobs.batch in default (")
    assert line.count("(") == 1
    assert line.endswith(
        "; bind this account to the roles of deploy/kubernetes.yaml, in each of these namespaces"
    )


@pytest.mark.parametrize("namespace", ["kube-system", "elsewhere"])
def test_chakra_is_found_wherever_it_has_its_lease(tmp_path: Path, namespace: str) -> None:
    def move(server: FakeServer) -> None:
        server.remove(LEASES, "starburst-system", "chakra")
        server.add(LEASES, lease(namespace))

    assert of(diagnose(tmp_path, move), "chakra") == ("ok", f"chakra-0 leads, in {namespace}")


def test_a_pod_looks_for_chakra_where_its_account_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "namespace").write_text("batch-system\n")
    monkeypatch.setattr(leadership, "POD_NAMESPACE", tmp_path / "namespace")

    def install(server: FakeServer) -> None:
        server.remove(LEASES, "starburst-system", "chakra")
        server.add(LEASES, lease("batch-system"))
        for namespace in ("starburst-system", "kube-system"):
            path = f"GET {LEASES.path(namespace, 'chakra')}"
            server.fail(path, status=403, reason="Forbidden", times=9)

    assert of(diagnose(tmp_path, install), "chakra") == ("ok", "chakra-0 leads, in batch-system")


def test_a_chakra_that_is_gone_is_told_from_one_that_was_never_seen(tmp_path: Path) -> None:
    def never(server: FakeServer) -> None:
        server.remove(LEASES, "starburst-system", "chakra")

    def dead(server: FakeServer) -> None:
        server.change(LEASES, "starburst-system", "chakra", {"spec": {"holderIdentity": "dead"}})

    def left(server: FakeServer) -> None:
        server.change(LEASES, "starburst-system", "chakra", {"spec": {"holderIdentity": ""}})

    status, line = of(diagnose(tmp_path, never), "chakra")
    assert (status, line.partition(";")[0]) == (
        "warn",
        "not seen: there is no Lease (without leader election it has none)",
    )
    status, line = of(diagnose(tmp_path, dead), "chakra")
    assert (status, line.partition(";")[0]) == (
        "fail",
        "dead holds its Lease in starburst-system and does not renew it: it is gone",
    )
    assert of(diagnose(tmp_path, left), "chakra")[0] == "fail"


def test_gpus_of_unknown_type_come_with_the_command_that_names_them(tmp_path: Path) -> None:
    def add(server: FakeServer) -> None:
        server.add(NODES, gpu_node("n1"))
        server.add(NODES, gpu_node("n2", ready=False))

    status, line = of(diagnose(tmp_path, add), "nodes")
    assert status == "warn"
    assert line.startswith("3, 2 Ready, 24 GPUs; no label says which GPUs n1, n2 have; ")
    assert line.endswith("kubectl label nodes n1 n2 nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB")


def test_nodes_that_are_away_and_no_nodes_at_all(tmp_path: Path) -> None:
    def away(server: FakeServer) -> None:
        server.change(NODES, "", "n0", {"status": gpu_node("n0", ready=False)["status"]})

    assert of(diagnose(tmp_path, away), "nodes") == (
        "warn",
        "1, 0 Ready, 8 GPUs; not Ready: n0; kubectl describe node n0",
    )
    checks = diagnose(tmp_path, lambda server: server.remove(NODES, "", "n0"))
    assert of(checks, "nodes")[0] == "warn"


def test_a_namespace_that_is_not_there_comes_with_the_command_that_makes_it(tmp_path: Path) -> None:
    checks = diagnose(tmp_path, namespace="ml")
    assert of(checks, "namespace") == ("fail", "there is no ml; kubectl create namespace ml")


def test_a_checkpoint_volume_must_be_there_and_be_for_all_nodes(tmp_path: Path) -> None:
    status, line = of(diagnose(tmp_path, **ON_CLAIM), "checkpoints")
    assert (status, line.partition(";")[0]) == ("fail", "there is no PersistentVolumeClaim default/ckpt")
    status, line = of(diagnose(tmp_path, claim("ReadWriteOnce"), **ON_CLAIM), "checkpoints")
    assert (status, line.partition(";")[0]) == ("warn", "PersistentVolumeClaim default/ckpt is ReadWriteOnce")
    path = {"checkpoints": {"hostPath": {"path": "/data"}}}
    assert of(diagnose(tmp_path, **path), "checkpoints")[1].startswith("/data of each node, which has to be")
    nfs = {"checkpoints": {"nfs": {"server": "filer", "path": "/data"}}}
    assert of(diagnose(tmp_path, **nfs), "checkpoints") == ("ok", "nfs filer:/data")


def test_what_may_not_be_looked_at_is_no_reason_to_fail(tmp_path: Path) -> None:
    def forbid(server: FakeServer) -> None:
        for path in ("/leases", "/namespaces/default", "/persistentvolumeclaims"):
            server.fail(
                f"GET /api/v1{path}" if path != "/leases" else path, status=403, reason="Forbidden", times=9
            )
        server.fail("GET /api/v1/namespaces/default/persistentvolumeclaims", status=403, times=9)

    checks = diagnose(tmp_path, forbid, **ON_CLAIM)
    for name in ("chakra", "namespace", "checkpoints"):
        status, line = of(checks, name)
        assert (status, "403" in line) == ("warn", True), line


def test_a_check_is_one_line(tmp_path: Path) -> None:
    check = replace(diagnose(tmp_path)[0], mend="mend it")
    assert check.line == f"kubeconfig: {tmp_path}/kubeconfig; mend it"


def test_who_may_leave_is_told_with_the_command_that_lets_them(tmp_path: Path) -> None:
    def forbid(server: FakeServer) -> None:
        server.allows = lambda asked: asked["verb"] != "use"

    status, line = of(diagnose(tmp_path, forbid), "leaving")
    assert status == "warn"
    assert line == (
        "what people apply stays on the cluster: service account default of namespace default may not use "
        "queue default in the cloud; to let it: kubectl create rolebinding starburst-leave-default -n "
        "default --clusterrole=starburst-leave --serviceaccount=default:default"
    )


def test_the_level_under_which_submitters_own_the_nodes_is_a_warning(tmp_path: Path) -> None:
    status, line = of(diagnose(tmp_path, pod_security="privileged"), "pod-security")
    assert status == "warn"
    assert line.endswith("whoever has a token to submit owns the nodes; write restricted")
