"""Another scheduler on the same GPUs: what a kubelet refuses for it queues again, and the doctor names it."""

from __future__ import annotations

import json
from pathlib import Path

from starburst.app.doctor.doctor import CheckStatus
from starburst.kube.api import Api
from starburst.kube.resources import PODS, Object
from tests.kube.lab import Lab
from tests.kube.live import IMAGE, NO_CLOUD, applied_job, give_gpus, live
from tests.kube.test_doctor import checks

NODES = ("node0", "node1")
NAMES = ("applied", "submitted")


def foreign(node: str) -> Object:
    """A pod of another scheduler with all GPUs of a node."""
    container: Object = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sleep", "900"],
    }
    container["resources"] = {"limits": {"nvidia.com/gpu": "8", "cpu": "1m"}}
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"foreign-{node}"}, "spec": spec}


def test_what_a_kubelet_refuses_for_another_schedulers_pod_runs_later(
    two_kubelets: Lab, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    tmp_path.chmod(0o755)
    give_gpus(two_kubelets, NODES, 8)
    made = {name: applied_job(name, f"echo start >>{marks / name}", gpus=8, volume=marks) for name in NAMES}
    with live(two_kubelets, tmp_path) as running:
        try:
            running.configure(NO_CLOUD.replace("kind: kubernetes", "kind: kubernetes\n  bind_limit: 600s"))
            running.up()
            (tmp_path / "job.json").write_text(json.dumps(made["submitted"]))
            running.run("submit", "job.json", "-o", "name")
            running.apply([made["applied"]])

            async def held(api: Api) -> dict[str, str]:
                """Our pods that wait for Chakra, with their nodes."""
                jobs = {
                    job["metadata"]["uid"]: job["metadata"].get("annotations", {}).get("starburst.io/nodes")
                    for job in json.loads(running.kubectl("get", "jobs", "-o", "json"))["items"]
                }
                pods = [pod for pod in await api.list(PODS, "default") if "nodeName" not in pod["spec"]]
                return {
                    pod["metadata"]["name"]: jobs.get(pod["metadata"]["ownerReferences"][0]["uid"]) or ""
                    for pod in pods
                }

            placed = running.wait_for(
                "both are placed", lambda: len(p := running.ask(held)) == 2 and all(p.values()) and p
            )
            running.apply([foreign(node) for node in NODES])
            running.kubectl(
                "wait", "pod", "--for=condition=Ready", *map("foreign-{}".format, NODES), "--timeout=90s"
            )

            async def bind(api: Api) -> None:
                """As Chakra does that has not heard of the other pods yet."""
                for name, node in placed.items():
                    target = {"apiVersion": "v1", "kind": "Node", "name": node}
                    body = {"metadata": {"name": name, "namespace": "default"}, "target": target}
                    await api.call("POST", PODS.path("default", name, "binding"), body=body)

            running.ask(bind)
            running.wait_for("both are refused, and queue", lambda: queued(running.jobs()))
            running.chakra()
            assert not list(marks.iterdir())
            found = checks(two_kubelets.kubeconfig)["schedulers"]
            assert found.status is CheckStatus.WARN
            assert "default/foreign-node0" in found.found
            running.kubectl("delete", "pods", *map("foreign-{}".format, NODES))
            running.wait_for(
                "both succeed", lambda: {job["phase"] for job in running.jobs()} == {"succeeded"}
            )
            assert {path.name: path.read_text() for path in marks.iterdir()} == dict.fromkeys(
                NAMES, "start\n"
            )
        finally:
            running.kubectl("delete", "jobs,pods", "--all", "--wait=false")


def queued(jobs: list[dict[str, object]]) -> bool:
    """Whether all of them wait for another attempt."""
    return all(job["phase"] in ("queued", "blocked") and job["attempt"] == 1 for job in jobs)
