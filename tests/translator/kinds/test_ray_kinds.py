"""RayJob and RayCluster: a gang with a Ray of its own, head first."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from starburst.domain.job import Submission
from starburst.domain.resources import Resources
from tests.translator.kinds.test_ray import StandIn, stand_in
from tests.translator.kinds.test_several_nodes import run_all
from translator.errors import ManifestErrors
from translator.intake.rules import EMBEDDED, IntakeRules
from translator.intake.texts import read_firsts

__all__ = ["stand_in"]

CODE = {"name": "code", "configMap": {"name": "code"}}


def group(*, gpus: int = 0, **more: Any) -> dict[str, Any]:
    """A group of pods."""
    asked: dict[str, Any] = {"requests": {"cpu": "1", "memory": "1Gi"}}
    if gpus:
        asked["limits"] = {"nvidia.com/gpu": gpus}
    container = {"name": "ray", "image": "rayproject/ray:2.46.0", "resources": asked}
    return {"template": {"spec": {"containers": [container]}}, **more}


RAY_JOB: dict[str, Any] = {
    "apiVersion": "ray.io/v1",
    "kind": "RayJob",
    "metadata": {"name": "fit"},
    "spec": {
        "entrypoint": 'echo "$GREETING at $RAY_ADDRESS" && exit 6',
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": 60,
        "activeDeadlineSeconds": 3600,
        "rayClusterSpec": {
            "rayVersion": "2.46.0",
            "headGroupSpec": group(rayStartParams={"dashboard-host": "0.0.0.0", "num-cpus": "0"}),
            "workerGroupSpecs": [group(groupName="small", replicas=2, minReplicas=1, maxReplicas=5)],
        },
    },
}


def changed(path: str, value: Any, manifest: dict[str, Any] = RAY_JOB) -> dict[str, Any]:
    """The RayJob with one value changed."""
    found = copy.deepcopy(manifest)
    *parents, last = path.split(".")
    place: Any = found
    for key in parents:
        place = place[int(key) if isinstance(place, list) else key]
    place[int(last) if isinstance(place, list) else last] = value
    return found


def read(manifest: dict[str, Any], rules: IntakeRules = EMBEDDED) -> Submission:
    (item,) = read_firsts(yaml.safe_dump(manifest), "ray.yaml", suffix=lambda: "a1b2c", taking=rules)
    return item


def test_head_and_workers_are_the_tasks_of_a_gang() -> None:
    found = read(RAY_JOB)
    assert found.job.name == "fit"
    assert found.job.tasks == (Resources(0, 1000, 1024),) * 3
    assert found.workload.time_limit_s == 3600
    assert dict(found.workload.env)["STARBURST_RAY_OPTIONS"].splitlines() == [
        "1 --num-gpus=0 --num-cpus=0",
        "2 --num-gpus=0 --num-cpus=1",
    ]


@pytest.mark.parametrize(("cpu", "counted"), [("8", 8), ("1500m", 2), ("200m", 1)])
def test_ray_counts_the_cpus_that_a_pod_asks_for(cpu: str, counted: int) -> None:
    workers = group(groupName="small", replicas=1)
    workers["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    found = read(changed("spec.rayClusterSpec.workerGroupSpecs.0", workers))
    assert f"1 --num-gpus=0 --num-cpus={counted}" in dict(found.workload.env)["STARBURST_RAY_OPTIONS"]


def test_a_selected_cluster_is_refused_by_its_selector_alone() -> None:
    document = {**RAY_JOB, "spec": {"entrypoint": "a", "clusterSelector": {"ray.io/cluster": "mine"}}}
    with pytest.raises(ManifestErrors) as bad:
        read(document)
    assert [error.field for error in bad.value.errors] == ["spec.clusterSelector"]


def test_a_head_without_gpus_has_none_where_tasks_may_differ() -> None:
    with_gpus = group(gpus=4, groupName="large", replicas=2, rayStartParams={"resources": '"{\\"A\\": 1}"'})
    found = read(changed("spec.rayClusterSpec.workerGroupSpecs.0", with_gpus))
    assert [task.gpus for task in found.job.tasks] == [0, 4, 4]
    options = dict(found.workload.env)["STARBURST_RAY_OPTIONS"].splitlines()
    assert options[1] == "2 --num-gpus=4 --num-cpus=1 '--resources={\"A\": 1}'"


def test_on_kubernetes_it_runs_beside_the_first_worker_which_has_them() -> None:
    with_gpus = group(gpus=4, groupName="large", replicas=2)
    found = read(changed("spec.rayClusterSpec.workerGroupSpecs.0", with_gpus), IntakeRules(native=True))
    assert [task.gpus for task in found.job.tasks] == [4, 4]
    assert any("headGroupSpec.template: is not used" in note for note in found.notes)


def test_volumes_of_the_head_alone_are_given_to_all() -> None:
    manifest = changed("spec.rayClusterSpec.headGroupSpec.template.spec.volumes", [CODE])
    containers = "spec.rayClusterSpec.headGroupSpec.template.spec.containers.0.volumeMounts"
    manifest = changed(containers, [{"name": "code", "mountPath": "/code"}], manifest)
    found = read(manifest, IntakeRules(native=True))
    assert found.workload.manifest is not None
    assert '"/code"' in found.workload.manifest


def test_what_is_not_kept_is_said() -> None:
    manifest = changed("spec.rayClusterSpec.enableInTreeAutoscaling", True)
    manifest = changed("spec.shutdownAfterJobFinishes", False, manifest)
    notes = "\n".join(read(manifest).notes)
    assert "spec.rayClusterSpec.enableInTreeAutoscaling: the number of workers is fixed" in notes
    assert "spec.shutdownAfterJobFinishes: Ray ends with the program" in notes


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("spec.entrypoint", None, "spec.entrypoint: is missing"),
        ("spec.submissionMode", "InteractiveMode", "write a RayCluster"),
        ("spec.clusterSelector", {"ray.io/cluster": "a"}, "spec.clusterSelector: a Ray that is there"),
        ("spec.runtimeEnvYAML", "[1", "spec.runtimeEnvYAML: is not YAML"),
        ("spec.runtimeEnvYAML", "[1]", "must be a mapping"),
        (
            "spec.runtimeEnvYAML",
            "[" * 3000,
            "spec.runtimeEnvYAML: is not YAML: line 1, column 101: is nested",
        ),
        (
            "spec.runtimeEnvYAML",
            "a: &a [*a]",
            "spec.runtimeEnvYAML: is not YAML: line 1, column 8: the alias",
        ),
        ("spec.runtimeEnvYAML", "pip: [a]\npip: [b]", 'line 2, column 1: "pip": this key was already given'),
        ("spec.runtimeEnvYAML", f"a: &a {'x' * 2000}\nb: [{'*a, ' * 1000}]", "takes; make it smaller"),
        ("spec.rayClusterSpec.headGroupSpec", {}, "spec.rayClusterSpec.headGroupSpec.template: is missing"),
        ("spec.rayClusterSpec.workerGroupSpecs.0.replicas", -1, "replicas"),
        ("spec.rayClusterSpec.workerGroupSpecs.0.template.spec.containers.0.image", "other", "image"),
        ("spec.entrypiont", "x", "did you mean entrypoint?"),
        ("apiVersion", "ray.io.evil/v1", "write apiVersion: ray.io/v1"),
    ],
)
def test_what_cannot_be_run_is_refused_by_its_field(path: str, value: Any, told: str) -> None:
    with pytest.raises(ManifestErrors) as caught:
        read(changed(path, value))
    assert told in str(caught.value)


def test_a_runtime_environment_is_read_as_manifests_are() -> None:
    """A date is text, as to the operator."""
    found = read(changed("spec.runtimeEnvYAML", "env_vars:\n  DAY: 2026-11-28\n  FLAG: 'yes'\n"))
    assert '{"env_vars":{"DAY":"2026-11-28","FLAG":"yes"}}' in found.workload.command


def test_a_ray_cluster_runs_until_it_is_cancelled() -> None:
    cluster = {**RAY_JOB, "kind": "RayCluster", "spec": RAY_JOB["spec"]["rayClusterSpec"]}
    found = read(cluster)
    assert len(found.job.tasks) == 3
    assert any("runs until it is cancelled" in note for note in found.notes)


@pytest.mark.processes
@pytest.mark.parametrize(("api", "late"), [(True, False), (True, True), (False, False)])
def test_the_entrypoint_runs_by_rays_job_submission_or_beside_the_head(
    api: bool, late: bool, tmp_path: Path, stand_in: StandIn
) -> None:
    """Also if the submission is refused at first, as Ray does until its agents are up."""
    env = [{"name": name, "value": value} for name, value in stand_in.environment(api, late)]
    env.append({"name": "GREETING", "value": "hello"})
    manifest = copy.deepcopy(RAY_JOB)
    cluster = manifest["spec"]["rayClusterSpec"]
    for each in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        each["template"]["spec"]["containers"][0]["env"] = env
    (code, out, errors), *others = run_all(read(manifest), tmp_path)
    assert code == 6, errors
    assert out.startswith("hello at 127.0.0.1:")
    assert [other[0] for other in others] == [0, 0]
    assert ("job submission is not installed" in errors) is not api


@pytest.mark.processes
def test_a_stop_goes_to_the_entrypoint_and_its_last_words_are_in_the_log(
    tmp_path: Path, stand_in: StandIn
) -> None:
    """The SIGTERM of a site goes to all processes of a task's session, so to what follows the log, too."""
    env = [{"name": name, "value": value} for name, value in stand_in.environment(api=True)]
    env.append({"name": "STOPPED", "value": "1"})
    manifest = copy.deepcopy(RAY_JOB)
    manifest["spec"]["entrypoint"] = "trap 'sleep 1; echo saved; exit 0' TERM; while :; do sleep .1; done"
    cluster = manifest["spec"]["rayClusterSpec"]
    for each in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        each["template"]["spec"]["containers"][0]["env"] = env
    (_, out, errors), *_ = run_all(read(manifest), tmp_path)
    assert out == "saved\n", errors
