"""Claims on real kubelets: jobs run where their volumes are, and one without a volume holds nobody up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from starburst.kube.resources import Object
from tests.kube.lab import Lab
from tests.kube.live import NO_CLOUD, Live, give_gpus, job_manifest, live
from tests.kube_unit.volume_objects import claim, storage_class, volume

CONFIG = f"\nclock:\n  speed: 10{NO_CLOUD}"
#: Class → whether its volumes are bound with the node of the pod.
CLASSES = {"now": "Immediate", "late": "WaitForFirstConsumer"}


def objects(root: Path) -> list[Object]:
    """Two classes of volumes made by hand, one volume of each on node1, and a claim that nothing holds."""
    found: list[Object] = []
    for name, mode in CLASSES.items():
        (root / name).mkdir()
        made = storage_class(name, volumeBindingMode=mode)
        found.append({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", **made})
        local = {"local": {"path": str(root / name)}, "persistentVolumeReclaimPolicy": "Retain"}
        found += [volume(f"pv-{name}", "node1", name, **local), claim(name, name)]
    found.append(claim("never", "now", gib=100))
    for item in found:
        del item["metadata"]["uid"]
        item["metadata"].pop("namespace", None)
    return found


def job(name: str, claimed: str = "", gpus: int = 2) -> Object:
    made = job_manifest(name, "hostname >/data/from || true", gpus=gpus, keys={"starburst.io/cloud": "never"})
    spec = made["spec"]["template"]["spec"]
    if claimed:
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claimed}}]
        spec["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return made


@pytest.fixture
def running(two_kubelets: Lab, tmp_path: Path) -> Iterator[Live]:
    """A Starburst and a Chakra beside the cluster, with the volumes."""
    tmp_path.chmod(0o755)
    give_gpus(two_kubelets, ["node0", "node1"], 8)
    with live(two_kubelets, tmp_path) as starburst:
        starburst.configure(CONFIG)
        starburst.apply(objects(tmp_path))
        starburst.up()
        starburst.chakra()
        try:
            yield starburst
        finally:
            starburst.kubectl("delete", "jobs,pods,pvc", "--all", "--wait=false")
            starburst.kubectl("delete", "pv,storageclass", "--all", "--wait=false")


def test_jobs_run_where_their_volumes_are_and_one_without_is_held(running: Live) -> None:
    manifests = [job("on-now", "now"), job("on-late", "late"), job("sick", "never", gpus=8), job("sound")]
    (running.root / "jobs.yaml").write_text("\n---\n".join(map(json.dumps, manifests)))
    running.run("submit", "jobs.yaml", "-o", "name")

    def phases() -> dict[str, str]:
        return {each["name"]: each["phase"] for each in running.jobs()}

    sound = dict.fromkeys(("on-now", "on-late", "sound"), "succeeded")
    running.wait_for("the sound ones end", lambda: phases() == {**sound, "sick": "blocked"})
    ran_on = {each["name"]: each["runs_on"] for each in running.jobs()}
    assert (ran_on["on-now"], ran_on["on-late"]) == ("node1", "node1")
    assert all((running.root / name / "from").exists() for name in CLASSES)
    sick = next(each["id"] for each in running.jobs() if each["name"] == "sick")
    assert "waits for claim never: it is not bound" in running.run("explain", sick)
    (running.root / "big").mkdir()
    local = {"local": {"path": str(running.root / "big")}}
    big = volume("pv-big", "node0", "now", gib=100, **local)
    del big["metadata"]["uid"]
    running.apply([big])
    running.wait_for("it goes on", lambda: phases()["sick"] == "succeeded")
    assert "Traceback" not in running.logs()
