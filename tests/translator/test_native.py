"""Manifests for a real Kubernetes, as people have them: kept whole, and held back from clouds that lack it.

Those under native/ are whole cases; each is read as it is, and with starburst.io/cloud: never.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from starburst.domain.job import CloudChoice
from starburst.domain.resources import Resources
from tests.translator.manifests import CONTAINER, GOOD_JOB, errors, job, pod, read, read_one
from translator.field import ONLY_THE_CLUSTER

CASES = Path(__file__).parent / "native"
POD = "spec.template.spec"
GIB = 1024


@dataclass(frozen=True)
class Case:
    """What becomes of a manifest."""

    #: What each task asks for, and how many there are.
    task: Resources
    #: Fields that keep the job out of a cloud.
    held: tuple[str, ...] = ()
    #: Fields of which something is lost, in a cloud and everywhere.
    lost_away: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    tasks: int = 1


EXPECTED = {
    "build": Case(Resources.of(0, 2, 4), (f"{POD}.volumes[0].secret",)),
    "cloud-account": Case(
        Resources.of(0, 0.25, 0.5),
        (f"{POD}.volumes[0].projected", f"{POD}.volumes[1].csi", f"{CONTAINER}.envFrom"),
    ),
    "distributed": Case(
        Resources.of(8, 90, 900),
        (f"{CONTAINER}.env[1].valueFrom", f"{CONTAINER}.command[3]", f"{CONTAINER}.env[0].value"),
        tasks=4,
    ),
    "fine-tune": Case(
        Resources.of(1, 8, 64), (f"{POD}.volumes[0].persistentVolumeClaim", f"{CONTAINER}.env[0].valueFrom")
    ),
    "hook": Case(
        Resources.of(0, 1),
        lost_away=(
            f"{POD}.hostAliases",
            f"{POD}.dnsConfig",
            f"{CONTAINER}.livenessProbe",
            f"{CONTAINER}.lifecycle",
        ),
        lost=(f"{POD}.priorityClassName", f"{CONTAINER}.resources"),
    ),
    "host-network": Case(
        Resources.of(8), ("spec.hostNetwork", "spec.hostIPC", "spec.containers[0].securityContext.privileged")
    ),
    "init": Case(Resources.of(1, 6, 32), (f"{POD}.initContainers[0]", f"{POD}.initContainers[1]")),
    "pi": Case(Resources.of(0, 0.5, 0.125), lost_away=("spec.backoffLimit", f"{POD}.restartPolicy")),
    "policies": Case(
        Resources.of(0, 2, 4),
        tasks=3,
        lost_away=("spec.backoffLimitPerIndex", "spec.maxFailedIndexes", "spec.podFailurePolicy"),
    ),
    "sandbox": Case(Resources(0, 1250, GIB + 160), lost_away=("spec.runtimeClassName",)),
    "script": Case(
        Resources.of(0, 4, 8),
        (
            f"{POD}.volumes[0].configMap",
            f"{POD}.volumes[1].ephemeral",
            f"{POD}.volumes[2].rbd",
            f"{CONTAINER}.volumeDevices",
            f"{CONTAINER}.env[0].valueFrom",
        ),
    ),
    "shared-disk": Case(
        Resources(0, 32_000, 65_536, others=(("ephemeral-storage", 100 * GIB * 1024**2),)),
        (f"{POD}.volumes[0].nfs",),
        lost=(f'{CONTAINER}.resources.limits["ephemeral-storage"]',),
    ),
    "sidecar": Case(Resources.of(0, 4.5, 8.25), tuple(f"{POD}.initContainers[{i}]" for i in range(3))),
    "spot": Case(
        Resources.of(0, 16, 8),
        lost=(
            f"{POD}.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution",
            f"{POD}.topologySpreadConstraints[0]",
            f"{POD}.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
        ),
        lost_away=(
            f"{POD}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            ".nodeSelectorTerms[0].matchExpressions[1]",
        ),
    ),
    "two-containers": Case(Resources.of(2, 5, 10), ("spec.containers[1]", "spec.containers[2]")),
    "whole-pod": Case(Resources.of(1, 6, 16), ("spec.containers[1]",)),
    "work-queue": Case(Resources.of(0, 1), tasks=2, lost_away=(f"{POD}.restartPolicy",)),
}


def case(name: str) -> Any:
    return yaml.safe_load((CASES / f"{name}.yaml").read_text())


def on_host(manifest: dict[str, Any], **container: Any) -> dict[str, Any]:
    """The job, to be run on a machine itself when it leaves."""
    manifest["metadata"]["annotations"] = {"starburst.io/runtime": "host"}
    manifest["spec"]["template"]["spec"]["containers"][0].update(container)
    return manifest


@pytest.mark.parametrize("args", [None, ["--lr=$(LR)"]])
def test_an_image_with_an_entry_point_of_its_own_may_leave(args: list[str] | None) -> None:
    manifest = job("CONTAINER/command", None)
    manifest["spec"]["template"]["spec"]["containers"][0].update(
        args=args, env=[{"name": "LR", "value": "1"}]
    )
    found = read_one(manifest, native=True)
    assert (found.workload.command, found.workload.args) == ((), ("--lr=1",) if args else ())


def staying(manifest: dict[str, Any]) -> dict[str, Any]:
    metadata = manifest["metadata"]
    annotations = {**metadata.get("annotations", {}), "starburst.io/cloud": "never"}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def fields(notes: tuple[str, ...]) -> set[str]:
    return {note.split(": ")[0] for note in notes}


def test_every_manifest_has_its_case() -> None:
    assert {path.stem for path in CASES.glob("*.yaml")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_job_that_stays_is_taken_with_all_that_kubernetes_does(name: str) -> None:
    manifest, expected = staying(case(name)), EXPECTED[name]
    found = read_one(manifest, native=True)
    assert found.job.tasks == (expected.task,) * expected.tasks
    assert found.job.cloud is CloudChoice.NEVER
    assert fields(found.notes) == set(expected.lost)
    assert found.workload.manifest is not None
    assert json.loads(found.workload.manifest) == manifest


@pytest.mark.parametrize("name", EXPECTED)
def test_what_only_the_cluster_can_do_is_named_unless_the_job_stays(name: str) -> None:
    expected = EXPECTED[name]
    lines = errors(case(name), native=True)
    assert [line.split(": ")[1] for line in lines] == list(expected.held)
    assert all(line.endswith(f"; {ONLY_THE_CLUSTER}") for line in lines)
    if not lines:
        found = read_one(case(name), native=True)
        assert fields(found.notes) == {*expected.lost, *expected.lost_away}
        assert {n.split(": ")[0] for n in found.notes if n.endswith("in the cloud")} == set(
            expected.lost_away
        )


@pytest.mark.parametrize(
    ("manifest", "line"),
    [
        (
            job("POD/initContainers", [{"name": "fetch"}]),
            f"{POD}.initContainers[0]: the init container fetch does not go along to a cloud",
        ),
        (
            job("CONTAINER/args", ["--rank=$(JOB_COMPLETION_INDEX)"]),
            f"{CONTAINER}.args[0]: $(JOB_COMPLETION_INDEX) is known only when the job runs",
        ),
        (
            on_host(job("CONTAINER/command", None)),
            f"{CONTAINER}.command: is missing, and only a container knows the image's own",
        ),
        (
            on_host(job("CONTAINER/command", None), args=["--lr=1"]),
            f"{CONTAINER}.args: arguments without a command: only a container knows the image's own",
        ),
        (
            job("CONTAINER/securityContext", {"capabilities": {"add": ["SYS_ADMIN"]}}),
            f"{CONTAINER}.securityContext.capabilities.add[0]: the capability SYS_ADMIN is not given on a "
            "machine that jobs share",
        ),
        (job("POD/hostPID", True), f"{POD}.hostPID: does not go along to a cloud"),
    ],
)
def test_the_mend_is_in_the_line(manifest: dict[str, Any], line: str) -> None:
    assert errors(manifest, native=True) == [
        f"train.yaml, document 1: {line}; only the cluster can do this: "
        "set the annotation starburst.io/cloud: never"
    ]


def test_a_limit_above_the_request_is_no_ceiling_in_the_cloud_and_that_is_said() -> None:
    """A machine is shared by requests: a container that has more memory than its own is killed there."""
    limits = {"cpu": 4, "memory": "16Gi", "nvidia.com/gpu": 1}
    burstable = job("CONTAINER/resources", {"requests": {"cpu": 4, "memory": "4Gi"}, "limits": limits})
    assert read_one(burstable, native=True).notes == (
        f"{CONTAINER}.resources.limits.memory: is not the ceiling, which the request of 4Gi is in the cloud",
    )
    assert read_one(staying(burstable), native=True).notes == ()
    assert read_one(burstable).notes == ()


@pytest.mark.parametrize("place", ["POD", "CONTAINER"])
def test_a_group_without_a_user_is_the_clusters_alone_and_that_is_said(place: str) -> None:
    found = read_one(job(f"{place}/securityContext", {"runAsGroup": 100}), native=True)
    (note,) = found.notes
    assert note.endswith("securityContext.runAsGroup: is not passed on without runAsUser in the cloud")
    assert not read_one(job(f"{place}/securityContext", {"runAsGroup": 9, "runAsUser": 9}), native=True).notes


@pytest.mark.parametrize("memory", ["400m", 512, "64Ki", "5Mi"])
def test_a_request_that_no_container_starts_with_keeps_a_job_on_the_cluster(memory: Any) -> None:
    """There it is no ceiling, and most often the unit is wrong."""
    found = read_one(job("CONTAINER/resources", {"requests": {"cpu": 1, "memory": memory}}), native=True)
    assert found.job.stays == "stays on the cluster: its memory"
    assert found.notes == (f"{found.job.stays}; ask for what it uses, such as 512Mi",)
    enough = job("CONTAINER/resources", {"requests": {"cpu": 1, "memory": "6Mi"}})
    assert read_one(enough, native=True).job.stays == ""


def test_the_retries_of_one_task_are_the_clusters_and_that_is_said() -> None:
    """The Job controller makes its pods anew; in the cloud nobody does, unless the annotation says so."""
    limited = job("spec/backoffLimit", 3)
    found = read_one(limited, native=True)
    assert found.job.retries == 0
    assert found.notes == (
        "spec.backoffLimit: without starburst.io/retries a failed command is not run again in the cloud",
    )
    limited["metadata"]["annotations"] = {"starburst.io/retries": "3"}
    assert read_one(limited, native=True).notes == ()
    assert read_one(staying(job("spec/backoffLimit", 3)), native=True).notes == ()
    gang = job("spec/backoffLimit", 3)
    gang["spec"] |= {"parallelism": 2, "completions": 2}
    found = read_one(gang, native=True)
    assert (found.job.retries, found.notes) == (3, ())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata/namespace", "vision"),
        ("spec/backoffLimit", 0),
        ("POD/schedulerName", "chakra"),
        ("metadata|annotations|starburst.io/decision", "waits"),
        ("spec|template|metadata|labels|starburst.io/job", "train-a1b2c"),
        ("CONTAINER/startupProbe", {"exec": {"command": ["true"]}}),
    ],
)
def test_what_kubernetes_does_by_itself_needs_no_note(path: str, value: object) -> None:
    plain, found = read_one(GOOD_JOB, native=True), read_one(job(path, value), native=True)
    assert (found.job, found.notes) == (plain.job, ())


@pytest.mark.parametrize(
    ("path", "value", "note"),
    [
        (
            "POD/volumes",
            [{"name": "shm", "emptyDir": {}}],
            f"{POD}.volumes[0]: not mounted, paths are the machine's in the cloud",
        ),
        (
            "POD/serviceAccountName",
            "robot",
            f"{POD}.serviceAccountName: the job is not given this account's credentials in the cloud",
        ),
        (
            "CONTAINER/securityContext",
            {"runAsUser": 1000, "seLinuxOptions": {"level": "s0"}},
            f"{CONTAINER}.securityContext: seLinuxOptions: not passed on in the cloud",
        ),
    ],
)
def test_what_is_lost_in_a_cloud_is_said_of_a_job_that_may_leave(path: str, value: object, note: str) -> None:
    assert read_one(job(path, value), native=True).notes == (note,)
    assert read_one(staying(job(path, value)), native=True).notes == ()


@pytest.mark.parametrize(
    ("manifest", "line"),
    [
        (pod(restartPolicy="Always"), 'spec.restartPolicy: "Always": a batch job ends; write Never'),
        (
            job("POD/nodeName", "n1"),
            f'{POD}.nodeName: "n1": Starburst chooses the node; use nodeSelector with kubernetes.io/hostname',
        ),
        (
            job("POD/schedulingGates", [{"name": "wait"}]),
            f"{POD}.schedulingGates: scheduling gates are not supported; submit the job when it may start",
        ),
        (
            job("POD/resourceClaims", [{"name": "gpu"}]),
            f"{POD}.resourceClaims: resource claims are not supported; ask for nvidia.com/gpu under limits",
        ),
        (
            job("POD/resources", {"limits": {"nvidia.com/gpu": 1}}),
            f'{POD}.resources.limits["nvidia.com/gpu"]: 1: '
            "GPUs are given to containers, not to a pod; move it",
        ),
        (
            pod(
                containers=[
                    {"name": name, "command": ["x"], "resources": {"limits": {f"{name}.com/gpu": 1}}}
                    for name in ("nvidia", "amd")
                ]
            ),
            "spec.containers: asks for GPUs of two makers; keep one of the two",
        ),
        (
            job("POD/initContainers", [{"name": "a", "comand": ["x"]}]),
            f"{POD}.initContainers[0].comand: is not a field of a container; did you mean command?",
        ),
        (
            job("metadata|annotations|starburst.io/max-wiat", "1h"),
            'metadata.annotations["starburst.io/max-wiat"]: "1h": Starburst has no such key; '
            "did you mean max-wait?",
        ),
    ],
)
def test_what_concerns_scheduling_is_refused_of_a_job_that_stays_too(
    manifest: dict[str, Any], line: str
) -> None:
    assert errors(staying(manifest), native=True) == [f"train.yaml, document 1: {line}"]


def test_items_of_a_list_have_a_manifest_each_and_their_own_choice_of_cloud() -> None:
    home = staying(job("POD/hostNetwork", True))
    first, second = read({"kind": "List", "items": [GOOD_JOB, home]}, native=True)
    assert [json.loads(s.workload.manifest or "") for s in (first, second)] == [GOOD_JOB, home]
    assert errors({"kind": "List", "items": [home, job("POD/hostNetwork", True)]}, native=True) == [
        f"train.yaml, document 1: items[1].{POD}.hostNetwork: "
        f"does not go along to a cloud; {ONLY_THE_CLUSTER}"
    ]


def test_without_kubernetes_there_is_no_manifest_in_the_workload() -> None:
    assert read_one(GOOD_JOB).workload.manifest is None


def test_letters_of_all_languages_stay_letters() -> None:
    manifest = read_one(job("CONTAINER/command", ["echo", "größer ≥ 漢"]), native=True).workload.manifest
    assert manifest is not None
    assert '"größer ≥ 漢"' in manifest
    assert ": " not in manifest


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        (
            "a: &a " + "x" * 400_000 + "\n  b: [*a, *a, *a, *a]\n",
            "has more than the 1500000 letters that Kubernetes takes; make it smaller",
        ),
        ("a: &a [*a]\n", "line 22, column 10: the alias 'a' stands for itself; write it out"),
    ],
)
def test_a_manifest_that_no_server_would_take_is_refused(extra: str, problem: str) -> None:
    text = yaml.safe_dump(GOOD_JOB) + f"status:\n  {extra}"
    assert errors(text, native=True) == [f"train.yaml, document 1: {problem}"]
