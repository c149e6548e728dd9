"""Hands on the objects of runs: wrong labels and annotations never make two live copies or a loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from starburst.core.model.events import HoldRequested, ReleaseRequested
from starburst.domain.job import Phase
from starburst.kube import names
from starburst.kube.resources import JOBS, PODS, Resource
from tests.clusters.kubernetes.kinds import KINDS, an_object
from tests.clusters.kubernetes.scene import ME, NS, Scene, play
from tests.kube_unit.store import Object


def meddle(scene: Scene, name: str, resource: object = JOBS, **metadata: Object) -> None:
    scene.world.change(resource, NS, name, {"metadata": metadata})  # type: ignore[arg-type]


async def begun(scene: Scene, kind: str) -> tuple[str, str, str]:
    """A job of this kind that runs: the name of its object, its id, and the object's resource."""
    if kind == "submitted":
        name, job_id, resource = "a-1", scene.submit(args=("60", "0")).id, JOBS
    else:
        item, resource = an_object(kind, "60", "0")
        name, job_id = "train", await scene.adopt(item)
    await scene.start(job_id, "n0")
    await scene.until(scene.running)
    return name, job_id, resource


@pytest.mark.parametrize("attempt", ["99", None])
@pytest.mark.parametrize("kind", ["submitted", "Job", "Pod"])
def test_another_attempt_on_the_object_changes_nothing(
    tmp_path: Path, kind: str, attempt: str | None
) -> None:
    async def act(scene: Scene) -> None:
        name, job_id, resource = await begun(scene, kind)
        meddle(scene, name, resource, annotations={names.ATTEMPT: attempt})
        await scene.pass_time(20)
        if kind == "submitted" or attempt == "99":
            await scene.restart()
        await scene.until(lambda: scene.ends)
        assert set(scene.ends) == {(job_id, 1, "exited")}
        assert len(scene.world.ran) == 1
        assert scene.cancels == []

    play(tmp_path, act)


@KINDS
def test_stripped_labels_do_not_hide_a_run_and_it_can_be_stopped(tmp_path: Path, kind: str) -> None:
    async def act(scene: Scene) -> None:
        item, resource = an_object(kind, "500", "0")
        job_id = await scene.adopt(item)
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        meddle(scene, "train", resource, labels={names.JOB: None, names.CONTROLLER: None})
        await scene.pass_time(20)
        assert (scene.ends, scene.cancels) == ([], [])
        await scene.cluster.stop(job_id, 1, 1.0)
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 1, "stopped")]
        assert scene.pods() == []

    play(tmp_path, act)


@pytest.mark.parametrize("kind", ["submitted", "Job", "Pod"])
def test_a_restart_finds_a_run_whose_objects_were_stripped(tmp_path: Path, kind: str) -> None:
    """It is neither run again nor taken in as another job."""

    async def act(scene: Scene) -> None:
        name, job_id, resource = await begun(scene, kind)
        objects = [(PODS, pod["metadata"]["name"]) for pod in scene.pods()]
        for of, each in dict.fromkeys([*objects, (resource, name)]):
            stripped = dict.fromkeys((names.JOB, names.CONTROLLER))
            meddle(scene, each, of, labels=stripped, annotations={names.ATTEMPT: None})
        await scene.pass_time(20)
        await scene.restart()
        await scene.pass_time(20)
        assert set(scene.desk.submissions) == {job_id}
        await scene.until(lambda: scene.ends)
        assert set(scene.ends) == {(job_id, 1, "exited")}
        assert (len(scene.world.ran), scene.cancels) == (1, [])

    play(tmp_path, act)


@pytest.mark.parametrize("first", [True, False], ids=["before the Job", "beside it"])
def test_a_forged_pod_is_no_run(tmp_path: Path, first: bool) -> None:
    async def act(scene: Scene) -> None:
        scene.submit(args=("20", "0"))
        forged = {
            "metadata": {
                "name": "forged",
                "namespace": NS,
                "labels": {names.QUEUE: "q", names.JOB: "a", names.CONTROLLER: ME},
                "annotations": {names.ATTEMPT: "1", names.ADOPTED: "true"},
            },
            "spec": {"containers": [{"command": ["work", "500", "0"]}]},
        }
        if first:
            scene.world.add(PODS, forged)
            await scene.pass_time(2)
        await scene.start("a", "n0")
        if not first:
            scene.world.add(PODS, forged)
        await scene.until(lambda: scene.ends)
        assert scene.ends == [("a", 1, "exited")]
        assert scene.cancels == []

    play(tmp_path, act)


@KINDS
def test_one_made_anew_under_its_name_while_it_runs_is_another_job(tmp_path: Path, kind: str) -> None:
    async def act(scene: Scene) -> None:
        item, resource = an_object(kind, "500", "0")
        job_id = await scene.adopt(item)
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        scene.world.delete(resource, NS, "train")
        await scene.until(lambda: scene.find(resource, "train") is None)
        item, _ = an_object(kind, "5", "0")
        other = await scene.adopt(item)
        await scene.until(lambda: scene.cancels)
        assert other != job_id
        await scene.cluster.stop(job_id, 1, 1.0)
        await scene.start(other, "n1")
        await scene.until(lambda: (other, 1, "exited") in scene.ends)
        assert set(scene.cancels) == {job_id}
        assert len(scene.world.ran) == 2

    play(tmp_path, act)


@pytest.mark.parametrize("kind", ["Job", "Pod"])
@pytest.mark.parametrize("running", [True, False])
def test_an_object_that_is_made_again_with_its_marks_copied_is_another_job(
    tmp_path: Path, kind: str, running: bool
) -> None:
    """As by `kubectl get -o yaml` and `kubectl replace --force`."""

    async def act(scene: Scene) -> None:
        first, resource = an_object(kind, "500", "0")
        old = await scene.adopt(first)
        if running:
            await scene.start(old, "n0")
            await scene.until(lambda: scene.running() == 1)
        copy = scene.the(resource, "train")
        mine = {key: copy["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
        scene.world.delete(resource, NS, "train")
        await scene.until(lambda: scene.find(resource, "train") is None)
        spec = {key: value for key, value in copy["spec"].items() if key != "nodeName"}
        item = {"apiVersion": first["apiVersion"], "kind": kind, "metadata": mine, "spec": spec}
        scene.world.add(resource, item)
        await scene.until(lambda: scene.the(resource, "train")["metadata"]["labels"].get(names.JOB) != old)
        await scene.until(lambda: old in scene.cancels)
        marks = scene.marks("train", resource)
        assert marks[names.UID] == scene.the(resource, "train")["metadata"]["uid"]
        assert not marks.keys() & {names.NODES, names.ATTEMPT, names.STOPPING}
        new = scene.the(resource, "train")["metadata"]["labels"][names.JOB]
        scene.end(old, Phase.CANCELLED)
        scene.take_up(new)
        await scene.pass_time(20)
        assert scene.running() == 0
        await scene.start(new, "n1")
        await scene.until(lambda: scene.running() == 1)

    play(tmp_path, act, minor="31")


NO_QUEUE = {names.QUEUE: None}


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize("kind", ["submitted", "Job"])
def test_the_label_of_its_queue_stripped_off_a_run_is_put_back(
    tmp_path: Path, kind: str, answers: bool
) -> None:
    async def act(scene: Scene) -> None:
        name, job_id, _ = await begun(scene, kind)
        if not answers:
            scene.world.fail(f"GET /apis/batch/v1/namespaces/{NS}/jobs/{name}", times=10**6, status=500)
        meddle(scene, name, labels=NO_QUEUE)
        await scene.pass_time(20)
        assert (scene.ends, scene.cancels, scene.running()) == ([], [], 1)
        scene.world.heal()
        await scene.until(lambda: names.QUEUE in scene.the(JOBS, name)["metadata"]["labels"])
        meddle(scene, name, labels=NO_QUEUE)
        await scene.until(lambda: scene.ends)
        assert (scene.ends, scene.cancels) == ([(job_id, 1, "exited")], [])
        assert len(scene.world.ran) == 1

    play(tmp_path, act)


@pytest.mark.parametrize("answers", [True, False])
def test_stripped_off_a_submitted_run_while_starburst_is_down_it_is_put_back_too(
    tmp_path: Path, answers: bool
) -> None:
    async def act(scene: Scene) -> None:
        await begun(scene, "submitted")
        await scene.die()
        meddle(scene, "a-1", labels=NO_QUEUE)
        if not answers:
            scene.world.fail(f"GET /apis/batch/v1/namespaces/{NS}/jobs/a-1", times=10**6, status=500)
        await scene.watch()
        await scene.pass_time(20)
        assert (scene.ends, scene.running()) == ([], 1)
        scene.world.heal()
        await scene.until(lambda: names.QUEUE in scene.the(JOBS, "a-1")["metadata"]["labels"])
        await scene.until(lambda: scene.ends)
        assert (scene.ends, scene.cancels) == ([("a", 1, "exited")], [])
        assert len(scene.world.ran) == 1

    play(tmp_path, act)


@pytest.mark.parametrize("kind", ["submitted", "Job"])
def test_one_that_is_gone_at_once_is_cancelled_as_soon_as_the_server_says_so(
    tmp_path: Path, kind: str
) -> None:
    async def act(scene: Scene) -> None:
        name, job_id, _ = await begun(scene, kind)
        scene.world.fail(f"GET /apis/batch/v1/namespaces/{NS}/jobs/{name}", times=10**6, status=500)
        scene.world.remove(JOBS, NS, name)
        await scene.pass_time(20)
        assert scene.cancels == []
        scene.world.heal()
        await scene.until(lambda: scene.cancels)
        assert set(scene.cancels) == {job_id}

    play(tmp_path, act)


def test_who_takes_the_label_off_a_job_that_waits_takes_it_out_of_the_queue(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt()
        meddle(scene, "train", labels=NO_QUEUE)
        await scene.until(lambda: scene.cancels)
        await scene.pass_time(5)
        assert set(scene.cancels) == {job_id}
        assert names.QUEUE not in scene.the(JOBS, "train")["metadata"]["labels"]

    play(tmp_path, act)


@pytest.fixture(params=["Job", "Pod"])
def forged(request: pytest.FixtureRequest) -> tuple[Object, Resource]:
    """Somebody's object, but for the label of a job that is another's."""
    item, resource = an_object(request.param, "500", "0")
    item["metadata"]["name"] = "forged"
    item["metadata"]["annotations"] = {names.ADOPTED: "true"}
    return item, resource


@pytest.mark.parametrize("controller", [ME, None])
@pytest.mark.parametrize("victim", ["submitted", "Job"])
def test_an_object_with_the_label_of_anothers_job_is_a_job_of_its_own(
    tmp_path: Path, forged: tuple[Object, Resource], victim: str, controller: str | None
) -> None:
    """Whatever happens to it, the other's job goes on, and its end is written on its own object."""
    item, resource = forged

    async def act(scene: Scene) -> None:
        name, job_id, _ = await begun(scene, victim)
        ours = {names.CONTROLLER: controller} if controller else {}
        item["metadata"]["labels"] |= {names.JOB: job_id, **ours}
        if resource is JOBS:
            item["spec"]["suspend"] = True
        scene.world.add(resource, item)
        await scene.until(lambda: len(scene.desk.submissions) == 2)
        await scene.until(lambda: scene.the(resource, "forged")["metadata"]["labels"][names.JOB] != job_id)
        (own,) = scene.desk.submissions.keys() - {job_id}
        scene.take_up(own)
        scene.world.delete(resource, NS, "forged")
        await scene.until(lambda: own in scene.cancels)
        await scene.until(lambda: scene.ends)
        assert (set(scene.cancels), scene.ends) == ({own}, [(job_id, 1, "exited")])
        held = [event for event in scene.reports if isinstance(event, HoldRequested | ReleaseRequested)]
        assert all(event.job_id == own for event in held)
        if victim == "Job":
            scene.end(job_id, Phase.SUCCEEDED, 0)
            await scene.until(lambda: names.LOGS in scene.marks(name))

    play(tmp_path, act)


@KINDS
def test_one_that_was_made_anew_is_still_that_of_its_job(tmp_path: Path, kind: str) -> None:
    async def act(scene: Scene) -> None:
        item, resource = an_object(kind, "500", "0")
        job_id = await scene.adopt(item)
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        (pod,) = scene.pods()
        scene.world.end_pod(pod, 0, "Evicted")
        await scene.until(lambda: scene.ends)
        uid = scene.the(resource, "train")["metadata"]["uid"]
        await scene.start(job_id, "n1")
        await scene.until(scene.running)
        assert scene.the(resource, "train")["metadata"]["uid"] != uid
        await scene.restart()
        scene.world.delete(resource, NS, "train")
        await scene.until(lambda: scene.cancels)
        assert set(scene.cancels) == {job_id}

    play(tmp_path, act)
