"""The object of a run is the user's own manifest, with the marks of Starburst and nothing lost."""

from __future__ import annotations

import copy
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.clusters.kubernetes.manifest import (
    KEEP_S,
    made_anew,
    namespace_of,
    object_name,
    placed,
    restarts_in_place,
)
from starburst.domain.job import Adopted, Member
from starburst.kube import names
from tests.clusters.kubernetes.run_objects import TRAIN, env_of, made, run
from translator.manifests.manifest import MAX_TASKS


def test_all_that_its_user_wrote_is_there_but_for_what_servers_write() -> None:
    job = made(run())
    expected = copy.deepcopy(TRAIN)
    expected["metadata"] = {
        "name": "train-abcde-2",
        "namespace": "team",
        "labels": {
            "app": "train",
            names.QUEUE: "big",
            names.JOB: "train-abcde",
            names.CONTROLLER: "me",
        },
        "annotations": {
            "note": "mine",
            names.ATTEMPT: "2",
            names.NODES: "n0",
            names.DECISION: "because",
        },
    }
    spec, template = expected["spec"], expected["spec"]["template"]
    del spec["selector"]
    spec |= {"parallelism": 1, "completions": 1, "ttlSecondsAfterFinished": KEEP_S}
    template["metadata"] = {
        "labels": {"app": "train", names.JOB: "train-abcde", names.CONTROLLER: "me"},
        "annotations": {"sidecar": "no", names.ATTEMPT: "2"},
    }
    template["spec"]["schedulerName"] = "chakra"
    environment = [
        {"name": "STARBURST_JOB", "value": "train-abcde"},
        {"name": "STARBURST_ATTEMPT", "value": "2"},
        {"name": "STARBURST_SITE", "value": "cluster"},
        {"name": "STARBURST_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {
            "name": "STARBURST_RANK",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['starburst.io/rank']"}},
        },
        {"name": "STARBURST_WORLD_SIZE", "value": "1"},
        {
            "name": "JOB_COMPLETION_INDEX",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['starburst.io/rank']"}},
        },
    ]
    main, side = template["spec"]["containers"]
    main["env"] = [*environment, {"name": "LR", "value": "$(STARBURST_RANK)"}]
    side["env"] = environment
    assert job == expected


def test_it_is_told_where_to_say_how_far_it_is_unless_its_user_says_so() -> None:
    reporting = {"STARBURST_REPORT": "http://here/", "STARBURST_REPORT_TOKEN": "secret"}
    job = made(run(), reporting=reporting)
    for container in (0, 1):
        assert reporting.items() <= env_of(job, container).items()
    manifest = copy.deepcopy(TRAIN)
    main, _ = manifest["spec"]["template"]["spec"]["containers"]
    main["env"].append({"name": "STARBURST_REPORT", "value": "mqtt://broker/$(STARBURST_JOB)"})
    job = made(run(manifest), reporting=reporting)
    assert env_of(job)["STARBURST_REPORT"] == "mqtt://broker/$(STARBURST_JOB)"
    assert "STARBURST_REPORT_TOKEN" not in env_of(job)
    assert reporting.items() <= env_of(job, 1).items()


def test_the_submission_itself_is_not_touched() -> None:
    given_run = run()
    assert made(given_run) == made(given_run)


def test_the_user_may_say_how_long_a_finished_job_is_kept() -> None:
    manifest = copy.deepcopy(TRAIN)
    manifest["spec"]["ttlSecondsAfterFinished"] = 5
    found = made(run(manifest))
    assert found["spec"]["ttlSecondsAfterFinished"] == KEEP_S, "until its end is stored"
    assert found["metadata"]["annotations"][names.TTL] == "5"
    manifest["spec"]["ttlSecondsAfterFinished"] = 2 * KEEP_S
    found = made(run(manifest))
    assert found["spec"]["ttlSecondsAfterFinished"] == 2 * KEEP_S
    assert names.TTL not in found["metadata"]["annotations"]


def test_a_job_that_starburst_runs_again_itself_is_not_tried_again_by_the_cluster() -> None:
    alone = run()
    again = dataclasses.replace(alone, job=dataclasses.replace(alone.job, retries=2))
    assert made(alone)["spec"].get("backoffLimit") != 0
    assert made(again)["spec"]["backoffLimit"] == 0


@pytest.mark.parametrize("limit", [None, 3])
def test_nor_is_a_gang_or_one_that_says_how_often_though_that_is_never(limit: int | None) -> None:
    spec = {name: value for name, value in TRAIN["spec"].items() if name != "backoffLimit"}
    spec |= {} if limit is None else {"backoffLimit": limit}
    never = {**TRAIN["metadata"], "annotations": {"starburst.io/retries": "0"}}
    assert made(run({**TRAIN, "spec": spec}, tasks=2))["spec"]["backoffLimit"] == 0
    assert made(run({**TRAIN, "metadata": never, "spec": spec}))["spec"]["backoffLimit"] == 0
    by_turns = {**TRAIN, "spec": {**spec, "parallelism": 2, "completions": 5}}
    whose = Adopted("Job", "team", "train", "uid")
    for theirs in (run(by_turns, tasks=2), run({**TRAIN, "spec": spec}, tasks=2, adopted=whose)):
        assert made(theirs)["spec"].get("backoffLimit") == limit, "the cluster tries again, pod by pod"


def test_a_job_of_an_array_is_told_its_index_and_the_cluster_gives_it_none() -> None:
    alone = run({**TRAIN, "spec": {**TRAIN["spec"], "completionMode": "Indexed"}})
    one = dataclasses.replace(alone, job=dataclasses.replace(alone.job, array=Member("sweep", 7, 10)))
    job = made(one, indexed=True)
    assert "completionMode" not in job["spec"]
    told = {
        name: env_of(job)[name]
        for name in ("JOB_COMPLETION_INDEX", "STARBURST_ARRAY", "STARBURST_ARRAY_INDEX")
    }
    assert list(told.values()) == ["7", "sweep", "7"]


def test_a_gang_of_an_array_has_its_ranks_from_the_cluster_and_its_index_from_us() -> None:
    gang = run({**TRAIN, "spec": {**TRAIN["spec"], "parallelism": 2, "completions": 2}}, tasks=2)
    one = dataclasses.replace(gang, job=dataclasses.replace(gang.job, array=Member("sweep", 7, 10)))
    job = made(one, indexed=True)
    assert (job["spec"]["completionMode"], job["spec"]["completions"]) == ("Indexed", 2)
    assert "JOB_COMPLETION_INDEX" not in env_of(job)
    assert env_of(job)["STARBURST_ARRAY_INDEX"] == "7"
    rank = {"fieldRef": {"fieldPath": "metadata.annotations['starburst.io/rank']"}}
    assert env_of(made(one, indexed=False))["JOB_COMPLETION_INDEX"] == rank
    assert one.indices(1) == {
        "JOB_COMPLETION_INDEX": "1",
        "STARBURST_ARRAY": "sweep",
        "STARBURST_ARRAY_INDEX": "7",
    }


def test_every_container_finds_the_jobs_own_directory_of_the_checkpoint_volume() -> None:
    claim = {"persistentVolumeClaim": {"claimName": "checkpoints"}}
    pod = made(run(job_id="a.b"), checkpoints=claim)["spec"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "data", "emptyDir": {}}, {"name": "starburst-checkpoints", **claim}]
    mount = {"name": "starburst-checkpoints", "mountPath": "/starburst/checkpoints", "subPath": "a%2Eb"}
    assert pod["containers"][0]["volumeMounts"] == [{"name": "data", "mountPath": "/data"}, mount]
    assert pod["containers"][1]["volumeMounts"] == [mount]


def test_its_place_in_there_is_told_and_only_if_there_is_one() -> None:
    assert env_of(made(run(), checkpoints={"emptyDir": {}}))["STARBURST_CHECKPOINT_DIR"]
    assert "STARBURST_CHECKPOINT_DIR" not in env_of(made(run()))


def test_a_pod_becomes_a_job_of_one_that_does_not_try_again() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team", "labels": {"app": "p"}, "annotations": {"note": "x"}},
        "spec": {"nodeName": "n9", "hostNetwork": True, "containers": [{"name": "main"}]},
    }
    job = made(run(pod))
    assert (job["kind"], job["metadata"]["name"]) == ("Job", "train-abcde-2")
    assert job["metadata"]["labels"]["app"] == "p"
    assert (job["spec"]["backoffLimit"], job["spec"]["parallelism"]) == (0, 1)
    template = job["spec"]["template"]
    assert template["metadata"]["labels"]["app"] == "p"
    assert template["metadata"]["annotations"]["note"] == "x"
    assert set(template["metadata"]) == {"labels", "annotations"}
    assert (template["spec"]["hostNetwork"], template["spec"]["restartPolicy"]) == (True, "Never")
    assert "nodeName" not in template["spec"]


def test_a_job_that_came_without_a_manifest_is_made_up_of_its_workload() -> None:
    workload = {
        "command": ("python", "t.py"),
        "image": "img",
        "env": (("A", "1"),),
        "working_dir": "/w",
        "time_limit_s": 90.0,
    }
    job = made(run(None, **workload))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert (container["command"], container["image"]) == (["python", "t.py"], "img")
    assert (container["workingDir"], env_of(job)["A"]) == ("/w", "1")
    assert (job["spec"]["activeDeadlineSeconds"], job["spec"]["backoffLimit"]) == (90, 0)
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_empty_fields_are_as_good_as_none() -> None:
    manifest = {
        "kind": "Job",
        "metadata": {"name": "a", "labels": None, "annotations": None},
        "spec": {
            "template": {
                "metadata": None,
                "spec": {"volumes": None, "containers": [{"name": "m", "env": None, "volumeMounts": None}]},
            }
        },
    }
    job = made(run(manifest), checkpoints={"emptyDir": {}})
    assert job["metadata"]["labels"][names.JOB] == "train-abcde"


def test_without_a_reason_the_one_that_is_there_stays() -> None:
    assert names.DECISION not in placed(run(), "")
    assert placed(run(), "because")[names.DECISION] == "because"


def test_its_namespace_is_its_own_then_the_configs() -> None:
    assert namespace_of(run().workload, "default") == "team"
    assert namespace_of(run(None).workload, "default") == "default"
    found = Adopted("Pod", "theirs", "p", "uid")
    assert namespace_of(run(None, adopted=found).workload, "default") == "theirs"


def test_an_adopted_pod_made_anew_is_as_it_was_and_marked() -> None:
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team", "labels": {"starburst.io/queue": "q"}},
        "spec": {"nodeName": "n9", "schedulerName": "chakra", "containers": [{"name": "main"}]},
    }
    again = made_anew(run(pod), controller="me", decision="because")
    assert again["metadata"] == {
        "name": "p",
        "namespace": "team",
        "labels": {"starburst.io/queue": "q", names.JOB: "train-abcde", names.CONTROLLER: "me"},
        "annotations": {
            names.ADOPTED: "true",
            names.ATTEMPT: "2",
            names.NODES: "n0",
            names.DECISION: "because",
        },
    }
    assert again["spec"] == {"schedulerName": "chakra", "containers": [{"name": "main"}]}


@pytest.mark.parametrize(("policy", "expected"), [("OnFailure", True), ("Never", False), (None, False)])
def test_whether_failed_containers_are_restarted_is_the_manifests_to_say(
    policy: str | None, expected: bool
) -> None:
    spec = {"containers": [], "restartPolicy": policy}
    job = {"kind": "Job", "metadata": {}, "spec": {"template": {"spec": spec}}}
    assert restarts_in_place(run(job).workload) is expected
    assert restarts_in_place(run({"kind": "Pod", "metadata": {}, "spec": spec}).workload) is expected
    assert not restarts_in_place(run(None).workload)


ids = st.from_regex(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)


@given(ids, st.integers(1, 10**6))
def test_a_name_is_a_dns_label_and_leaves_room_for_the_index_of_a_pod(job_id: str, attempt: int) -> None:
    name = object_name(job_id, attempt)
    assert name[0].isalnum()
    assert name.endswith(f"-{attempt}")
    assert len(f"{name}-{MAX_TASKS - 1}") <= 63


@given(
    ids.filter(lambda id_: len(id_) < 50), ids.filter(lambda id_: len(id_) < 50), *[st.integers(1, 99)] * 2
)
def test_names_of_two_runs_differ(one: str, other: str, first: int, second: int) -> None:
    same = (one, first) == (other, second)
    assert (object_name(one, first) == object_name(other, second)) is same


def test_ids_that_are_cut_still_differ_for_their_ends_do() -> None:
    long = "x" * 57
    assert len({object_name(f"{long}-{end}", 1) for end in ("abcde", "abcdf")}) == 2
