"""Files of ConfigMaps, Secrets and of the pod's own facts: judged at submit, read when their job starts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.translator.manifests import errors, job, read_one
from translator.carried import Carried
from translator.manifests.references import CONFIG_MAP, SECRET, Reference
from translator.tasks.runtime_values import (
    ReferencedData,
    TaskHost,
    UnresolvedError,
    evaluate,
    is_late,
    mounts_of,
    references,
    taken,
)

HUB, SETTINGS = Reference(SECRET, "ns", "hub"), Reference(CONFIG_MAP, "ns", "settings")
LEAVES: dict[str, Any] = {"native": True, "carries": Carried()}
DATA = {HUB: {"token": "hf", "key": "k"}, SETTINGS: {"a.yaml": "lr: 1\n", "b": "two"}}


def with_volumes(*sources: dict[str, Any], image: str = "me/train", **mount: Any) -> dict[str, Any]:
    """A Job with these volumes, each mounted below /v."""
    manifest = job("POD/restartPolicy", "Never")
    template = manifest["spec"]["template"]
    template["metadata"] = {"labels": {"team": 'a "b"', "app": "x"}}
    spec = template["spec"]
    numbered = [{"name": f"v{number}", **source} for number, source in enumerate(sources)]
    spec["volumes"] = numbered
    mounts = [{"name": each["name"], "mountPath": f"/v/{each['name']}", **mount} for each in numbered]
    spec["containers"][0] |= {"image": image, "volumeMounts": mounts}
    return manifest


def files_of(*sources: dict[str, Any], data: Any = None) -> dict[tuple[int, str], tuple[str, int | None]]:
    """Content and mode by volume and path."""
    found = ReferencedData("ns", DATA if data is None else data)
    values = evaluate(with_volumes(*sources), found, TaskHost(1, "10.0.0.7", "vm-7"))
    return {(file.volume, file.path): (content, file.mode) for file, content in values.files}


def test_all_keys_are_files_and_items_choose_names_and_modes() -> None:
    whole = {"configMap": {"name": "settings", "items": []}}
    chosen = {
        "secret": {
            "secretName": "hub",
            "defaultMode": 0o440,
            "items": [{"key": "token", "path": "d/t"}, {"key": "key", "path": "k", "mode": 0o400}],
        }
    }
    assert files_of(whole, chosen) == {
        (0, "a.yaml"): ("lr: 1\n", None),
        (0, "b"): ("two", None),
        (1, "d/t"): ("hf", 0o440),
        (1, "k"): ("k", 0o400),
    }


def test_a_projected_volume_joins_its_sources() -> None:
    sources = [
        {"configMap": {"name": "settings", "items": [{"key": "b", "path": "b"}]}},
        {"secret": {"name": "hub", "items": [{"key": "token", "path": "token"}]}},
        {
            "downwardAPI": {
                "items": [
                    {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                    {"path": "ip", "fieldRef": {"fieldPath": "status.podIP"}, "mode": 0o600},
                ]
            }
        },
    ]
    assert files_of({"projected": {"sources": sources, "defaultMode": 0o444}}) == {
        (0, "b"): ("two", 0o444),
        (0, "token"): ("hf", 0o444),
        (0, "labels"): ('app="x"\nteam="a \\"b\\""', 0o444),
        (0, "ip"): ("10.0.0.7", 0o600),
    }


def test_what_is_optional_may_be_missing_and_all_else_is_refused_without_a_value() -> None:
    gone = {"secretName": "gone"}
    assert files_of({"secret": {**gone, "optional": True}}) == {}
    with pytest.raises(UnresolvedError, match="there is no Secret gone in namespace ns"):
        files_of({"secret": gone}, data={**DATA, Reference(SECRET, "ns", "gone"): None})
    item = {"secretName": "hub", "items": [{"key": "nothing", "path": "n"}]}
    with pytest.raises(UnresolvedError, match="hub has no nothing") as refused:
        files_of({"secret": item})
    assert "hf" not in str(refused.value)


def test_what_its_files_come_from_is_looked_up_and_what_is_not_mounted_is_not() -> None:
    manifest = with_volumes({"configMap": {"name": "settings"}}, {"secret": {"secretName": "hub"}})
    assert set(references(manifest, "ns")) == {SETTINGS, HUB}
    assert is_late(manifest)
    assert taken(manifest) == (
        "spec.template.spec.volumes[0].configMap",
        "spec.template.spec.volumes[1].secret",
    )
    manifest["spec"]["template"]["spec"]["containers"][0]["volumeMounts"].pop()
    assert set(references(manifest, "ns")) == {SETTINGS}


@pytest.mark.parametrize("runtime", ["container", "host"])
def test_a_job_leaves_with_its_files_and_a_note_less(runtime: str) -> None:
    manifest = with_volumes({"configMap": {"name": "settings"}})
    manifest["metadata"]["annotations"] = {"starburst.io/runtime": runtime}
    assert not read_one(manifest, **LEAVES).notes


@pytest.mark.parametrize("source", ["serviceAccountToken", "clusterTrustBundle"])
def test_what_only_a_cluster_can_project_keeps_a_job_there(source: str) -> None:
    manifest = with_volumes({"projected": {"sources": [{source: {"path": "token"}}]}})
    (problem,) = errors(manifest, **LEAVES)
    assert f"the projected {source}" in problem or "exists in the cluster alone" in problem


@pytest.mark.parametrize("projected", [True, False])
@pytest.mark.parametrize(
    ("item", "part"),
    [
        ({"fieldRef": {"fieldPath": "metadata.uid"}}, "metadata.uid"),
        (
            {"resourceFieldRef": {"containerName": "main", "resource": "requests.ephemeral-storage"}},
            "requests",
        ),
        ({"resourceFieldRef": {"containerName": "proxy", "resource": "limits.cpu"}}, "limits.cpu"),
    ],
)
def test_a_value_that_no_cloud_has_keeps_a_job_there_as_a_file_too(
    item: dict[str, Any], part: str, projected: bool
) -> None:
    """It was found missing only when the run began."""
    source: dict[str, Any] = {"downwardAPI": {"items": [{"path": "file", **item}]}}
    source = {"projected": {"sources": [source]}} if projected else source
    found = read_one(with_volumes(source), **LEAVES)
    assert found.job.stays.startswith(f"stays on the cluster: a value of {part}")
    known = {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}
    assert not read_one(with_volumes(known), **LEAVES).job.stays


def test_an_item_that_leads_out_of_its_volume_is_refused() -> None:
    items = [{"key": "b", "path": "../../etc/passwd"}]
    (problem,) = errors(with_volumes({"configMap": {"name": "settings", "items": items}}), **LEAVES)
    assert "without .." in problem


def test_memory_is_memory_of_its_size_if_it_is_mounted_once_as_a_whole() -> None:
    memory = {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
    (mount,) = mounts_of(with_volumes(memory), {}, in_container=True)
    assert mount.memory_mib == 1024
    (mount,) = mounts_of(with_volumes({"emptyDir": {"medium": "Memory"}}), {}, in_container=True)
    assert mount.memory_mib == 0
    (mount,) = mounts_of(with_volumes(memory, subPath="x"), {}, in_container=True)
    assert (mount.memory_mib, mount.below) == (None, "0/x")
