"""The Kubernetes boundary where objects are made, and where jobs leave with our credentials for a cloud."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starburst.app.config import parse_config
from starburst.app.wiring.build import _admit
from starburst.app.wiring.stored import intake_rules
from starburst.core.model.events import LeaveRuled, RunEnd, RunEnded, SiteSynced
from starburst.core.model.jobs import JobRecord
from starburst.core.views.explain import explain
from starburst.domain.job import ANYBODY, OWNER, CloudChoice, Job, Submission, Submitter, Workload
from starburst.domain.resources import Resources
from starburst.runs.ports import Run
from starburst.store import codec
from tests.builders import HOUR, Desk, job
from tests.clusters.kubernetes.scene import NS, Scene, a_job, play
from tests.kube_unit.server import Asked
from tests.security.test_kubernetes import PWN, RULES, a_manifest
from translator.carried import Bucket
from translator.errors import ManifestErrors
from translator.manifests.live_object import read_object
from translator.tasks.runtime_values import UnresolvedError, mounts_of
from translator.tasks.storage.cloud_volumes import at_home

# --- where the object is made: what lies in the store obeys as well ---------------------------------------


def stored(scene: Scene, manifest: Mapping[str, Any], submitter: Submitter = ANYBODY) -> None:
    """A job that is in the store already, whoever let it in."""
    job = Job("old", "old", (Resources(1, 1000, 0),), queue="papers", cloud=CloudChoice.NEVER)
    scene.desk.submit([Submission(job, Workload(manifest=json.dumps(manifest), submitter=submitter))])
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


def test_a_secret_is_given_only_if_the_cluster_lets_the_submitters_user_get_it(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        scene.world.allows = lambda asked: asked.get("resource") != "secrets"
        stored(scene, a_manifest({}, {"envFrom": [{"secretRef": {"name": "hers"}}]}, namespace=NS), ADA)
        await scene.start("old", "n0")
        (end,) = [event for event in scene.reports if isinstance(event, RunEnded)]
        assert "Kubernetes user ada may not get Secret hers" in end.message
        assert scene.jobs() == []
        reviews = [call for call in scene.world.asked if call.path.endswith("selfsubjectaccessreviews")]
        (asked,) = [call for call in reviews if "Impersonate-User" in call.headers]
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
    assert WHY in explain(desk.scheduler.state, desk["stays"], str).sentence
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
    assert "then it waits on" not in explain(desk.scheduler.state, desk["waits"], str).sentence


def test_the_ruling_survives_a_restart() -> None:
    desk = Desk(1)
    desk.submit(job("full", 1), job("stays", 1, confined=WHY))
    text = codec.encode(desk["stays"])
    assert codec.decode(JobRecord, text).confined == WHY


# --- what goes along to a rented machine -----------------------------------------------------------------


def test_a_job_from_before_the_check_takes_no_secret_of_others_along() -> None:
    run = Run(Job("old", "old", (Resources(1),)), 1, (), Workload(manifest=json.dumps(PWN)))
    with pytest.raises(UnresolvedError, match="crown-jewels"):
        _admit(RULES, run)
    at_home = json.dumps({**PWN, "metadata": {"name": "mine"}})
    _admit(RULES, replace(run, workload=Workload(manifest=at_home, submitter=OWNER)))


MINE, THEIRS = Bucket("s3://mine"), Bucket("s3://theirs")


@pytest.mark.parametrize(
    ("namespace", "store"), [("", MINE), ("jobs", MINE), ("papers", THEIRS), ("elsewhere", None)]
)
def test_a_claim_of_the_same_name_in_another_namespace_gets_no_bucket_of_ours(
    namespace: str, store: Bucket | None
) -> None:
    stores = at_home({"pvc/sets": MINE, "pvc/papers/sets": THEIRS}, "jobs")
    manifest = a_manifest(
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "sets"}}]},
        {"volumeMounts": [{"name": "v", "mountPath": "/in"}]},
        namespace=namespace,
    )
    if store is None:
        with pytest.raises(UnresolvedError, match=r"pvc/elsewhere/sets under cloud\.volumes"):
            mounts_of(manifest, stores, in_container=True)
    else:
        (mount,) = mounts_of(manifest, stores, in_container=True)
        assert mount.store == store


def test_nor_has_an_adopted_job_of_another_namespace() -> None:
    config = parse_config(
        {
            "cluster": {"kind": "kubernetes", "namespace": "jobs"},
            "cloud": {"kind": "skypilot", "volumes": {"pvc/sets": "s3://mine"}},
        },
        "c",
    )
    item = a_job()
    spec = item["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "sets"}}]
    with pytest.raises(ManifestErrors, match=rf"pvc/{NS}/sets under cloud\.volumes"):
        read_object(item, job_id="a", rules=replace(intake_rules(config), may_stay=False))
    item["metadata"]["namespace"] = "jobs"
    read_object(item, job_id="a", rules=intake_rules(config))
