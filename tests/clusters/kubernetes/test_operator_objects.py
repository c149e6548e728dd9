"""Objects of operators that lie suspended: Starburst runs them, and writes on them how they ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from starburst.domain.job import CloudChoice, Phase, Site
from starburst.kube import names
from starburst.kube.operator_kinds import KINDS, OperatorKind
from starburst.kube.resources import JOBS
from tests.clusters.kubernetes.scene import ME, NS, Scene, a_job, play
from tests.kube_unit.store import Object

BY_NAME = {(each.name, each.resource.api_version.partition("/")[0]): each for each in KINDS}
PYTORCH = BY_NAME["PyTorchJob", "kubeflow.org"]
JOBSET = BY_NAME["JobSet", "jobset.x-k8s.io"]
RAY_JOB = BY_NAME["RayJob", "ray.io"]
ADOPTED = [each for each in KINDS if not each.refusal]
REFUSED = [each for each in KINDS if each.refusal]
NAMED = {"ids": lambda kind: kind.name if isinstance(kind, OperatorKind) else None}


def spec_of(kind: OperatorKind, *, args: tuple[str, str] = ("5", "0")) -> Object:
    """Two tasks where the kind can have two, without what tells its operator to wait."""
    template = a_job(args=args)["spec"]["template"]
    roles = {role: {"replicas": 1, "template": template} for role in ("Master", "Worker")}
    head, worker = {"replicas": 1, "template": template}, {"groupName": "w", "replicas": 1}
    job = {"spec": {"parallelism": 2, "completions": 2, "template": template}}
    specs: dict[str, Object] = {
        "JobSet": {"replicatedJobs": [{"name": "w", "template": job}]},
        "PyTorchJob": {"pytorchReplicaSpecs": roles},
        "TFJob": {"tfReplicaSpecs": {"Worker": {"replicas": 2, "template": template}}},
        "XGBoostJob": {"xgbReplicaSpecs": roles},
        "MPIJob": {"mpiReplicaSpecs": {"Launcher": head, "Worker": head}},
        "TrainJob": {"trainer": {"numNodes": 2, "image": "busybox", "command": ["work", *args]}},
        "RayJob": {
            "entrypoint": "python train.py",
            "rayClusterSpec": {
                "headGroupSpec": {"template": template},
                "workerGroupSpecs": [{**worker, "template": template}],
            },
        },
    }
    return specs.get(kind.name, {})


def an_object(kind: OperatorKind, *, suspended: bool = True, **metadata: Any) -> Object:
    """As a user applies it."""
    spec = spec_of(kind)
    inner = spec
    for key in kind.suspend[:-1]:
        inner = inner.setdefault(key, {})
    inner[kind.suspend[-1]] = suspended
    labels = {names.QUEUE: "q"}
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.name,
        "metadata": {"name": "train", "namespace": NS, "labels": labels, **metadata},
        "spec": spec,
    }


def install(scene: Scene, *kinds: OperatorKind) -> None:
    for kind in kinds:
        scene.world.custom.setdefault(kind.resource.api_version, []).append(kind.resource.plural)


async def adopted(scene: Scene, kind: OperatorKind, item: Object | None = None) -> str:
    """A user applies it to a cluster with its operator, and the core takes up its job: the id."""
    install(scene, kind)
    await scene.watch()
    scene.world.add(kind.resource, item or an_object(kind))
    await scene.until(lambda: names.ADOPTED in scene.marks("train", kind.resource))
    job_id: str = scene.the(kind.resource, "train")["metadata"]["labels"][names.JOB]
    scene.take_up(job_id)
    return job_id


def status(scene: Scene, kind: OperatorKind) -> Object:
    found: Object = scene.the(kind.resource, "train").get("status") or {}
    return found


@pytest.mark.parametrize("kind", [PYTORCH, JOBSET], **NAMED)
def test_it_stays_suspended_and_runs_as_a_job_that_goes_with_it(tmp_path: Path, kind: OperatorKind) -> None:
    async def act(scene: Scene) -> None:
        scene.world.chakra = False  # its pods have a shell before their fate
        job_id = await adopted(scene, kind)
        assert len(scene.desk.submissions[job_id].job.tasks) == 2
        assert not scene.desk.submissions[job_id].job.hold, "it is not held for lying suspended"
        await scene.start(job_id, "n0", "n1")
        run = scene.the(JOBS, f"{job_id}-1")
        assert run["spec"]["parallelism"] == 2
        owner = run["metadata"]["ownerReferences"][0]
        item = scene.the(kind.resource, "train")
        assert (owner["apiVersion"], owner["kind"], owner["uid"]) == (
            item["apiVersion"],
            item["kind"],
            item["metadata"]["uid"],
        )
        assert "controller" not in owner, "its operator does not take it for one of its own"
        assert kind.is_suspended(item["spec"])
        assert "status" not in item, "while it lives its status is its operator's"

    play(tmp_path, act, watching=False, minor="34")


@pytest.mark.parametrize(
    ("kind", "phase"),
    [(kind, Phase.SUCCEEDED) for kind in ADOPTED]
    + [(kind, Phase.FAILED) for kind in (JOBSET, PYTORCH, RAY_JOB)],
)
def test_its_operator_and_its_user_find_how_it_ended_in_their_words(
    tmp_path: Path, kind: OperatorKind, phase: Phase
) -> None:
    suspended = {"type": "Suspended", "status": "True", "reason": "its operator's words"}

    async def act(scene: Scene) -> None:
        job_id = await adopted(scene, kind)
        scene.world.change(kind.resource, NS, "train", {"status": {"conditions": [suspended]}})
        scene.away(job_id, Phase.RUNNING)
        scene.end(job_id, phase, 0 if phase is Phase.SUCCEEDED else 3)
        await scene.until(lambda: names.LOGS in scene.marks("train", kind.resource))
        found = status(scene, kind)
        done = phase is Phase.SUCCEEDED
        assert kind.end(found) == ("Complete" if done else "Failed")
        assert suspended in found["conditions"], "the words of its operator stay"
        if kind is RAY_JOB:
            assert found["jobStatus"] == ("SUCCEEDED" if done else "FAILED")
            assert found["message"] == "its words; ran in the cloud"
        else:
            last = found["conditions"][-1]
            assert (last["type"], last["reason"]) == (kind.succeeded if done else kind.failed)
            assert last["message"] == "its words; ran in the cloud"
        assert scene.marks("train", kind.resource)[names.EXIT_CODE] == ("0" if done else "3")
        assert kind.is_suspended(scene.the(kind.resource, "train")["spec"])

    play(tmp_path, act, watching=False, minor="34")


@pytest.mark.parametrize("kind", REFUSED, **NAMED)
def test_a_kind_that_cannot_be_adopted_is_told_so(tmp_path: Path, kind: OperatorKind) -> None:
    async def act(scene: Scene) -> None:
        install(scene, kind)
        await scene.watch()
        scene.world.add(kind.resource, an_object(kind))
        await scene.until(lambda: scene.events("NotQueued"))
        (event,) = scene.events("NotQueued")
        assert event["message"] == kind.refusal
        assert event["involvedObject"]["apiVersion"] == kind.resource.api_version
        assert not scene.desk.submissions

    play(tmp_path, act, watching=False, minor="34")


def test_one_that_its_operator_runs_is_left_to_it_until_it_is_suspended(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        install(scene, PYTORCH)
        await scene.watch()
        scene.world.add(PYTORCH.resource, an_object(PYTORCH, suspended=False))
        await scene.until(lambda: scene.events("NotQueued"))
        assert "spec.runPolicy.suspend: true" in scene.events("NotQueued")[0]["message"]
        assert not scene.desk.submissions
        scene.world.change(PYTORCH.resource, NS, "train", {"spec": {"runPolicy": {"suspend": True}}})
        await scene.until(lambda: scene.desk.submissions)

    play(tmp_path, act, watching=False, minor="34")


def test_one_that_is_given_to_its_operator_is_cancelled_and_its_status_is_left_to_that(
    tmp_path: Path,
) -> None:
    async def act(scene: Scene) -> None:
        job_id = await adopted(scene, PYTORCH)
        scene.world.change(PYTORCH.resource, NS, "train", {"spec": {"runPolicy": {"suspend": False}}})
        await scene.until(lambda: job_id in scene.cancels)
        scene.end(job_id, Phase.CANCELLED)
        await scene.pass_time(30)
        assert "status" not in scene.the(PYTORCH.resource, "train")

    play(tmp_path, act, watching=False, minor="34")


def test_the_label_of_its_queue_stripped_off_one_that_runs_is_put_back(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.chakra = False
        job_id = await adopted(scene, JOBSET)
        await scene.start(job_id, "n0", "n1")
        scene.world.change(JOBSET.resource, NS, "train", {"metadata": {"labels": {names.QUEUE: None}}})
        await scene.until(lambda: names.QUEUE in scene.the(JOBSET.resource, "train")["metadata"]["labels"])
        assert (scene.ends, scene.cancels) == ([], [])

    play(tmp_path, act, watching=False, minor="34")


@pytest.mark.parametrize("restarted", [False, True])
def test_one_that_is_deleted_is_cancelled(tmp_path: Path, restarted: bool) -> None:
    async def act(scene: Scene) -> None:
        job_id = await adopted(scene, JOBSET)
        if restarted:
            await scene.die()
        scene.world.delete(JOBSET.resource, NS, "train")
        if restarted:
            await scene.watch()
        await scene.until(lambda: job_id in scene.cancels)

    play(tmp_path, act, watching=False, minor="34")


def test_a_kind_that_is_not_served_for_now_cancels_nothing(tmp_path: Path) -> None:
    """Its operator is being upgraded, or its right was taken away: what is there cannot be known."""

    async def act(scene: Scene) -> None:
        job_id = await adopted(scene, JOBSET)
        await scene.die()
        served, scene.world.custom = scene.world.custom, {}
        await scene.watch()
        await scene.pass_time(20)
        assert not scene.cancels
        scene.world.custom = served
        scene.world.delete(JOBSET.resource, NS, "train")
        await scene.pass_time(70)
        assert scene.cancels == [job_id], "found out when it is listed again"

    play(tmp_path, act, watching=False, minor="34")


def test_an_operator_that_is_installed_later_is_found(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        await scene.watch()
        install(scene, RAY_JOB)
        scene.world.add(RAY_JOB.resource, an_object(RAY_JOB))
        await scene.pass_time(70)
        assert scene.desk.submissions

    play(tmp_path, act, watching=False, minor="34")


def test_a_kind_that_the_account_may_not_read_is_not_asked_for(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        install(scene, JOBSET)
        scene.world.allows = lambda asked: asked.get("resource") != "jobsets"
        await scene.watch()
        assert not [asked for asked in scene.world.asked if "jobsets" in asked.path]

    play(tmp_path, act, watching=False, minor="34")


def test_marks_of_another_objects_job_are_not_believed(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        theirs = scene.submit("theirs")
        marks = {
            "labels": {names.QUEUE: "q", names.JOB: "theirs", names.CONTROLLER: ME},
            "annotations": {names.ADOPTED: "true"},
        }
        install(scene, JOBSET)
        await scene.watch()
        scene.world.add(JOBSET.resource, an_object(JOBSET, **marks))
        await scene.until(lambda: len(scene.desk.submissions) == 2)
        scene.world.delete(JOBSET.resource, NS, "train")
        await scene.pass_time(30)
        assert theirs.id not in scene.cancels

    play(tmp_path, act, watching=False, minor="34")


def test_what_cannot_run_here_says_why_on_the_object(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        install(scene, BY_NAME["MPIJob", "kubeflow.org"])
        await scene.watch()
        item = an_object(BY_NAME["MPIJob", "kubeflow.org"])
        del item["spec"]["mpiReplicaSpecs"]["Launcher"]
        scene.world.add(BY_NAME["MPIJob", "kubeflow.org"].resource, item)
        await scene.until(lambda: scene.events("NotQueued"))
        assert "Launcher" in scene.events("NotQueued")[0]["message"]

    play(tmp_path, act, watching=False, minor="34")


def test_what_its_user_says_of_the_cloud_holds(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await adopted(
            scene, PYTORCH, an_object(PYTORCH, annotations={"starburst.io/cloud": "never"})
        )
        assert scene.desk.submissions[job_id].job.cloud is CloudChoice.NEVER
        assert scene.desk.records[job_id].site is not Site.CLOUD

    play(tmp_path, act, watching=False, minor="34")
