"""Jobs and Pods found in a cluster become what their users wrote, with the server's own taken off."""

from __future__ import annotations

import copy
import json

import pytest

from starburst.domain.constraints import Rules, Toleration
from starburst.domain.job import Adopted, CloudChoice
from starburst.domain.resources import Resources
from tests.translator.live_objects import JOB, POD, adopt, changed, errors, manifest_of
from translator.manifests.live_object import read_object


def test_a_job_is_adopted_under_the_id_it_is_given() -> None:
    found = adopt(JOB)
    assert (found.job.id, found.job.name, found.job.user, found.job.queue) == (
        "adopted-1",
        "train",
        "ada",
        "nlp",
    )
    assert found.job.tasks == (Resources.of(1, 4, 16),) * 2
    assert (found.job.max_wait_s, found.job.cloud) == (7200, CloudChoice.AUTO)
    assert found.workload.adopted == Adopted("Job", "vision", "train", "8f6f0f5e-0b0f-4a54-9a52-2f4b3a1d7c11")
    assert found.notes == ()


def test_of_a_job_remains_what_its_user_wrote() -> None:
    manifest = manifest_of(JOB)
    assert manifest["metadata"] == {
        "name": "train",
        "namespace": "vision",
        "labels": {"app": "train", "starburst.io/queue": "nlp", "starburst.io/user": "ada"},
        "annotations": {"starburst.io/max-wait": "2h"},
    }
    assert manifest["spec"]["template"]["metadata"] == {"labels": {"app": "train"}}
    assert manifest["spec"]["template"]["spec"] == JOB["spec"]["template"]["spec"]
    assert not manifest["spec"].keys() & {"selector", "suspend"}
    assert "status" not in manifest


def test_a_deadline_that_was_taken_off_while_the_job_waits_is_put_back() -> None:
    found = adopt(JOB)
    assert found.workload.time_limit_s == found.job.time_limit_s == 600
    assert json.loads(found.workload.manifest or "")["spec"]["activeDeadlineSeconds"] == 600


def test_a_selector_that_the_user_gave_is_kept() -> None:
    manifest = manifest_of(changed(JOB, "spec|manualSelector", True))
    assert manifest["spec"]["selector"] == JOB["spec"]["selector"]


def test_a_pod_is_adopted_without_what_admission_gave_it() -> None:
    found = adopt(POD, user="bob")
    assert found.notes == ("spec.restartPolicy: a failed command is not restarted in place in the cloud",)
    assert (found.job.user, found.job.tasks) == ("bob", (Resources.of(0, 2),))
    assert found.job.rules == Rules(tolerations=(Toleration("spot", "Exists"),))
    assert found.workload.adopted == Adopted("Pod", "default", "probe", "1d0b7a2c")
    spec = manifest_of(POD)["spec"]
    assert spec["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert not spec.keys() & {"volumes", "nodeName", "priority"}
    assert "volumeMounts" not in spec["containers"][0]


def test_a_deadline_that_is_no_number_of_seconds_is_none_of_starbursts() -> None:
    annotated = {**JOB["metadata"]["annotations"], "starburst.io/active-deadline": "9" * 5000}
    found = manifest_of({**JOB, "metadata": {**JOB["metadata"], "annotations": annotated}})
    assert "activeDeadlineSeconds" not in found["spec"]


def test_an_object_of_a_list_need_not_say_what_it_is() -> None:
    nameless = {key: value for key, value in JOB.items() if key not in ("kind", "apiVersion")}
    assert manifest_of(nameless) == manifest_of(JOB)


def test_reading_leaves_the_object_as_it_is() -> None:
    before = copy.deepcopy((JOB, POD))
    adopt(JOB)
    adopt(POD)
    assert before == (JOB, POD)


def test_what_was_adopted_can_be_submitted_and_adopted_again() -> None:
    for obj in (JOB, POD):
        once = manifest_of(obj)
        again = adopt({**once, "metadata": {**once["metadata"], "uid": obj["metadata"]["uid"]}}, "ada")
        assert again == adopt(obj, "ada")


def test_the_accounts_secret_that_servers_before_1_21_mount_is_no_wish_of_the_user() -> None:
    mounted = [{"name": "default-token-8xkqz", "secret": {"secretName": "default-token-8xkqz"}}]
    old = changed(POD, "spec|volumes", mounted)
    place = "/var/run/secrets/kubernetes.io/serviceaccount"
    old["spec"]["containers"][0]["volumeMounts"] = [{"name": "default-token-8xkqz", "mountPath": place}]
    assert errors(old) == []
    spec = manifest_of(old)["spec"]
    assert "volumes" not in spec
    assert "volumeMounts" not in spec["containers"][0]


def test_a_users_own_secret_is_kept_though_it_is_named_like_an_accounts() -> None:
    own = [{"name": "hf-token-write", "secret": {"secretName": "hf-token-write"}}]
    found = changed(POD, "spec|volumes", own)
    mounts = [{"name": "hf-token-write", "mountPath": "/etc/hub"}]
    found["spec"]["containers"][0]["volumeMounts"] = mounts
    spec = manifest_of(found)["spec"]
    assert spec["volumes"] == own
    assert spec["containers"][0]["volumeMounts"] == mounts


def test_an_adopted_job_is_not_elastic_as_its_completions_are_fixed() -> None:
    annotated = {**JOB["metadata"]["annotations"], "starburst.io/elastic": "true"}
    found = read_object({**JOB, "metadata": {**JOB["metadata"], "annotations": annotated}}, job_id="a")
    assert found.job.least_tasks == 0
    assert any("keeps its completions" in note for note in found.notes)


def test_retries_of_an_adopted_job_are_its_backoff_limits_and_that_is_said() -> None:
    annotated = {**JOB["metadata"]["annotations"], "starburst.io/retries": "3"}
    found = read_object({**JOB, "metadata": {**JOB["metadata"], "annotations": annotated}}, job_id="a")
    assert found.job.retries == 0
    assert any("its own backoffLimit is kept" in note for note in found.notes)
    one = changed(changed(JOB, "spec|parallelism", 1), "spec|completions", 1)
    said = "spec.backoffLimit: a failed command is not run again in the cloud"
    assert said in adopt(changed(one, "spec|backoffLimit", 2)).notes
    assert said not in adopt(one).notes, "6 is the server's own default"
    plain = read_object(JOB, job_id="a")  # a gang with a backoffLimit
    assert (len(plain.job.tasks), plain.job.retries) == (2, 0)
    assert not any("backoffLimit" in note for note in plain.notes)


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_a_job_by_turns_is_as_large_as_its_parallelism_and_stays(mode: str) -> None:
    several = changed(changed(JOB, "spec|completions", 10), "spec|completionMode", mode)
    found = adopt(several)
    assert (len(found.job.tasks), found.job.array, found.job.cloud) == (2, None, CloudChoice.NEVER)
    assert found.workload.manifest is not None
    spec = json.loads(found.workload.manifest)["spec"]
    assert (spec["completions"], spec["completionMode"]) == (10, mode), "as its user wrote it"


def test_fields_of_the_newest_servers_are_taken_for_the_cluster() -> None:
    """Kubernetes 1.36: JobSpec.scheduling, PodSpec.evictionResponders; native sidecars (1.29) as ever."""
    newest = changed(JOB, "spec|scheduling", {"policy": {"gang": {}}})
    spec = newest["spec"]["template"]["spec"]
    spec["evictionResponders"] = [{"name": "example.org/checkpointer", "priority": 1}]
    spec["initContainers"] = [{"name": "proxy", "image": "envoy", "restartPolicy": "Always"}]
    spec["schedulingGates"] = [{"name": "example.org/quota"}]
    newest["spec"] |= {
        "backoffLimitPerIndex": 1,
        "maxFailedIndexes": 2,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": []}]},
        "successPolicy": {"rules": [{"succeededCount": 1}]},
        "ttlSecondsAfterFinished": 5,
        "suspend": True,
    }
    found = adopt(changed(newest, "metadata|annotations|starburst.io/cloud", "never"))
    assert found.workload.manifest is not None
    kept = json.loads(found.workload.manifest)["spec"]
    assert kept["scheduling"] == newest["spec"]["scheduling"]
    assert "schedulingGates" not in kept["template"]["spec"], "they are gone when it runs"
    group = changed(JOB, "spec|template|spec|schedulingGroup", {"podGroupName": "g"})
    assert not errors(group)
