"""What a job takes from its cluster where it runs elsewhere: said at submit, read when it starts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.translator.manifests import CONTAINER, errors, job, read_one
from translator.carried import Carried
from translator.intake.rules import IntakeRules
from translator.manifests.live_object import read_object
from translator.manifests.references import CONFIG_MAP, SECRET, Reference
from translator.tasks.runtime_values import (
    ReferencedData,
    RuntimeValues,
    TaskHost,
    UnresolvedError,
    evaluate,
    is_late,
    references,
)

LOGIN, LIMITS = Reference(SECRET, "ns", "login"), Reference(CONFIG_MAP, "ns", "limits")
HERE = TaskHost(rank=1, address="10.0.0.7", host="vm-7")


def of_secret(key: str = "password", **more: Any) -> dict[str, Any]:
    return {"valueFrom": {"secretKeyRef": {"name": "login", "key": key, **more}}}


def of_field(path: str) -> dict[str, Any]:
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


def with_env(*env: dict[str, Any], **container: Any) -> dict[str, Any]:
    manifest = job("CONTAINER/env", list(env))
    manifest["spec"]["template"]["spec"]["containers"][0] |= container
    return manifest


def given(manifest: dict[str, Any], data: dict[Reference, Any] | None = None) -> RuntimeValues:
    known = {LOGIN: {"user": "me", "password": "s3cret"}, LIMITS: {"lr": "0.1", "note": "a\nb"}}
    return evaluate(manifest, ReferencedData("ns", known if data is None else data), HERE)


PASSWORD = {"name": "PASSWORD", **of_secret()}


def test_values_of_secrets_are_apart_with_all_that_is_made_of_them() -> None:
    found = given(
        with_env(
            {"name": "HOST", "value": "db"},
            PASSWORD,
            {"name": "URL", "value": "postgres://me:$(PASSWORD)@$(HOST)/$$(x)"},
            {"name": "LR", "valueFrom": {"configMapKeyRef": {"name": "limits", "key": "lr"}}},
        )
    )
    assert found.plain == {"HOST": "db", "LR": "0.1"}
    assert found.secret == {"PASSWORD": "s3cret", "URL": "postgres://me:s3cret@db/$(x)"}
    assert "s3cret" not in repr(found)
    assert "s3cret" not in repr(ReferencedData("ns", {LOGIN: {"password": "s3cret"}}))


def test_all_of_a_config_map_or_secret_may_be_taken_and_env_has_the_last_word() -> None:
    sources = [{"configMapRef": {"name": "limits"}, "prefix": "L_"}, {"secretRef": {"name": "login"}}]
    found = given(with_env({"name": "user", "value": "you"}, envFrom=sources))
    assert found.plain == {"L_lr": "0.1", "L_note": "a\nb", "user": "you"}
    assert found.secret == {"password": "s3cret"}


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed", None])
def test_each_task_of_a_gang_has_a_pods_name_of_its_own(mode: str | None) -> None:
    """What they write by it would else be one another's."""
    gang = with_env({"name": "POD", **of_field("metadata.name")})
    gang["spec"] |= {"parallelism": 2, "completions": 2, "completionMode": mode}
    assert given(gang).plain == {"POD": "train-1"}
    gang["spec"] |= {"parallelism": 1, "completions": 1, "completionMode": None}
    assert given(gang).plain == {"POD": "train"}


def test_no_name_is_special_where_no_shell_sets_it() -> None:
    """A Secret's keys may have dots and dashes, and a program may be told to leave GPUs alone."""
    data = {LOGIN: {"tls.crt": "c", "api-key": "k", "UID": "7"}}
    env = [{"name": "CUDA_VISIBLE_DEVICES", "value": ""}, {"name": "COLUMNS", **of_secret("api-key")}]
    found = given(with_env(*env, envFrom=[{"secretRef": {"name": "login"}}]), data)
    assert found.secret == {"tls.crt": "c", "api-key": "k", "UID": "7", "COLUMNS": "k"}
    assert found.plain == {"CUDA_VISIBLE_DEVICES": ""}


def test_what_only_the_machine_knows_is_its_own_also_in_the_command_line() -> None:
    found = given(
        with_env(
            {"name": "IP", **of_field("status.podIP")},
            {"name": "NODE", **of_field("spec.nodeName")},
            {"name": "NAME", **of_field("metadata.name")},
            {"name": "TEAM", **of_field("metadata.labels['team']")},
            {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            command=["serve", "--host=$(IP)"],
            args=["$(NODE)", "$$(IP)"],
        )
    )
    assert found.plain == {"IP": "10.0.0.7", "NODE": "vm-7", "NAME": "train", "TEAM": "", "CPUS": "4"}
    assert found.command == ("serve", "--host=10.0.0.7", "vm-7", "$(IP)")


@pytest.mark.parametrize(
    ("manifest", "data", "why"),
    [
        (with_env(PASSWORD), {LOGIN: None}, "there is no Secret login in namespace ns; create it"),
        (with_env(PASSWORD), {LOGIN: {"user": "me"}}, "Secret login has no key password; add it"),
        (
            with_env(envFrom=[{"configMapRef": {"name": "limits"}}]),
            {},
            "there is no ConfigMap limits in namespace ns; create it",
        ),
        (
            with_env(envFrom=[{"secretRef": {"name": "login"}}], command=["sh", "-c", "x $(password)"]),
            None,
            f"{CONTAINER}.command[2]: a Secret's value would stand in the command line",
        ),
    ],
)
def test_what_is_missing_is_named_and_no_value_is(
    manifest: dict[str, Any], data: dict[Reference, Any] | None, why: str
) -> None:
    with pytest.raises(UnresolvedError) as bad:
        given(manifest, data)
    assert why in str(bad.value)
    assert "s3cret" not in str(bad.value)


def test_what_is_optional_may_be_missing() -> None:
    assert given(with_env({"name": "A", **of_secret("none", optional=True)})).secret == {}
    assert given(with_env({"name": "A", **of_secret(optional=True)}), {LOGIN: None}).secret == {}
    optional = {"secretRef": {"name": "login", "optional": True}}
    assert given(with_env(envFrom=[optional]), {LOGIN: None}).secret == {}


def test_each_object_is_looked_up_once_where_the_manifest_is() -> None:
    manifest = with_env(PASSWORD, {"name": "USER", **of_secret("user")})
    manifest["spec"]["template"]["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "limits"}}]
    assert references(manifest, "ns") == (LIMITS, LOGIN)
    manifest["metadata"]["namespace"] = "team"
    assert {each.namespace for each in references(manifest, "ns")} == {"team"}


@pytest.mark.parametrize(
    ("manifest", "late"),
    [
        (with_env(PASSWORD), True),
        (with_env(envFrom=[{"secretRef": {"name": "login"}}]), True),
        (with_env({"name": "A", "value": "b"}), False),
        (with_env(), False),
    ],
)
def test_only_jobs_with_values_from_elsewhere_wait_for_them(manifest: dict[str, Any], late: bool) -> None:
    assert is_late(manifest) is late


LATE = with_env(PASSWORD, envFrom=[{"configMapRef": {"name": "limits"}}])


def test_who_may_leave_keeps_its_values_where_the_cloud_is_given_them() -> None:
    found = read_one(LATE, native=True, carries=Carried())
    assert (found.notes, found.workload.env) == ((), ())
    stored = {"metadata": {"uid": "u", **LATE["metadata"]}, "spec": LATE["spec"]}
    assert read_object(stored, job_id="a", rules=IntakeRules(native=True, carries=Carried())).job.id == "a"


def test_elsewhere_they_stay_refused_by_name() -> None:
    for native in (False, True):
        lines = errors(LATE, native=native)
        assert [line.split(": ")[1] for line in lines] == [
            f"{CONTAINER}.envFrom",
            f"{CONTAINER}.env[0].valueFrom",
        ]
        assert ("starburst.io/cloud: never" in lines[0]) is native


@pytest.mark.parametrize(
    ("manifest", "line"),
    [
        (
            with_env({"name": "A", **of_field("metadata.uid")}),
            f"{CONTAINER}.env[0].valueFrom: metadata.uid exists in the cluster alone",
        ),
        (
            with_env({"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.hugepages-2Mi"}}}),
            f"{CONTAINER}.env[0].valueFrom: the container has no limits.hugepages-2Mi",
        ),
        (
            with_env(PASSWORD, command=["curl", "-u", "me:$(PASSWORD)"]),
            f"{CONTAINER}.command[2]: $(PASSWORD) is a Secret's value, or may be made of one; "
            "read $PASSWORD in the command",
        ),
    ],
)
def test_what_cannot_be_had_away_is_refused_at_once(manifest: dict[str, Any], line: str) -> None:
    (told,) = errors(manifest, native=True, carries=Carried())
    assert line in told
    manifest["metadata"]["annotations"] = {"starburst.io/cloud": "never"}
    assert errors(manifest, native=True, carries=Carried()) == []
    del manifest["metadata"]["annotations"]


def test_what_means_something_else_away_is_said() -> None:
    (note,) = read_one(
        with_env({"name": "A", **of_field("status.podIP")}), native=True, carries=Carried()
    ).notes
    assert note == f"{CONTAINER}.env[0].valueFrom: the address of the machine, in the cloud"
