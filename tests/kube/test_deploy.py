"""deploy/kubernetes.yaml on a real server: it can be applied, and the programs work under its accounts."""

from __future__ import annotations

import asyncio
import json
import re
import time
import urllib.request
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from kubernetes.aio.config import incluster_config

from starburst.kube.access import CHAKRA, CHAKRA_WORK, Permission
from starburst.kube.api import Api
from starburst.kube.resources import EVENTS, JOBS, LEASES, PODS
from tests.deploy.render import DEPLOY, NAMESPACE
from tests.kube.chakra_lab import chakra, node_of, pod, until
from tests.kube.deployed import WORK, Deployed, ask, free_port, may, resource_of
from tests.kube.lab import skip
from tests.kube.live import job_manifest, live

#: Options of Chakra where its account may read Jobs.
LISTED = ("--namespace", WORK, "--namespace", "default")


def test_the_manifests_can_be_applied_and_their_objects_are_as_written(deployed: Deployed) -> None:
    assert deployed.skipped <= {"PodDisruptionBudget"}, "Kubernetes 1.20 has no policy/v1, later ones do"

    def missing(wanted: Any, found: Any) -> list[str]:
        """Paths of what the server dropped or changed."""
        if isinstance(wanted, dict):
            return [
                f"{key}.{path}"
                for key, value in wanted.items()
                for path in missing(value, found.get(key) if isinstance(found, dict) else None)
            ]
        if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
            return [path for one, other in zip(wanted, found, strict=True) for path in missing(one, other)]
        return [] if wanted == found else [f" {wanted!r} is {found!r}"]

    async def compared(api: Api) -> list[str]:
        problems = []
        for item in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()):
            if item["kind"] not in deployed.skipped:
                metadata = item["metadata"]
                found = await api.get(resource_of(item), metadata.get("namespace", ""), metadata["name"])
                problems += [f"{item['kind']} {metadata['name']}: {path}" for path in missing(item, found)]
        return problems

    assert ask(deployed.lab, compared) == []


def test_a_pod_finds_the_server_and_its_account_by_itself(
    deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any kubeconfig, as in the Deployments: by environment and files that a kubelet gives."""
    told = yaml.safe_load(deployed.account("starburst-chakra").kubeconfig.read_text())
    cluster, user = told["clusters"][0]["cluster"], told["users"][0]["user"]
    if "certificate-authority" not in cluster:
        skip("this server has no certificate that a pod could check")
    address = urlsplit(cluster["server"])
    (tmp_path / "token").write_text(user["token"])
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", cluster["certificate-authority"])
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", address.hostname or "")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(address.port))
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.delenv("KUBECONFIG", raising=False)

    async def seen() -> tuple[bool, bool]:
        async with await Api.connect() as api:
            await api.list(PODS)
            return await may(api, CHAKRA[0]), await may(api, Permission("list", "", "secrets"))

    assert asyncio.run(seen()) == (True, False)


# The programs themselves, under their accounts.


async def make_pods(api: Api, names: Iterable[str], scheduler: str, **more: Any) -> None:
    await asyncio.gather(
        *(api.create(PODS, WORK, pod(name, schedulerName=scheduler, **more)) for name in names)
    )


async def bound(api: Api, names: Sequence[str]) -> bool:
    return all([await node_of(api, WORK, name) for name in names])


def test_chakra_binds_and_tells_under_the_account_of_the_manifests(stage: Deployed, tmp_path: Path) -> None:
    names = [f"fits-{number}" for number in range(4)]

    async def scene(api: Api) -> None:
        await make_pods(api, names, "chakra-alone", gpus=1)
        await make_pods(api, ["too-big"], "chakra-alone", gpus=9)
        await until("the pods are bound", lambda: bound(api, names))

        async def told() -> bool:
            found = await api.get(PODS, WORK, "too-big")
            conditions = {each["type"]: each for each in found["status"].get("conditions") or ()}
            events = {event.get("reason") for event in await api.list(EVENTS, WORK)}
            waits = conditions.get("PodScheduled", {}).get("reason") == "Unschedulable"
            return waits and "FailedScheduling" in events

        await until("condition and event of the pod that does not fit", told)

    log = tmp_path / "chakra.log"
    options = ("--no-leader-elect", "--scheduler-name", "chakra-alone", *LISTED)
    with chakra(stage.account("starburst-chakra"), log, *options):
        ask(stage.lab, scene)
    assert "Forbidden" not in log.read_text()


def test_starburst_adopts_places_and_ends_jobs_under_the_account_of_the_manifests(
    stage: Deployed, tmp_path: Path
) -> None:
    adopted = job_manifest("adopted", "sleep 600", gpus=1, keys={"starburst.io/queue": "default"})
    adopted["spec"]["template"]["spec"]["schedulerName"] = "chakra"
    (tmp_path / "job.yaml").write_text(json.dumps(job_manifest("submitted", "sleep 600", gpus=1)))

    async def nodes(api: Api) -> list[str]:
        """Of bound pods; without a kubelet, one that is told to end stays for ever."""
        pods = [*await api.list(PODS, WORK, "job-name=adopted"), *await api.list(PODS, "default")]
        there = [item for item in pods if "deletionTimestamp" not in item["metadata"]]
        return [item["spec"]["nodeName"] for item in there if "nodeName" in item["spec"]]

    with (
        live(stage.account("starburst"), tmp_path) as starburst,
        chakra(stage.account("starburst-chakra"), tmp_path / "chakra.log", "--no-leader-elect", *LISTED),
    ):
        starburst.configure(f"cluster: {{kind: kubernetes, namespaces: [{WORK}]}}\ncloud: {{offers: []}}\n")
        starburst.up()
        ask(stage.lab, lambda api: api.create(JOBS, WORK, adopted))
        starburst.run("submit", "job.yaml")
        starburst.wait_for("their pods are bound", lambda: ask(stage.lab, nodes) == ["node-1"] * 2, 30)
        starburst.run("cancel", *(job["id"] for job in starburst.jobs()))
        starburst.wait_for("both are withdrawn", lambda: not ask(stage.lab, nodes), 30)
        assert "Forbidden" not in starburst.logs()


def test_chakra_without_the_right_to_bind_binds_nothing_and_says_why(stage: Deployed, tmp_path: Path) -> None:
    rights = [each for each in (*CHAKRA, *CHAKRA_WORK) if each.subresource != "binding"]
    unarmed = stage.account_with("unarmed", rights)
    log = tmp_path / "chakra.log"

    async def refused() -> bool:
        return re.search(r"cannot create resource .*pods/binding", log.read_text()) is not None

    async def scene(api: Api) -> None:
        await make_pods(api, ["unbound"], "chakra-unarmed", gpus=1)
        await until("a refusal in the log", refused)
        assert not await node_of(api, WORK, "unbound")

    with chakra(unarmed, log, "--no-leader-elect", "--scheduler-name", "chakra-unarmed"):
        ask(stage.lab, scene)


def leads(port: int) -> bool:
    """What a replica's own metrics say."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return "\nchakra_leader 1.0" in answer.read().decode()
    except OSError:
        return False


def test_of_two_replicas_one_leads_and_when_it_is_killed_the_other_takes_over(
    stage: Deployed, tmp_path: Path
) -> None:
    ports = {"a": free_port(), "b": free_port()}
    account = stage.account("starburst-chakra")
    log = tmp_path / "chakra.log"

    async def holder(api: Api) -> str:
        lease = await api.find(LEASES, NAMESPACE, "chakra")
        return "" if lease is None else str(lease["spec"].get("holderIdentity") or "")

    async def led_by(api: Api, one: str) -> bool:
        return await holder(api) == one and await asyncio.to_thread(leads, ports[one])

    async def scene(api: Api) -> None:
        await until("somebody leads", lambda: holder(api))
        first = await holder(api)
        other = {"a": "b", "b": "a"}[first]
        await until("it knows", lambda: led_by(api, first))
        await make_pods(api, ["before"], "chakra-pair")
        await until("it binds", lambda: bound(api, ["before"]))
        assert not leads(ports[other])

        processes[first].kill()
        killed_at = time.monotonic()
        await make_pods(api, ["after"], "chakra-pair")
        await until("the other one binds", lambda: bound(api, ["after"]))
        assert 10.0 < time.monotonic() - killed_at < 22.0, "a Lease of 15 s, looked at every 2 to 4.4 s"
        assert await led_by(api, other)
        lease = await api.get(LEASES, NAMESPACE, "chakra")
        assert lease["spec"]["leaseTransitions"] >= 1

        processes[other].terminate()

        async def given_back() -> bool:
            return not await holder(api)

        await until("the Lease is given back at a good end", given_back, 5.0)

    with ExitStack() as ends:
        processes = {
            one: ends.enter_context(
                chakra(
                    account,
                    log,
                    *("--lease-namespace", NAMESPACE, "--identity", one, "--metrics-port", str(port)),
                    *("--scheduler-name", "chakra-pair", *LISTED),
                )
            )
            for one, port in ports.items()
        }
        ask(stage.lab, scene)
    assert "Forbidden" not in log.read_text()
