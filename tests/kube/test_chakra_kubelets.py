"""Chakra and two real kubelets: a queue of GPU pods runs through, and no kubelet ever has to refuse one."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

from starburst.kube import names
from starburst.kube.api import Api
from starburst.kube.resources import NODES, PODS, Object
from tests.kube.chakra_lab import GPU, chakra, make_namespace, pod, until
from tests.kube.lab import Lab

NS = "chakra-kubelets"
SIZES = (1, 2, 1, 4, 1, 3, 8, 2, 1, 1)
SINGLES, GANGS, MEMBERS = 40, 2, 3


def worker(name: str, gpus: int, **other: object) -> Object:
    """A pod that runs for a moment."""
    made = pod(name, gpus=gpus, cpu="10m", restartPolicy="Never", **other)  # type: ignore[arg-type]
    container = made["spec"]["containers"][0]
    container |= {"imagePullPolicy": "Never", "command": ["sleep", "0.3"]}
    container["resources"]["requests"]["memory"] = "4Mi"
    return made


async def phases(api: Api) -> Counter[str]:
    """How many pods are how."""
    found = await api.list(PODS, NS)
    refused = [each["status"] for each in found if each["status"].get("phase") == "Failed"]
    assert not refused, f"a kubelet refused: {refused[0]}"
    return Counter(each["status"].get("phase", "") for each in found)


def test_more_pods_than_fit_all_run_and_none_is_refused(two_kubelets: Lab, tmp_path: Path) -> None:
    """Mixed sizes and gangs on two nodes of 8 GPUs; Chakra is killed in the middle."""

    async def story() -> None:
        async with await Api.connect(two_kubelets.kubeconfig) as api:
            await make_namespace(api, NS)
            for name in ("node0", "node1"):
                has = {GPU: "8"}
                body = {"status": {"capacity": has, "allocatable": has}}
                await api.patch(NODES, "", name, body, sub="status")
            with chakra(two_kubelets, tmp_path / "first.log", "--no-leader-elect") as process:
                for number in range(SINGLES):
                    await api.create(PODS, NS, worker(f"p{number}", SIZES[number % len(SIZES)]))
                for number in range(GANGS * MEMBERS):
                    keys = {names.GANG: f"g{number // MEMBERS}/{MEMBERS}"}
                    await api.create(PODS, NS, worker(f"g{number}", 3, keys=keys))
                await until("some ended", lambda: ended(api, SINGLES // 4), 120)
                process.send_signal(signal.SIGKILL)
                process.wait()
            with chakra(two_kubelets, tmp_path / "second.log", "--no-leader-elect"):
                await until("all ended", lambda: ended(api, SINGLES + GANGS * MEMBERS), 120)

    asyncio.run(story())
    logs = "".join((tmp_path / f"{name}.log").read_text() for name in ("first", "second"))
    assert "Traceback" not in logs


async def ended(api: Api, count: int) -> bool:
    return (await phases(api))["Succeeded"] >= count
