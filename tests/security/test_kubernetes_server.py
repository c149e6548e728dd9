"""The Kubernetes boundary on a real API server: two namespaces, two users, and the chart's own account."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from starburst.domain.job import ANYBODY, CloudChoice, Job, Submission, Workload
from starburst.domain.resources import Resources
from starburst.kube.api import Api
from starburst.kube.resources import JOBS, PODS, Object, Resource
from starburst.store.store import Store
from tests.deploy.render import objects
from tests.kube.chakra_lab import make_node
from tests.kube.deployed import RBAC, WORK, Deployed, ask, free_port, resource_of
from tests.kube.lab import control_plane
from tests.kube.live import Live, job_manifest, live
from tests.security.test_kubernetes import PWN

pytestmark = pytest.mark.kube

CONFIG = """
policy: {{offload_cpu_only: false}}
cluster: {{kind: kubernetes, namespace: default, namespaces: [], bind_limit: 10m}}
cloud: {{kind: local, trust_users: true, offers: {offers}}}
queues: [{{name: papers}}]
http: {{port: {port}}}
"""
#: The chart's account reads Jobs only where the config names the namespace.
WATCHING_WORK = CONFIG.replace("namespaces: []", f"namespaces: [{WORK}]")
OFFER = "[{name: p3, gpus: 8, cpus: 32, memory_gib: 64, usd_per_hour: 3, boot: 1s, setup: 1s}]"
SECRETS = Resource("v1", "secrets")
ROLES = Resource(f"{RBAC}/v1", "roles")
BINDINGS = Resource(f"{RBAC}/v1", "rolebindings")
IMPERSONATION = {"starburst": {"impersonate": {"users": ["ada"], "groups": ["lab"]}}}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """What deploy/kubernetes.yaml makes, for jobs in default and work; ada may make jobs in work alone."""
    with control_plane() as lab:
        deployed = Deployed(lab, tmp_path_factory.mktemp("accounts"))

        async def build(api: Api) -> None:
            await make_node(api, "node-1")
            for item in objects(IMPERSONATION):
                if item["metadata"]["name"] == "starburst-impersonate":
                    await api.create(resource_of(item), "", item)
            for name in ("hers", "crown-jewels"):
                await api.create(SECRETS, WORK, {"metadata": {"name": name}, "stringData": {"k": "v"}})
            rules = [
                {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]},
                {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["hers"], "verbs": ["get"]},
            ]
            await api.create(ROLES, WORK, {"metadata": {"name": "ada"}, "rules": rules})
            binding = {
                "metadata": {"name": "ada"},
                "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "ada"},
                "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "lab"}],
            }
            await api.create(BINDINGS, WORK, binding)

        ask(lab, build)
        yield deployed


class Door:
    """A Starburst that runs under the account of the chart, and its HTTP API."""

    def __init__(self, running: Live, port: int) -> None:
        self.running = running
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def token(self, name: str, *options: str) -> str:
        return self.running.run("token", "create", name, "--role", "submitter", *options).strip()

    def post(self, token: str, manifest: Object) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return httpx.post(f"{self._url}/jobs", content=json.dumps(manifest), headers=headers, timeout=60)

    def ended(self, job_id: str) -> str:
        """How a job ended, in words."""

        def message() -> str:
            (job,) = [job for job in self.running.jobs() if job["id"] == job_id]
            return str(job["message"]) if job["phase"] == "failed" else ""

        return self.running.wait_for(f"{job_id} has failed", message)


@pytest.fixture
def door(stage: Deployed, tmp_path: Path) -> Iterator[Door]:
    port = free_port()
    with live(stage.account("starburst"), tmp_path) as running:
        running.configure(CONFIG.format(offers="[]", port=port))
        running.up()
        yield Door(running, port)


def harmless(name: str, namespace: str, **spec: Any) -> Object:
    keys = {"starburst.io/queue": "papers", "starburst.io/cloud": "never"}
    manifest = job_manifest(name, "sleep 60", gpus=1, keys=keys)
    manifest["metadata"]["namespace"] = namespace
    manifest["spec"]["template"]["spec"] |= spec
    return manifest


def made(stage: Deployed, namespace: str) -> list[str]:
    """The jobs that have an object there, by the names that users gave."""

    async def names(api: Api) -> list[str]:
        return [item["metadata"]["labels"]["starburst.io/job"] for item in await api.list(JOBS, namespace)]

    return ask(stage.lab, names)


def test_a_submitter_of_one_queue_is_no_cluster_admin_any_more(stage: Deployed, door: Door) -> None:
    """The trial's own request: it made a privileged pod in kube-system, with the Secrets of others."""
    ada = door.token("ada", "--queue", "papers")
    answer = door.post(ada, PWN)
    assert answer.status_code == 400
    lines = answer.json()["error"].splitlines()
    fields = ("namespace", "hostPID", "hostNetwork", "hostPath", "privileged", "serviceAccountName")
    for field in fields:
        assert any(field in line for line in lines), lines
    assert any('secretRef.name: "crown-jewels"' in line for line in lines), lines
    assert door.running.jobs() == []
    assert ask(stage.lab, lambda api: api.list(JOBS, "kube-system")) == []


def test_the_same_from_before_the_check_fails_when_its_object_would_be_made(
    stage: Deployed, door: Door
) -> None:
    job = Job("old-1", "old", (Resources(1, 1000, 0),), queue="papers", cloud=CloudChoice.NEVER)
    with Store.open(door.running.home / "starburst.db") as store:
        store.submit([Submission(job, Workload(manifest=json.dumps(PWN), submitter=ANYBODY))], time.time())
    assert "spec.template.spec.hostPID: true" in door.ended("old-1")
    assert ask(stage.lab, lambda api: api.list(PODS, "kube-system")) == []


def test_a_token_opens_the_namespaces_that_it_names_and_no_other(stage: Deployed, door: Door) -> None:
    ada, bob = door.token("ada", "--namespace", WORK), door.token("bob")
    assert door.post(bob, harmless("bobs", WORK)).status_code == 400
    answer = door.post(ada, harmless("adas", WORK))
    assert answer.status_code == 201, answer.text
    door.running.wait_for("her Job is there", lambda: answer.json()[0]["id"] in made(stage, WORK))


def test_in_the_name_of_a_user_the_clusters_rbac_decides(stage: Deployed, door: Door) -> None:
    as_ada = ("--kubernetes-user", "ada", "--kubernetes-group", "lab")
    ada = door.token("ada", "--namespace", WORK, *as_ada)
    good, bad = door.post(ada, harmless("good", WORK)), door.post(ada, harmless("bad", "default"))
    assert (good.status_code, bad.status_code) == (201, 400)
    door.running.wait_for("it is made where she may", lambda: good.json()[0]["id"] in made(stage, WORK))
    words = 'User "ada" cannot create resource "jobs" in API group "batch" in the namespace "default"'
    assert words in bad.json()["error"]


def test_a_user_has_the_secrets_that_she_may_get(stage: Deployed, door: Door) -> None:
    as_ada = ("--kubernetes-user", "ada", "--kubernetes-group", "lab")
    ada = door.token("ada", "--namespace", WORK, *as_ada)
    answers = []
    for number, secret in enumerate(("hers", "crown-jewels")):
        volumes = [{"name": "s", "secret": {"secretName": secret}}]
        answers.append(door.post(ada, harmless(f"reads-{number}", WORK, volumes=volumes)).json()[0]["id"])
    door.running.wait_for("hers is given", lambda: answers[0] in made(stage, WORK))
    assert "ada may not get Secret crown-jewels" in door.ended(answers[1])
    assert answers[1] not in made(stage, WORK)


def test_who_may_not_impersonate_waits_for_the_right_and_is_not_refused(stage: Deployed, door: Door) -> None:
    """The operator forgot to list her: no fault of the job's."""
    eve = door.token("eve", "--namespace", WORK, "--kubernetes-user", "eve")
    job_id = door.post(eve, harmless("eves", WORK)).json()[0]["id"]
    door.running.wait_for("it was tried", lambda: door.running.lines("starburst", "cannot impersonate"))
    (job,) = [job for job in door.running.jobs() if job["id"] == job_id]
    assert job["phase"] != "failed"
    assert job_id not in made(stage, WORK)


def test_an_applied_job_leaves_with_our_credentials_only_from_where_that_is_granted(
    stage: Deployed, tmp_path: Path
) -> None:
    admin = Live(stage.lab, tmp_path)
    admin.let_leave(WORK)
    keys = {"starburst.io/queue": "papers", "starburst.io/cloud": "only"}
    with live(stage.account("starburst"), tmp_path) as running:
        running.configure(WATCHING_WORK.format(offers=OFFER, port=free_port()))
        running.up()
        for namespace in (WORK, "default"):
            item = job_manifest("leaves", "echo away", keys=keys)
            item["metadata"]["namespace"] = namespace
            item["spec"]["template"]["spec"]["schedulerName"] = "chakra"
            admin.apply([item])
        admin.kubectl("wait", "--for=condition=complete", "job/leaves", "-n", WORK, "--timeout=60s")

        def waits() -> str:
            (job,) = [job for job in running.jobs() if job["phase"] == "queued"] or [{"id": ""}]
            return str(job["id"])

        job_id = running.wait_for("the other one waits", waits)
        grant = (
            "kubectl create rolebinding starburst-leave-default -n default --clusterrole=starburst-leave "
            "--serviceaccount=default:default"
        )
        assert grant in running.run("explain", job_id)
        running.wait_for("kubectl shows it", lambda: grant in admin.kubectl("describe", "job", "leaves"))
        admin.kubectl(*grant.split()[1:])
        admin.kubectl("wait", "--for=condition=complete", "job/leaves", "--timeout=90s")
        assert {job["site"] for job in running.jobs()} == {"cloud"}
