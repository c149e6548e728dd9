"""Starburst, Chakra and two real kubelets together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from starburst.kube.api import Api
from starburst.kube.errors import ApiUnreachableError
from starburst.kube.resources import JOBS, PODS, Object
from tests.kube.lab import Lab
from tests.kube.live import Live, give_gpus, job_manifest, live

CONFIG = """
policy:
  budget_percent: 25
  offload_cpu_only: false
  t_max: 4s
cluster:
  kind: kubernetes
cloud:
  trust_users: true
  offers: {offers}
"""
#: The embedded cloud's one machine type.
OFFER = (
    "[{name: p3, gpus: 8, gpu_type: V100, cpus: 32, memory_gib: 64, usd_per_hour: 3, boot: 1s, setup: 1s}]"
)


@pytest.fixture
def running(two_kubelets: Lab, tmp_path: Path) -> Iterator[Live]:
    """A Starburst home beside the cluster, nothing started yet."""
    tmp_path.chmod(0o755)
    give_gpus(two_kubelets, ["node0", "node1"], 8)
    with live(two_kubelets, tmp_path) as starburst:
        yield starburst


def test_a_hundred_jobs_run_once_each_whatever_is_killed_in_the_middle(running: Live) -> None:
    """Submitted and applied, mixed sizes, out of order; Starburst, Chakra and the API server are killed."""
    marks = running.root / "marks"
    marks.mkdir()
    running.configure(CONFIG.format(offers="[]"))
    running.up()
    running.chakra()
    sizes = [(1, 2, 4, 8, 1)[number % 5] for number in range(100)]
    script = "echo start >>{mark}; sleep 0.{tenths}; echo end >>{mark}"
    manifests = [
        job_manifest(
            f"job-{number}",
            script.format(mark=marks / f"job-{number}", tenths=number % 7 + 1),
            gpus=gpus,
            keys={"starburst.io/queue": "default"},
            volume=marks,
        )
        for number, gpus in enumerate(sizes)
    ]
    for manifest in manifests:
        manifest["spec"]["template"]["spec"]["schedulerName"] = "chakra"
    submitted, applied = manifests[:50], manifests[50:]
    (running.root / "jobs.yaml").write_text("\n---\n".join(map(json.dumps, submitted)))
    running.run("submit", "jobs.yaml", "-o", "name")
    running.apply(applied)

    def ended() -> set[str]:
        return {path.name for path in marks.iterdir() if "end" in path.read_text()}

    def done() -> int:
        return len(ended())

    running.wait_for("20 jobs are done", lambda: done() >= 20)
    running.kill("starburst")
    begun = _begun(running) & {manifest["metadata"]["name"] for manifest in manifests}
    assert len(begun) >= 20
    running.wait_for("what has begun ends without the scheduler", lambda: begun <= ended())
    running.up()
    running.wait_for("40 jobs are done", lambda: done() >= 40)
    running.kill("chakra")
    running.chakra()
    running.wait_for("60 jobs are done", lambda: done() >= 60)
    running.lab.restart_api_server()
    running.wait_for("all jobs are done", lambda: done() == 100, 180)
    running.wait_for("Starburst knows", lambda: all(j["phase"] == "succeeded" for j in running.jobs()))
    jobs = running.jobs()
    assert len(jobs) == 100
    texts = {path.name: path.read_text() for path in marks.iterdir()}
    assert {name for name, text in texts.items() if text != "start\nend\n"} == set()
    assert running.lines("starburst", "; passed "), "none went past another"
    pods = running.ask(lambda api: api.list(PODS, "default"))
    bad = [p["status"].get("reason") for p in pods if p["status"].get("reason", "").startswith("OutOf")]
    assert not bad
    finished = running.ask(lambda api: api.list(JOBS, "default"))
    ours = [job for job in finished if job["metadata"]["name"].startswith("job-")]
    assert sum(_condition(job, "Complete") for job in ours) == 100


def _begun(running: Live) -> set[str]:
    """Marks of the jobs whose pod has a node and is wanted there; an earlier test's may still be going."""
    there = running.ask(lambda api: api.list(PODS, "default"))
    wanted = [pod["metadata"] for pod in there if "deletionTimestamp" not in pod["metadata"]]
    bound = {pod["metadata"]["name"] for pod in there if pod["spec"].get("nodeName")}
    names = [each["name"] for each in wanted if each["name"] in bound]
    return {"-".join(name.split("-")[:2]) for name in names}


def test_a_job_that_comes_home_from_the_cloud_ends_complete_with_its_logs(running: Live) -> None:
    """It overflows, its Job is withdrawn; room comes free, it returns; kubectl sees an ordinary Job."""
    running.let_leave()
    running.configure(CONFIG.format(offers=OFFER))
    running.up()
    running.chakra()
    gate = running.root / "gate"
    gate.mkdir()
    keys = {"starburst.io/queue": "default", "starburst.io/cloud": "never"}
    blocker = f"until [ -e {gate}/open ]; do sleep 0.1; done"
    script = 'if [ "$STARBURST_SITE" = cloud ]; then echo away; exec sleep 600; fi; echo home'
    wish = {
        "starburst.io/queue": "default",
        "starburst.io/max-wait": "1s",
        "starburst.io/runtime-estimate": "2h",
        "starburst.io/checkpoint": "true",
    }
    blockers = [job_manifest(f"block-{n}", blocker, gpus=8, keys=keys, volume=gate) for n in range(2)]
    traveller = job_manifest("traveller", script, gpus=8, keys=wish)
    for manifest in (*blockers, traveller):
        manifest["spec"]["template"]["spec"]["schedulerName"] = "chakra"
    running.apply(blockers)
    running.wait_for("the cluster is full", lambda: _phases(running, "block") == ["running"] * 2)
    running.apply([traveller])
    running.wait_for("it runs in the cloud", lambda: _phases(running, "traveller", "cloud") == ["running"])
    away = running.wait_for("its Job is withdrawn", lambda: _withdrawn(_job(running, "traveller")))
    assert away
    assert _pods_of(running, "traveller") == []
    (gate / "open").touch()
    ended = running.wait_for("its Job is complete", lambda: _complete(running, "traveller"))
    annotations = running.wait_for("its end is noted", lambda: _noted(running, "traveller"))
    assert annotations["starburst.io/exit-code"] == "0"
    assert annotations["starburst.io/logs"] == f"starburst logs {_job_id(ended)}"
    assert running.run("logs", _job_id(ended)) == "home\n"
    (job,) = (job for job in running.jobs() if job["name"] == "traveller")
    assert job["site"] == "cluster"
    assert job["attempt"] == 2
    told = running.kubectl("describe", "job", "traveller")
    for reason in ("Queued", "Offloaded", "Returned", "Placed", "Succeeded"):
        assert f" {reason} " in told, told


def test_a_job_that_ends_in_the_cloud_is_complete_in_the_cluster(running: Live) -> None:
    """`kubectl wait --for=condition=complete` works for a user who never heard of Starburst."""
    running.let_leave()
    running.configure(CONFIG.format(offers=OFFER))
    running.up()
    running.chakra()
    keys = {"starburst.io/queue": "default", "starburst.io/cloud": "only"}
    good, bad = job_manifest("good", "echo done", keys=keys), job_manifest("bad", "exit 3", keys=keys)
    for manifest in (good, bad):
        manifest["spec"]["template"]["spec"]["schedulerName"] = "chakra"
    running.apply([good, bad])
    running.kubectl("wait", "--for=condition=complete", "job/good", "--timeout=120s")
    running.wait_for("its Job has failed", lambda: _condition(_job(running, "bad"), "Failed"))
    noted = running.wait_for("its end is noted", lambda: _noted(running, "bad"))
    assert noted["starburst.io/exit-code"] == "3"
    assert _job(running, "good")["status"]["succeeded"] == 1


def test_deleting_an_adopted_job_cancels_it_wherever_it_runs(running: Live) -> None:
    """One in a pod, one in the cloud."""
    running.let_leave()
    running.configure(CONFIG.format(offers=OFFER))
    running.up()
    running.chakra()
    for name, cloud in (("here", "never"), ("there", "only")):
        keys = {"starburst.io/queue": "default", "starburst.io/cloud": cloud}
        manifest = job_manifest(name, "sleep 600", gpus=1, keys=keys)
        manifest["spec"]["template"]["spec"]["schedulerName"] = "chakra"
        running.apply([manifest])
    running.wait_for("both run", lambda: _phases(running, "") == ["running"] * 2)

    running.kubectl("delete", "job", "here", "there", "--wait=false")
    running.wait_for("both are cancelled", lambda: _phases(running, "") == ["cancelled"] * 2)


@pytest.fixture(autouse=True)
def clean(two_kubelets: Lab) -> Iterator[None]:
    """No test finds another one's Jobs."""
    yield

    async def clear() -> None:
        async with await Api.connect(two_kubelets.kubeconfig) as api:
            for job in await api.list(JOBS, "default"):
                await api.delete(JOBS, "default", job["metadata"]["name"], propagation="Background")
            for pod in await api.list(PODS, "default"):
                await api.delete(PODS, "default", pod["metadata"]["name"], grace_s=0)
            while await api.list(PODS, "default"):
                await asyncio.sleep(0.2)

    asyncio.run(clear())


def _phases(running: Live, prefix: str, site: str = "") -> list[str]:
    return [
        job["phase"] for job in running.jobs() if job["name"].startswith(prefix) and site in ("", job["site"])
    ]


def _job(running: Live, name: str) -> Object:
    try:
        return running.ask(lambda api: api.get(JOBS, "default", name))
    except ApiUnreachableError:
        return {}


def _pods_of(running: Live, name: str) -> list[Object]:
    return running.ask(lambda api: api.list(PODS, "default", f"job-name={name}"))


def _condition(job: Object, kind: str) -> bool:
    found = job.get("status", {}).get("conditions") or []
    return any(each["type"] == kind and each["status"] == "True" for each in found)


def _withdrawn(job: Object) -> bool:
    return bool(job["spec"].get("suspend")) or job["spec"]["parallelism"] == 0


def _complete(running: Live, name: str) -> Object | None:
    job = _job(running, name)
    return job if _condition(job, "Complete") else None


def _noted(running: Live, name: str) -> dict[str, str] | None:
    annotations: dict[str, str] = _job(running, name)["metadata"]["annotations"]
    return annotations if "starburst.io/logs" in annotations else None


def _job_id(job: Object) -> str:
    """The id of the job that an object was adopted as."""
    return str(job["metadata"]["labels"]["starburst.io/job"])
