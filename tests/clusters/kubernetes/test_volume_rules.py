"""What the cluster says of the claims of jobs: with the step of their submission, and whenever it changes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from starburst.core.model.events import VolumesRuled
from starburst.domain.constraints import Rules
from starburst.domain.job import Phase
from starburst.kube.resources import CLAIMS, STORAGE_CLASSES, VOLUMES, Object
from starburst.kube.volumes.demand import ANYWHERE
from tests.clusters.kubernetes.scene import NS, Scene, play
from tests.kube_unit.volume_objects import HOSTNAME, claim, storage_class, volume

UNBOUND = "waits for claim data: it is not bound"
DATA = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
NOW = {"volumeBindingMode": "Immediate"}


def add(scene: Scene, *items: Object) -> None:
    for item in items:
        resource = {"PersistentVolumeClaim": CLAIMS, "PersistentVolume": VOLUMES}.get(
            item.get("kind", ""), STORAGE_CLASSES
        )
        if resource is CLAIMS:
            item["metadata"]["namespace"] = NS
        if item["spec"].get("claimRef") if "spec" in item else False:
            item["spec"]["claimRef"]["namespace"] = NS
        scene.world.add(resource, item)


def submit(scene: Scene, *volumes: Object) -> list[VolumesRuled]:
    """A job with the claim `data`, as the daemon does it: the rules that go into its step."""
    record = scene.submit()
    submission = scene.desk.submissions[record.id]
    manifest = json.loads(submission.workload.manifest or "")
    manifest["spec"]["template"]["spec"]["volumes"] = list(volumes or (DATA,))
    submission = replace(submission, workload=replace(submission.workload, manifest=json.dumps(manifest)))
    scene.desk.submissions[record.id] = submission
    rules = list(scene.cluster.judged({record.id: submission}))
    for rule in rules:
        heed(scene, rule)
    return rules


def heed(scene: Scene, rule: VolumesRuled) -> None:
    record = scene.desk.records[rule.job_id]
    record.job, record.awaits_volumes = replace(record.job, volume_affinity=rule.affinity), rule.waits
    record.phase = Phase.BLOCKED if rule.waits else Phase.QUEUED


def rules(scene: Scene) -> list[VolumesRuled]:
    return [event for event in scene.reports if isinstance(event, VolumesRuled)]


def admits(rule: VolumesRuled) -> list[str]:
    return [name for name in ("n0", "n1") if Rules(rule.affinity).admits(name, {HOSTNAME: name}, ())]


def test_a_job_without_claims_is_not_spoken_of(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        assert submit(scene, {"name": "x", "emptyDir": {}}) == []

    play(tmp_path, act)


def test_a_job_is_told_of_where_its_volume_is_with_its_submission(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        add(scene, storage_class(**NOW), claim(volume="pv"), volume(on="n1", claim="data"))
        await scene.restart()
        (rule,) = submit(scene)
        assert (admits(rule), rule.waits) == (["n1"], "")

    play(tmp_path, act)


def test_a_claim_that_is_bound_later_is_told_of_then(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        add(scene, storage_class(**NOW), claim())
        await scene.restart()
        (rule,) = submit(scene)
        assert rule == VolumesRuled("a", ANYWHERE, UNBOUND)
        add(scene, volume(on="n0", claim="data"))
        bound = {"spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}}
        scene.world.change(CLAIMS, NS, "data", bound)
        await scene.until(lambda: bool(rules(scene)) and not rules(scene)[-1].waits)
        assert admits(rules(scene)[-1]) == ["n0"]

    play(tmp_path, act)


def test_what_changed_while_starburst_was_away_is_told_of_before_anything_is_placed(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        add(scene, storage_class(**NOW), claim())
        await scene.restart()
        submit(scene)
        await scene.die()
        add(scene, volume(on="n0", claim="data"))
        bound = {"spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}}
        scene.world.change(CLAIMS, NS, "data", bound)
        scene.reports.clear()
        await scene.watch()
        told = [type(event).__name__ for event in scene.reports]
        assert told.index("VolumesRuled") < told.index("SiteSynced")
        assert admits(rules(scene)[-1]) == ["n0"]

    play(tmp_path, act)
