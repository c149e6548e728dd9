"""The Kubernetes boundary: what a submitter may have the scheduler do there, tried as an attacker would."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from starburst.app.bus import hints_of
from starburst.app.config import parse_config
from starburst.app.config_bus import BusConfig
from starburst.app.errors import UserError
from starburst.app.sources import Source
from starburst.app.submitting import read_sources, submit
from starburst.bus.hints import Outcome
from starburst.bus.messages import Topics
from starburst.clusters.kubernetes.entitled import is_denied
from starburst.core.events import LeaveRuled, RunEnd, RunEnded, SiteSynced
from starburst.core.explain import explain
from starburst.core.jobs import JobRecord
from starburst.core.scheduler import Scheduler
from starburst.core.settings import Settings
from starburst.domain.job import ANYBODY, OWNER, CloudChoice, Job, Submission, Submitter, Workload
from starburst.domain.resources import Resources
from starburst.kube.api import ApiError
from starburst.runs.ports import Run
from starburst.store import codec
from starburst.store.store import Store
from starburst.store.tokens import Role, Token, create, find
from tests.builders import HOUR, Desk, job
from tests.clusters.kubernetes.scene import NS, Scene, a_job, play
from tests.kube_unit.server import Asked
from translator.errors import ManifestError
from translator.pod_security import LEVELS
from translator.tenancy import Grant, Tenancy, rule

RULES = Tenancy("jobs", ("shared",), queues={"papers": Grant(("papers",), ("wandb",))})

#: The manifest of the trial, as it was taken with a token of one queue.
PWN: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "pwn",
        "namespace": "kube-system",
        "labels": {"starburst.io/queue": "papers"},
        "annotations": {"starburst.io/cloud": "never"},
    },
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "serviceAccountName": "cluster-boss",
                "hostPID": True,
                "hostNetwork": True,
                "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
                "containers": [
                    {
                        "name": "main",
                        "image": "busybox",
                        "command": ["sh"],
                        "securityContext": {"privileged": True},
                        "envFrom": [{"secretRef": {"name": "crown-jewels"}}],
                        "volumeMounts": [{"name": "host", "mountPath": "/host"}],
                    }
                ],
            }
        }
    },
}


def a_manifest(
    pod: Mapping[str, Any] = {}, container: Mapping[str, Any] = {}, **metadata: Any
) -> dict[str, Any]:
    """A harmless Job with something in its pod's spec or its container."""
    main = {"name": "main", "image": "busybox", "command": ["sh"], **container}
    spec = {"restartPolicy": "Never", "containers": [main], **pod}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "mine", "annotations": {"starburst.io/cloud": "never"}, **metadata},
        "spec": {"template": {"spec": spec}},
    }


def errors(
    manifest: Mapping[str, Any],
    submitter: Submitter = ANYBODY,
    *,
    queue: str = "papers",
    rules: Tenancy = RULES,
    leaves: bool = False,
) -> list[ManifestError]:
    return rule(rules, manifest, queue, submitter, leaves=leaves).errors


def fields(manifest: Mapping[str, Any], submitter: Submitter = ANYBODY, **more: Any) -> list[str]:
    """What is refused, without the way there."""
    found = [error.field for error in errors(manifest, submitter, **more)]
    return [path.removeprefix("spec.template.spec.") for path in found]


# --- the whole of it --------------------------------------------------------------------------------------


def test_the_manifest_that_was_cluster_admin_is_refused_by_every_one_of_its_fields() -> None:
    assert fields(PWN) == [
        "metadata.namespace",
        "hostNetwork",
        "hostPID",
        "volumes[0].hostPath",
        "containers[0].securityContext.privileged",
        "serviceAccountName",
        "containers[0].envFrom[0].secretRef.name",
    ]


def test_a_pod_is_read_as_a_job_is() -> None:
    metadata = {"name": "pwn", "namespace": "kube-system"}
    pod = {"kind": "Pod", "metadata": metadata, "spec": PWN["spec"]["template"]["spec"]}
    assert len(errors(pod)) == 7


def test_a_manifest_that_a_server_seems_to_have_written_is_judged_as_it_is() -> None:
    """What is read from a server loses the volumes that its admission adds; this one was never there."""
    host = {"name": "kube-api-access-abcde", "hostPath": {"path": "/"}}
    mount = {"name": "kube-api-access-abcde", "mountPath": "/host"}
    manifest = a_manifest({"volumes": [host]}, {"volumeMounts": [mount]}, uid="f00")
    assert fields(manifest) == ["volumes[0].hostPath"]


# --- namespaces -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("submitter", "queue", "allowed"),
    [
        (ANYBODY, "papers", {"jobs", "shared", "papers"}),
        (ANYBODY, "other", {"jobs", "shared"}),
        (Submitter(namespaces=("mine",)), "other", {"jobs", "shared", "mine"}),
        (OWNER, "other", {"jobs", "shared", "papers"}),
    ],
)
def test_jobs_go_where_config_queue_or_token_say_and_nowhere_else(
    submitter: Submitter, queue: str, allowed: set[str]
) -> None:
    asked = ("", "jobs", "shared", "papers", "mine", "kube-system", "default", "starburst-system")
    taken = {name for name in asked if not errors(a_manifest(namespace=name), submitter, queue=queue)}
    assert taken == {"", *allowed}


def test_the_refusal_names_the_namespace_and_where_jobs_may_go() -> None:
    (error,) = errors(a_manifest(namespace="kube-system"), queue="other")
    assert error.line == (
        'metadata.namespace: "kube-system": jobs of queue other go to jobs or shared; name one of these, or '
        "have it added to cluster.namespaces, to the queue's or to the token's"
    )


# --- Pod Security Standards -------------------------------------------------------------------------------

CONTEXT = "containers[0].securityContext"
ADDED = f"{CONTEXT}.capabilities.add[0]"
#: What is asked for, what of it is refused, and the levels that refuse it.
BOTH, STRICT = ("restricted", "baseline"), ("restricted",)
ASKED: list[tuple[dict[str, Any], dict[str, Any], str, tuple[str, ...]]] = [
    ({"hostIPC": True}, {}, "hostIPC", BOTH),
    ({"hostPID": "true"}, {}, "hostPID", BOTH),
    ({"securityContext": {"windowsOptions": {"hostProcess": True}}}, {},
     "securityContext.windowsOptions.hostProcess", BOTH),
    ({}, {"securityContext": {"privileged": True}}, f"{CONTEXT}.privileged", BOTH),
    ({}, {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, ADDED, BOTH),
    ({}, {"securityContext": {"capabilities": {"add": ["ALL"]}}}, ADDED, BOTH),
    ({}, {"securityContext": {"capabilities": {"add": ["CHOWN"]}}}, ADDED, STRICT),
    ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, {}, "volumes[0].hostPath", BOTH),
    ({"volumes": [{"name": "v", "hostPath": {}}]}, {}, "volumes[0].hostPath", BOTH),
    ({"volumes": [{"name": "v", "nfs": {"server": "filer", "path": "/"}}]}, {}, "volumes[0].nfs", STRICT),
    ({"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {}}]}, {}, "volumes[0].hostPath", BOTH),
    ({}, {"ports": [{"containerPort": 80, "hostPort": 80}]}, "containers[0].ports[0].hostPort", BOTH),
    ({}, {"livenessProbe": {"httpGet": {"host": "169.254.169.254"}}},
     "containers[0].livenessProbe.httpGet.host", BOTH),
    ({}, {"lifecycle": {"preStop": {"tcpSocket": {"host": "db"}}}},
     "containers[0].lifecycle.preStop.tcpSocket.host", BOTH),
    ({}, {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}},
     f"{CONTEXT}.appArmorProfile.type", BOTH),
    ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, {},
     "securityContext.seccompProfile.type", BOTH),
    ({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}, {},
     "securityContext.seLinuxOptions.type", BOTH),
    ({"securityContext": {"seLinuxOptions": {"user": "system_u"}}}, {},
     "securityContext.seLinuxOptions.user", BOTH),
    ({}, {"securityContext": {"procMount": "Unmasked"}}, f"{CONTEXT}.procMount", BOTH),
    ({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}, {},
     "securityContext.sysctls[0].name", BOTH),
    ({}, {"securityContext": {"allowPrivilegeEscalation": True}},
     f"{CONTEXT}.allowPrivilegeEscalation", STRICT),
    ({"securityContext": {"runAsUser": 0}}, {}, "securityContext.runAsUser", STRICT),
    ({}, {"securityContext": {"runAsNonRoot": False}}, f"{CONTEXT}.runAsNonRoot", STRICT),
    ({"serviceAccountName": "cluster-boss"}, {}, "serviceAccountName", BOTH),
    ({"serviceAccount": "cluster-boss"}, {}, "serviceAccount", BOTH),
    ({"priorityClassName": "system-node-critical"}, {}, "priorityClassName", BOTH),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "container", "field", "levels"), ASKED)
@pytest.mark.parametrize("level", LEVELS)
def test_each_level_refuses_what_its_standard_names(
    pod: dict[str, Any], container: dict[str, Any], field: str, levels: tuple[str, ...], level: str
) -> None:
    rules = Tenancy("jobs", pod_security=level)
    assert fields(a_manifest(pod, container), rules=rules) == ([field] if level in levels else [])
    assert fields(a_manifest(pod, container), OWNER, rules=rules) == []


@pytest.mark.parametrize("kind", ["initContainers", "ephemeralContainers"])
def test_no_container_is_overlooked(kind: str) -> None:
    second = {"name": "b", "image": "x", "securityContext": {"privileged": True}}
    assert fields(a_manifest({kind: [second]})) == [f"{kind}[0].securityContext.privileged"]


@pytest.mark.parametrize(
    ("key", "value", "refused"),
    [
        ("container.apparmor.security.beta.kubernetes.io/main", "unconfined", True),
        ("container.apparmor.security.beta.kubernetes.io/main", "runtime/default", False),
        ("seccomp.security.alpha.kubernetes.io/pod", "unconfined", True),
        ("container.seccomp.security.alpha.kubernetes.io/main", "localhost/mine", False),
        ("note", "unconfined", False),
    ],
)
def test_old_servers_are_not_asked_by_annotation(key: str, value: str, refused: bool) -> None:
    manifest = a_manifest()
    manifest["spec"]["template"]["metadata"] = {"annotations": {key: value}}
    assert bool(errors(manifest)) is refused


def test_an_ordinary_job_and_one_that_keeps_to_the_whole_standard_pass() -> None:
    assert errors(a_manifest()) == []
    context = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
        "runAsUser": 1000,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    volumes = [{"name": "v", "emptyDir": {}}, {"name": "c", "configMap": {"name": "c"}}]
    kept = a_manifest({"volumes": volumes, "serviceAccountName": "default"}, {"securityContext": context})
    assert errors(kept) == []


# --- Secrets ----------------------------------------------------------------------------------------------


def _volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", **source}]}


@pytest.mark.parametrize(
    ("pod", "container"),
    [
        ({}, {"envFrom": [{"secretRef": {"name": "{}"}}]}),
        ({}, {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "{}", "key": "k"}}}]}),
        ({"imagePullSecrets": [{"name": "{}"}]}, {}),
        (_volume(secret={"secretName": "{}"}), {}),
        (_volume(projected={"sources": [{"secret": {"name": "{}"}}]}), {}),
        (_volume(csi={"driver": "d", "nodePublishSecretRef": {"name": "{}"}}), {}),
        (_volume(csi={"driver": "d", "volumeAttributes": {"secretName": "{}"}}), {}),
        (
            {"initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "{}", "optional": True}}]}]},
            {},
        ),
    ],
)
def test_a_secret_is_used_only_if_queue_or_token_name_it_however_it_is_asked_for(
    pod: dict[str, Any], container: dict[str, Any]
) -> None:
    def asking(name: str) -> Mapping[str, Any]:
        found: dict[str, Any] = json.loads(json.dumps(a_manifest(pod, container)).replace("{}", name))
        return found

    (error,) = errors(asking("crown-jewels"))
    assert error.value == "crown-jewels"
    assert errors(asking("wandb")) == []
    assert len(errors(asking("wandb"), queue="other")) == 1
    assert errors(asking("mine"), Submitter(secrets=("mine",))) == []
    assert errors(asking("crown-jewels"), OWNER) == []


def test_what_a_kubernetes_user_may_get_is_asked_of_the_cluster_and_does_not_leave_it() -> None:
    manifest = a_manifest({}, {"envFrom": [{"secretRef": {"name": "hers"}}]})
    ada = Submitter(kubernetes_user="ada")
    assert rule(RULES, manifest, "papers", ada).to_ask == ("hers",)
    assert errors(manifest, ada) == []
    (error,) = errors(manifest, ada, leaves=True)
    assert "starburst.io/cloud: never" in error.mend


# --- checkpoints ------------------------------------------------------------------------------------------


def test_a_mount_of_a_volume_that_the_manifest_does_not_have_is_refused_to_everybody() -> None:
    """Starburst adds the volume with everybody's checkpoints under that name."""
    mount = a_manifest({}, {"volumeMounts": [{"name": "starburst-checkpoints", "mountPath": "/all"}]})
    for submitter in (ANYBODY, OWNER):
        assert fields(mount, submitter) == ["containers[0].volumeMounts[0].name"]
    declared = _volume(emptyDir={})
    declared["volumes"][0]["name"] = "starburst-checkpoints"
    assert fields(a_manifest(declared), OWNER) == ["volumes[0].name"]


@pytest.mark.parametrize(
    ("checkpoints", "source"),
    [
        ({"persistentVolumeClaim": {"claimName": "ckpt"}}, {"persistentVolumeClaim": {"claimName": "ckpt"}}),
        (
            {"persistentVolumeClaim": {"claimName": "ckpt"}},
            {"ephemeral": {"volumeClaimTemplate": {"spec": {"dataSource": {"name": "ckpt"}}}}},
        ),
        ({"nfs": {"server": "f", "path": "/c"}}, {"nfs": {"server": "f", "path": "/c/others-job"}}),
        ({"nfs": {"server": "f", "path": "/c"}}, {"nfs": {"server": "f", "path": "/"}}),
        ({"nfs": {"server": "f", "path": "/c"}}, {"nfs": {"server": "f", "path": "/x/../c"}}),
        ({"hostPath": {"path": "/c"}}, {"hostPath": {"path": "//c/"}}),
    ],
)
def test_the_volume_of_all_checkpoints_is_not_had_under_another_name(
    checkpoints: dict[str, Any], source: dict[str, Any]
) -> None:
    rules = Tenancy("jobs", pod_security="privileged", checkpoints=checkpoints)
    assert errors(a_manifest(_volume(**source)), rules=rules)
    others = json.loads(json.dumps(source).replace("ckpt", "mine").replace("/c", "/d"))
    if "/" not in (others.get("nfs") or {}).values() and ".." not in str(others):
        assert not errors(a_manifest(_volume(**others)), rules=rules)


# --- every door: command line, HTTP, MQTT -----------------------------------------------------------------

CONFIG = """
cluster: {kind: kubernetes, namespace: jobs}
cloud: {offers: []}
queues: [{name: papers, namespaces: [papers], secrets: [wandb]}]
"""


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store.open(tmp_path / "starburst.db") as found:
        found.set_fact("config", parse_config(yaml.safe_load(CONFIG), "c").model_dump(mode="json"))
        yield found


def read(store: Store, manifest: Mapping[str, Any], submitter: Submitter) -> list[Submission]:
    return read_sources(store, [Source("job.yaml", json.dumps(manifest))], "ada", submitter=submitter)


def test_a_refused_job_is_a_line_for_each_problem_and_nothing_is_kept(store: Store) -> None:
    with pytest.raises(UserError) as refused:
        read(store, PWN, ANYBODY)
    lines = str(refused.value).splitlines()
    assert len(lines) == 7
    assert lines[2] == (
        "job.yaml, job pwn: spec.template.spec.hostPID: true: is more than cluster.pod_security: restricted "
        "allows; remove it"
    )
    assert store.requests(10) == []


def test_who_submitted_is_kept_with_the_job(store: Store) -> None:
    ada = Submitter(namespaces=("hers",), kubernetes_user="ada", kubernetes_groups=("lab",))
    manifest = a_manifest(namespace="hers", labels={"starburst.io/queue": "papers"})
    submit(store, read(store, manifest, ada))
    (request,) = store.requests(10)
    assert request.submission is not None
    assert request.submission.workload.submitter == ada


@pytest.mark.parametrize(
    ("role", "queues", "admin"),
    [
        (Role.VIEWER, None, False),
        (Role.SUBMITTER, None, False),
        (Role.ADMIN, ("papers",), False),
        (Role.ADMIN, None, True),
    ],
)
def test_a_token_rules_the_cluster_only_if_it_is_an_admins_of_all_queues(
    store: Store, role: Role, queues: tuple[str, ...] | None, admin: bool
) -> None:
    grant = Submitter(False, ("hers",), ("key",), "ada", ("lab",))
    secret = create(store, Token("t", role, queues, time.time(), grant=grant))
    token = find(store, secret)
    assert token is not None
    assert token.submitter == Submitter(admin, ("hers",), ("key",), "ada", ("lab",))


def test_a_hint_from_the_bus_has_the_rights_of_anybody(store: Store) -> None:
    bus = BusConfig(kind="mqtt", accept=["submit"])
    hints = hints_of(store, bus, Scheduler(Settings()), lambda _: None, {})
    told = {"id": "1", "manifest": json.dumps(PWN)}
    asyncio.run(hints.take(Topics("lab").hint("submit", "ada"), json.dumps(told).encode()))
    assert dict(hints.counts) == {("submit", Outcome.REFUSED): 1}
    assert store.requests(10) == []


# --- where the object is made: what lies in the store obeys as well ---------------------------------------


def stored(scene: Scene, manifest: Mapping[str, Any], submitter: Submitter = ANYBODY) -> None:
    """A job that is in the store already, whoever let it in."""
    job = Job("old", "old", (Resources(1, 1000, 0),), queue="papers", cloud=CloudChoice.NEVER)
    scene.desk.submit(Submission(job, Workload(manifest=json.dumps(manifest), submitter=submitter)))
    scene.take_up("old")


def test_a_job_from_before_the_check_makes_no_object_and_says_what_it_may_not(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.tenancy = RULES
        scene.reborn()
        await scene.watch()
        stored(scene, PWN)
        await scene.start("old", "n0")
        (end,) = [event for event in scene.reports if isinstance(event, RunEnded)]
        assert end.end is RunEnd.REFUSED
        assert "spec.template.spec.hostPID: true" in end.message
        assert scene.jobs() == []

    play(tmp_path, act, watching=False)


def test_a_workload_that_was_stored_before_submitters_were_is_anybodys() -> None:
    old = '{"manifest": "{}", "command": ["sh"]}'
    assert codec.decode(Workload, old).submitter == ANYBODY


def test_what_an_admin_submitted_is_made_as_it_is(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        stored(scene, a_job("x", **{"suspend": False}) | {"metadata": {"name": "x", "namespace": NS}}, OWNER)
        await scene.start("old", "n0")
        assert scene.jobs() == ["old-1"]
        assert "Impersonate-User" not in made(scene).headers

    play(tmp_path, act)


def made(scene: Scene) -> Asked:
    """The call that made a Job."""
    return next(call for call in scene.world.asked if call.method == "POST" and call.path.endswith("/jobs"))


ADA = Submitter(kubernetes_user="ada", kubernetes_groups=("lab",))


def test_a_token_with_a_kubernetes_user_has_its_jobs_made_in_that_name(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        stored(scene, a_manifest(namespace=NS), ADA)
        await scene.start("old", "n0")
        assert made(scene).headers["Impersonate-User"] == "ada"
        assert made(scene).headers["Impersonate-Group"] == "lab"
        others = [call for call in scene.world.asked if call.method != "POST"]
        assert not any("Impersonate-User" in call.headers for call in others)

    play(tmp_path, act)


def test_what_the_clusters_rbac_refuses_to_the_submitter_is_refused_for_good_in_its_words(
    tmp_path: Path,
) -> None:
    async def act(scene: Scene) -> None:
        scene.world.fail(f"POST /apis/batch/v1/namespaces/{NS}/jobs", status=403, reason="Forbidden")
        stored(scene, a_manifest(namespace=NS), ADA)
        await scene.start("old", "n0")
        (end,) = [event for event in scene.reports if isinstance(event, RunEnded)]
        assert (end.end, end.message) == (RunEnd.REFUSED, "the cluster refuses it: as ordered")

    play(tmp_path, act)


@pytest.mark.parametrize(
    "words", ["exceeded quota: pods", 'User "starburst" cannot impersonate resource "users" in API group ""']
)
def test_a_full_quota_and_a_right_that_we_lack_are_no_refusal_of_the_submitter(words: str) -> None:
    run = Run(Job("a", "a", (Resources(1),)), 1, (), Workload(submitter=ADA))
    assert not is_denied(ApiError(403, "Forbidden", words), run)
    assert is_denied(ApiError(403, "Forbidden", 'User "ada" cannot create resource "jobs"'), run)
    ours = replace(run, workload=Workload())
    assert not is_denied(ApiError(403, "Forbidden", 'User "starburst" cannot create resource "jobs"'), ours)


def test_a_secret_is_given_only_if_the_cluster_lets_the_submitters_user_get_it(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.allows = lambda asked: asked.get("resource") != "secrets"
        stored(scene, a_manifest({}, {"envFrom": [{"secretRef": {"name": "hers"}}]}, namespace=NS), ADA)
        await scene.start("old", "n0")
        (end,) = [event for event in scene.reports if isinstance(event, RunEnded)]
        assert "Kubernetes user ada may not get Secret hers" in end.message
        assert scene.jobs() == []
        (asked,) = [call for call in scene.world.asked if call.path.endswith("selfsubjectaccessreviews")]
        assert asked.headers["Impersonate-User"] == "ada"
        assert asked.body["spec"]["resourceAttributes"] == {
            "verb": "get",
            "resource": "secrets",
            "name": "hers",
            "namespace": NS,
        }

    play(tmp_path, act)


# --- adopted jobs leave with our credentials for the cloud ------------------------------------------------


def adopted_with(tmp_path: Path, allows: Any, check: Callable[[Scene, str], Awaitable[None]]) -> None:
    async def act(scene: Scene) -> None:
        scene.world.allows = lambda asked: allows if asked.get("verb") == "use" else True
        item = a_job()
        item["spec"]["template"]["spec"]["serviceAccountName"] = "trainer"
        await check(scene, await scene.adopt(item))

    play(tmp_path, act)


def test_before_an_adopted_job_may_leave_the_cluster_is_asked_about_the_account_of_its_pods(
    tmp_path: Path,
) -> None:
    async def check(scene: Scene, job_id: str) -> None:
        assert scene.desk.submissions[job_id].job.confined == ""
        (asked,) = [call for call in scene.world.asked if call.path.endswith("/subjectaccessreviews")]
        assert asked.body["spec"] == {
            "user": f"system:serviceaccount:{NS}:trainer",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{NS}", "system:authenticated"],
            "resourceAttributes": {
                "verb": "use",
                "group": "starburst.io",
                "resource": "queues",
                "name": "q",
                "namespace": NS,
            },
        }

    adopted_with(tmp_path, allows=True, check=check)


def test_one_that_may_not_leave_is_taken_in_with_the_reason_and_the_command_that_lets_it(
    tmp_path: Path,
) -> None:
    async def check(scene: Scene, job_id: str) -> None:
        assert scene.desk.submissions[job_id].job.confined == (
            f"service account trainer of namespace {NS} may not use queue q in the cloud; to let it: kubectl "
            f"create rolebinding starburst-leave-trainer -n {NS} --clusterrole=starburst-leave "
            f"--serviceaccount={NS}:trainer"
        )

    adopted_with(tmp_path, allows=False, check=check)


def test_a_grant_and_its_withdrawal_are_heard_of_while_the_job_waits(tmp_path: Path) -> None:
    async def check(scene: Scene, job_id: str) -> None:
        def ruled() -> list[str]:
            return [event.why for event in scene.reports if isinstance(event, LeaveRuled)]

        scene.world.allows = lambda _: True
        await scene.until(ruled)
        scene.desk.records[job_id].confined = ruled()[-1]
        scene.world.allows = lambda _: False
        await scene.until(lambda: len(ruled()) == 2)
        assert ruled()[0] == ""
        assert "trainer" in ruled()[1]

    adopted_with(tmp_path, allows=False, check=check)


def test_no_answer_is_no_permission(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.fail("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", status=403)
        job_id = await scene.adopt()
        assert "the cluster does not say whether" in scene.desk.submissions[job_id].job.confined

    play(tmp_path, act)


def test_a_job_that_was_adopted_before_the_check_is_ruled_on_before_any_wait_counts_as_over(
    tmp_path: Path,
) -> None:
    async def check(scene: Scene, job_id: str) -> None:
        scene.world.allows = lambda asked: asked.get("verb") != "use"
        before = len(scene.reports)
        await scene.restart()
        told = scene.reports[before:]
        ruled = [type(event) for event in told].index(LeaveRuled)
        assert ruled < [type(event) for event in told].index(SiteSynced)

    adopted_with(tmp_path, allows=True, check=check)


WHY = "service account default of namespace team may not use queue q in the cloud"


@pytest.mark.parametrize("choice", ["auto", "only"])
def test_the_core_keeps_who_may_not_leave_says_why_and_lets_it_go_when_it_may(choice: str) -> None:
    desk = Desk(1)
    desk.submit(job("full", 1))
    desk.submit(job("stays", 1, cloud=choice, confined=WHY))
    desk.wait(2 * HOUR)
    assert (desk.phase("stays"), desk.instances) == ("queued", [])
    assert WHY in desk.why("stays", "no-offer")
    assert WHY in explain(desk.scheduler, desk["stays"], str).sentence
    assert len(desk.log("stays", "no-offer")) == 1
    desk.tell(LeaveRuled("stays", ""))
    desk.wait(1.0)
    assert (desk.phase("stays"), len(desk.instances)) == ("offloading", 1)


def test_a_withdrawn_right_keeps_a_job_that_has_not_left_and_leaves_alone_one_that_has() -> None:
    desk = Desk(1)
    desk.submit(job("full", 1))
    desk.submit(job("waits", 1), job("gone", 1, cloud="only"))
    desk.offload("gone")
    desk.tell(LeaveRuled("waits", WHY), LeaveRuled("gone", WHY))
    desk.wait(2 * HOUR)
    assert (desk.phase("waits"), desk.phase("gone")) == ("queued", "running")
    assert "then it waits on" not in explain(desk.scheduler, desk["waits"], str).sentence


def test_the_ruling_survives_a_restart() -> None:
    desk = Desk(1)
    desk.submit(job("full", 1), job("stays", 1, confined=WHY))
    text = codec.encode(desk["stays"])
    assert codec.decode(JobRecord, text).confined == WHY
