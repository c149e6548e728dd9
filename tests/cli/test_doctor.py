"""`starburst doctor`: a line for each thing that is needed, with its mend; and `up`, which needs some."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starburst.app.config import Config, run_as
from starburst.app.config.sites import KubernetesConfig
from starburst.app.doctor import embedded_checks
from starburst.app.doctor.cluster_checks import CLAIMS, cluster_checks
from starburst.app.doctor.doctor import DoctorCheck
from starburst.app.errors import UserError
from starburst.app.jobs.submitting import this_user
from starburst.clouds.catalog import EC2_CATALOG
from starburst.kube import api as kube_api
from starburst.kube.resources import LEASES, NAMESPACES, NODES
from tests.cli.conftest import Answer, Cli
from tests.cli.past import NOON, Past
from tests.kube_unit.server import FakeServer

EXTRA = "cluster.kind: kubernetes: needs the extra: pip install 'starburst-scheduler[kubernetes]'"


@pytest.fixture
def on_kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config whose cluster is given by KUBECONFIG alone; there is none yet."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setattr(kube_api, "FIRST_PAUSE_S", 0.0)
    file = tmp_path / "kubernetes.yaml"
    file.write_text("cluster: {kind: kubernetes}")
    return file


def kubeconfig(file: Path, server: str) -> None:
    told = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    }
    file.write_text(json.dumps(told))


def last_but_cloud(told: Answer) -> str:
    """The last line about the cluster: the embedded cloud's comes after it."""
    *_, line, cloud = told.out.splitlines()
    assert cloud.startswith("✓ cloud: ")
    return line


def nobody() -> str:
    """An address at which nothing answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


# --- the home and the config ------------------------------------------------------------------------------


@pytest.fixture(params=["", "Operation not permitted"])
def separation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Why this machine cannot keep users apart; "" if it can."""
    for module in (run_as, embedded_checks):
        monkeypatch.setattr(module, "cannot_separate", lambda: request.param)
    return str(request.param)


def test_a_fresh_home_has_nothing_to_mend(cli: Cli, home: Path, separation: str) -> None:
    told = cli("doctor")
    others = f"nobody can be kept apart here: {separation}" if separation else "others are kept apart"
    runs = f"admins' jobs run as {this_user()}, {others} (run_as: auto)"
    assert (told.code, told.err) == (0, "")
    assert told.out.splitlines() == [
        f"✓ home: {home}, no scheduler runs",
        f"✓ store: {home}/starburst.db, 0 jobs",
        "✓ config: the default, cluster.kind: local",
        f"✓ cluster: embedded, 2 nodes, {runs}",
        f"✓ cloud: embedded, {len(EC2_CATALOG)} offers, {runs}",
    ]


def test_submitters_tokens_are_a_warning_where_jobs_run_as_the_scheduler(
    cli: Cli, tmp_path: Path, separation: str
) -> None:
    cli("token", "create", "ci", "--role", "submitter")
    cli("token", "create", "eyes", "--role", "viewer")
    alike = tmp_path / "alike.yaml"
    alike.write_text("cluster: {run_as: self}")
    warning = (
        f"! tokens: submitter 'ci': jobs of the embedded cluster and cloud run as {this_user()}, so who "
        "submits can do what an admin can; set cluster.run_as"
    )
    told = cli("doctor", "--config", alike)
    assert told.code == 0, "a laptop's owner may mean it"
    assert told.out.splitlines()[-1] == warning
    assert (warning in cli("doctor").out) == bool(separation)
    apart = tmp_path / "apart.yaml"
    apart.write_text("cluster: {run_as: pool, pool: 61000-61009}")
    assert "tokens:" not in cli("doctor", "--config", apart).out


def test_hints_that_submit_are_a_warning_as_tokens_are(cli: Cli, tmp_path: Path, separation: str) -> None:
    hinted = tmp_path / "hinted.yaml"
    hinted.write_text("bus: {kind: mqtt, accept: [submit]}")
    said = "! tokens: hints of the bus: jobs of the embedded cluster and cloud run as "
    assert (said in cli("doctor", "--config", hinted).out) == bool(separation)


def test_a_sandbox_without_a_token_is_a_warning_for_its_jobs_have_the_owners_account(
    cli: Cli, tmp_path: Path
) -> None:
    apart = tmp_path / "apart.yaml"
    apart.write_text("cluster: {run_as: sandbox}")
    said = "! tokens: there is none, and without one the API takes jobs of a sandbox for who runs it"
    assert said in cli("doctor", "--config", apart).out
    cli("token", "create", "boss", "--role", "admin")
    assert "tokens:" not in cli("doctor", "--config", apart).out


@pytest.mark.parametrize(
    ("run_as", "mend"),
    [
        ("sandbox", "is for another account than root; set run_as: pool or submitter"),
        ("submitter", "only root may; run starburst as root, or set run_as: sandbox"),
        ("pool, pool: 61000-61009", "only root may; run starburst as root, or set run_as: sandbox"),
    ],
)
def test_a_mode_that_this_account_cannot_have_is_refused_at_the_start(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_as: str, mend: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0 if run_as == "sandbox" else 1000)
    file = tmp_path / "apart.yaml"
    file.write_text(f"cluster: {{run_as: {run_as}}}")
    told = cli("up", "--config", file)
    assert told.code == 2
    name = run_as.partition(",")[0]
    assert told.err.splitlines()[0] == f"error: cluster: run_as: {name}: {mend}"


def test_programs_get_the_same_four_keys_of_each_check(cli: Cli) -> None:
    rows = json.loads(cli("doctor", "-o", "json").out)
    assert [list(row) for row in rows] == [["check", "status", "found", "mend"]] * 5
    assert {row["status"] for row in rows} == {"ok"}
    assert (
        cli("doctor", "-o", "name").out
        == "check/home\ncheck/store\ncheck/config\ncheck/cluster\ncheck/cloud\n"
    )


def test_a_home_that_cannot_be_used_is_the_first_thing_to_mend(cli: Cli, home: Path) -> None:
    home.write_text("a file")
    told = cli("doctor")
    assert told.code == 1
    assert told.out.splitlines()[0] == f"✗ home: {home}: is not a directory; set STARBURST_HOME to one"


def test_a_store_that_is_damaged(cli: Cli, home: Path) -> None:
    home.mkdir()
    (home / "starburst.db").write_bytes(b"\x00not a database" * 1000)
    told = cli("doctor")
    assert told.code == 1
    (line,) = [line for line in told.out.splitlines() if line.startswith("✗")]
    assert line.startswith("✗ store: ")
    assert "file is not a database" in line


def test_a_bad_config_is_a_line_for_each_mistake(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("cluster: {kind: kubernetes, namespace: Ml, bind_limit: 3}")
    told = cli("doctor", "--config", file)
    assert told.code == 1
    bad = [line for line in told.out.splitlines() if line.startswith("✗")]
    assert bad == [
        f'✗ config: {file}: cluster.namespace: "Ml": must be lower-case letters, digits and dashes, '
        "the ends no dashes, 63 at most",
        f"✗ config: {file}: cluster.bind_limit: 3: a duration needs a unit; write 3s, 3m, 3h or 3d",
    ]


# --- before the cluster is reached ------------------------------------------------------------------------


def test_without_the_extra_there_is_one_line(
    cli: Cli, on_kubernetes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("starburst.app.wiring.build.find_spec", lambda _: None)
    told = cli("doctor", "--config", on_kubernetes)
    assert (told.code, last_but_cloud(told)) == (1, f"✗ extra: {EXTRA}")
    told = cli("up", "--config", on_kubernetes)
    assert (told.code, told.err) == (2, f"error: extra: {EXTRA}\n")


def test_without_a_kubeconfig_it_says_what_to_set(cli: Cli, on_kubernetes: Path) -> None:
    line = f"kubeconfig: {on_kubernetes.parent}/kubeconfig: there is no such kubeconfig; "
    line += "set KUBECONFIG, or cluster.kubeconfig in the config"
    told = cli("doctor", "--config", on_kubernetes)
    assert (told.code, last_but_cloud(told)) == (1, f"✗ {line}")
    told = cli("up", "--config", on_kubernetes)
    assert (told.code, told.err) == (2, f"error: {line}\n")


def test_up_refuses_a_server_that_does_not_answer_with_the_doctors_line(
    cli: Cli, on_kubernetes: Path, home: Path
) -> None:
    server = nobody()
    kubeconfig(on_kubernetes.parent / "kubeconfig", server)
    told = cli("doctor", "--config", on_kubernetes)
    assert told.code == 1
    line = last_but_cloud(told).removeprefix("✗ ")
    assert line.startswith(f"server: {server} does not answer (")
    assert line.endswith(
        "; check that the server runs, its address in the kubeconfig, and the network between"
    )
    told = cli("up", "--config", on_kubernetes)
    assert (told.code, told.err) == (2, f"error: {line}\n")


def test_up_waits_for_a_server_that_does_not_answer_if_it_has_work_there(
    cli: Cli, on_kubernetes: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig(on_kubernetes.parent / "kubeconfig", nobody())
    with Past.begin(home / "starburst.db", NOON) as past:
        past.submit("a")
        past.start("a")

    def begin(*_anything: object, **_more: object) -> None:
        raise UserError("it begins")

    monkeypatch.setattr("starburst.cli.service.up.build", begin)
    told = cli("up", "--config", on_kubernetes)
    assert "does not answer" in told.err
    assert told.err.splitlines()[-1] == "error: it begins"


# --- the cluster ------------------------------------------------------------------------------------------

Change = Callable[[FakeServer], Any]


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
            "kubeconfig", "server", "version", "permissions", "chakra", "nodes", "namespace",
            "pod-security", "leaving", "checkpoints",
        )
    ]  # fmt: skip
    assert of(checks, "chakra")[1] == "chakra-0 leads, in starburst-system"
    assert of(checks, "nodes")[1] == "1, 1 Ready, 8 GPUs"


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
