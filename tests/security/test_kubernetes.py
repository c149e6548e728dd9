"""The Kubernetes boundary: what a submitter may have the scheduler do there, tried as an attacker would."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from starburst.app.config import parse_config
from starburst.app.config.bus import BusConfig
from starburst.app.errors import UserError
from starburst.app.jobs.submitting import read_sources, submit
from starburst.app.reading.sources import ManifestText
from starburst.app.wiring.bus import hints_of
from starburst.bus.hints import HintOutcome
from starburst.bus.messages import Topics
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.domain.job import ANYBODY, OWNER, Submission, Submitter
from starburst.store.store import Store
from starburst.store.tokens import Role, Token, create, find
from translator.errors import ManifestError
from translator.manifests.pod_security import LEVELS
from translator.manifests.tenancy import Grant, Tenancy, rule

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
    return read_sources(store, [ManifestText("job.yaml", json.dumps(manifest))], "ada", submitter=submitter)


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
    assert dict(hints.counts) == {("submit", HintOutcome.REFUSED): 1}
    assert store.requests(10) == []
