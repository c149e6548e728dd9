"""Nothing of a field that Starburst does not know is dropped when an object is written back."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from starburst.clusters.kubernetes.manifest import job_object, made_anew
from starburst.core.model.actions import Slot
from starburst.domain.job import Adopted, Job, Phase, Workload
from starburst.domain.resources import Resources
from starburst.kube.resources import NODES, PODS
from starburst.runs.ports import Run
from tests.clusters.kubernetes.kinds import KINDS, an_object
from tests.clusters.kubernetes.scene import NS, Scene, a_job, a_pod, play
from tests.kube_unit.store import Object
from translator.manifests.live_object import as_submitted

LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)
#: No field of any Kubernetes begins so.
UNKNOWN = st.dictionaries(st.from_regex(r"zz[A-Za-z]{1,6}", fullmatch=True), VALUES, min_size=1, max_size=3)


def places(item: Object) -> Iterator[dict[str, Any]]:
    """The mappings of an object in which a newer server may have another field."""
    spec = item["spec"]
    yield spec
    pod = spec.get("template", {}).get("spec", spec)
    yield pod
    for container in pod["containers"]:
        yield container
        yield container["resources"]


def strange(item: Object, fields: list[dict[str, Any]]) -> Object:
    """An object with fields of a later day in each of its parts."""
    made = copy.deepcopy(item)
    for place, unknown in zip(places(made), fields, strict=False):
        place.update(unknown)
    return made


def kept(written: Object, fields: list[dict[str, Any]]) -> bool:
    """Whether all of them are there."""
    found = zip(places(written), fields, strict=False)
    return all(place.get(key) == value for place, unknown in found for key, value in unknown.items())


def a_run(item: Object, *, adopted: bool) -> Run:
    """The second run of a job with this manifest."""
    manifest = json.dumps(as_submitted(item))
    origin = Adopted(item["kind"], NS, item["metadata"]["name"], "u") if adopted else None
    job = Job("a", "a", (Resources(1, 1000, 0),))
    return Run(job, 2, (Slot(0, "n0", Resources(1)),), Workload(manifest=manifest, adopted=origin))


@settings(max_examples=5, deadline=None)
@given(st.lists(UNKNOWN, min_size=4, max_size=4))
def test_objects_that_starburst_makes_have_all_fields_of_their_manifest(fields: list[dict[str, Any]]) -> None:
    job = job_object(
        a_run(strange(a_job(), fields), adopted=False),
        namespace=NS,
        controller="c",
        decision="",
        indexed=True,
        checkpoints=None,
    )
    assert kept(job, fields)
    for item in (strange(a_pod(), fields), strange(a_job(), fields)):
        assert kept(made_anew(a_run(item, adopted=True), controller="c", decision=""), fields)


@KINDS
def test_adoption_placing_leaving_and_ending_keep_them_on_the_object(tmp_path: Path, kind: str) -> None:
    fields = [{"zzNew": {"deep": [1, {"x": None}]}}, {"zzPod": "y"}, {"zzMain": [True]}, {"zzClaims": 3}]

    async def act(scene: Scene) -> None:
        item, resource = an_object(kind)
        made = strange(item, fields)
        made["metadata"]["finalizers"] = ["example.org/theirs", "foregroundDeletion"]
        job_id = await scene.adopt(made)
        scene.world.change(resource, NS, "train", {"status": {"zzStatus": {"mine": 1}}})
        await scene.until(lambda: scene.conditions("train", resource))
        scene.away(job_id)
        await scene.pass_time(20)
        scene.end(job_id, Phase.SUCCEEDED, 0)
        await scene.pass_time(60)
        there = scene.the(resource, "train")
        assert kept(there, fields)
        assert there["status"]["zzStatus"] == {"mine": 1}
        assert "example.org/theirs" in there["metadata"]["finalizers"]

    play(tmp_path, act, minor="31")


def test_nodes_of_the_newest_servers_are_read(tmp_path: Path) -> None:
    """Nodes are never written; what they declare: `tests/kube_unit/test_declared_features.py`."""

    async def act(scene: Scene) -> None:
        features = {"declaredFeatures": ["GuaranteedQoSPodCPUResize"], "zzLater": {"x": 1}}
        scene.world.change(NODES, "", "n0", {"status": features})
        await scene.pass_time(2)
        assert {node.name for node in scene.nodes.nodes} == {"n0", "n1"}
        written = [call for call in scene.world.asked if "/nodes" in call.path and call.method != "GET"]
        assert written == []

    play(tmp_path, act, minor="36")


def test_a_pod_that_is_resized_in_place_keeps_its_run(tmp_path: Path) -> None:
    """Kubernetes 1.33 and later: its requests change while it runs."""

    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(args=("30", "0")))
        await scene.start(job_id, "n0")
        await scene.until(scene.running)
        (pod,) = scene.pods()
        containers = copy.deepcopy(pod["spec"]["containers"])
        containers[0]["resources"] = {"limits": {"nvidia.com/gpu": "1", "cpu": "2"}}
        status = {"conditions": [{"type": "PodResizeInProgress", "status": "True"}]}
        scene.world.change(
            PODS, NS, pod["metadata"]["name"], {"spec": {"containers": containers}, "status": status}
        )
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 1, "exited")]

    play(tmp_path, act, minor="33")


def test_a_job_by_turns_keeps_its_place_until_the_last_one(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        job_id = await scene.adopt(a_job(parallelism=2, completions=6))
        await scene.start(job_id, "n0", "n1")
        await scene.until(lambda: len(scene.world.ran) > 2)
        assert scene.ends == [], "its controller makes the next ones"
        await scene.until(lambda: scene.ends)
        assert scene.ends == [(job_id, 1, "exited")]
        assert len(scene.world.ran) == 6

    play(tmp_path, act, minor="31")
