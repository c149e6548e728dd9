"""A JobSet, a PyTorchJob and a RayJob from `kubectl apply`, on real kubelets and in the cloud.

Their CRDs are small ones of ours, and their operators are fakes that keep the contract of `suspend`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from starburst.kube.operator_kinds import OperatorKind
from starburst.kube.resources import JOBS, PODS, Object
from tests.kube.crds import JOBSET, PYTORCH, RAY_JOB, crd, operate
from tests.kube.lab import Lab
from tests.kube.live import Live, give_gpus, job_manifest, live
from tests.kube.test_gangs import REDUCE
from tests.kube.test_whole import CONFIG, OFFER

KINDS = (JOBSET, PYTORCH, RAY_JOB)


@pytest.fixture
def running(two_kubelets: Lab, tmp_path: Path) -> Iterator[Live]:
    """With the CRDs, which go again with all of their objects."""
    tmp_path.chmod(0o755)
    give_gpus(two_kubelets, ["node0", "node1"], 8)
    with live(two_kubelets, tmp_path) as starburst:
        starburst.apply([crd(each) for each in KINDS])
        names = [crd(each)["metadata"]["name"] for each in KINDS]
        try:
            starburst.kubectl("wait", "--for=condition=established", *(f"crd/{name}" for name in names))
            yield starburst
        finally:
            starburst.kubectl("delete", "crd", *names, "--timeout=60s")


def an_object(kind: OperatorKind, name: str, script: str, spec: Object, cloud: str) -> Object:
    keys = {"starburst.io/queue": "default", "starburst.io/cloud": cloud}
    job = job_manifest(name, script, keys=keys)
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.name,
        "metadata": job["metadata"],
        "spec": spec,
    }


def template(script: str, gpus: int = 0) -> Object:
    found: Object = job_manifest("any", script, gpus=gpus)["spec"]["template"]
    return found


def test_they_run_at_home_and_away_and_their_owners_find_how_they_ended(running: Live) -> None:
    """Two tasks on two nodes reduce over a socket; two in the cloud; one whose image has no Ray fails; and
    one is deleted while it runs.
    """
    workers = {"parallelism": 2, "completions": 2, "template": template(REDUCE, gpus=8)}
    replicated = [{"name": "workers", "template": {"spec": workers}}]
    roles = {
        role: {"replicas": 1, "restartPolicy": "Never", "template": template("echo $RANK of $WORLD_SIZE")}
        for role in ("Master", "Worker")
    }
    away = {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": roles}
    head = {"headGroupSpec": {"rayStartParams": {}, "template": template("")}}
    ray = {"suspend": True, "shutdownAfterJobFinishes": True, "entrypoint": "true", "rayClusterSpec": head}
    forever = [{"name": "w", "template": {"spec": {"template": template("sleep 600")}}}]
    endless = {"suspend": True, "replicatedJobs": forever}
    running.let_leave()
    running.configure(CONFIG.format(offers=OFFER))
    running.up()
    running.chakra()
    running.apply(
        [
            an_object(JOBSET, "at-home", REDUCE, {"suspend": True, "replicatedJobs": replicated}, "never"),
            an_object(PYTORCH, "away", "", away, "only"),
            an_object(RAY_JOB, "no-ray", "", ray, "never"),
            an_object(JOBSET, "long", "", endless, "never"),
        ]
    )
    running.ask(operate)
    ended = _until_all_ended(running)
    assert ended == {"at-home": "Complete", "away": "Complete", "no-ray": "Failed"}, running.logs()
    running.ask(operate)  # what has ended is left alone
    pods = running.ask(lambda api: api.list(PODS, "default"))
    assert not [pod for pod in pods if pod["metadata"]["name"].endswith("-of-its-operator")]
    running.kubectl("wait", "--for=condition=Completed", "jobsets/at-home", "--timeout=20s")
    running.kubectl("wait", "--for=condition=Succeeded", "pytorchjobs/away", "--timeout=20s")
    assert running.run("logs", "at-home").count("sum 3 of 2") == 2
    assert "0 of 2" in running.run("logs", "away")
    failed = running.ask(lambda api: api.get(RAY_JOB.resource, "default", "no-ray"))
    assert (failed["status"]["jobStatus"], failed["status"]["reason"]) == ("FAILED", "AppFailed")

    running.kubectl("delete", "jobset", "at-home", "--wait=false")
    running.wait_for("the Job of its run goes with it", lambda: "at-home" not in _jobs(running))

    running.wait_for("the other one runs", lambda: _phase(running, "long") == "running")
    running.kubectl("delete", "jobset", "long", "--wait=false")
    running.wait_for("it is cancelled", lambda: _phase(running, "long") == "cancelled")


def _until_all_ended(running: Live) -> dict[str, str]:
    """How each ended, as its own status says; the operators go on meanwhile."""
    give_up = time.monotonic() + 150
    while True:
        found = {
            item["metadata"]["name"]: kind.end(item.get("status") or {})
            for kind in KINDS
            for item in running.ask(lambda api, kind=kind: api.list(kind.resource, "default"))
            if item["metadata"]["name"] != "long"
        }
        if all(found.values()) or time.monotonic() > give_up:
            return found
        time.sleep(0.5)


def _phase(running: Live, name: str) -> str:
    (found,) = [job["phase"] for job in running.jobs() if job["name"] == name]
    return str(found)


def _jobs(running: Live) -> str:
    return " ".join(job["metadata"]["name"] for job in running.ask(lambda api: api.list(JOBS, "default")))
