"""Every field that the scheduler reads is spoken of when a job leaves."""

from __future__ import annotations

import pytest

from tests.translator.manifests import errors, job, pod
from translator.manifests import manifest
from translator.manifests import pod as pods
from translator.tasks import container, untranslated
from translator.tasks.skypilot import to_skypilot


@pytest.mark.parametrize(
    ("known", "spoken_of"),
    [
        (manifest._METADATA, untranslated._METADATA),
        (manifest._JOB_SPEC, untranslated._JOB_SPEC),
        (pods.POD_SPEC, untranslated._POD_SPEC),
        (container.CONTAINER, untranslated._CONTAINER),
    ],
    ids=["metadata", "job", "pod", "container"],
)
def test_no_field_that_is_read_goes_without_a_word(known, spoken_of):
    assert set(known.names) == spoken_of.names


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("POD/hostNetwork", True),
        ("POD/initContainers", [{"name": "a", "image": "b", "command": ["c"]}]),
        ("CONTAINER/securityContext", {"privileged": True}),
        ("CONTAINER/envFrom", [{"secretRef": {"name": "a"}}]),
        ("CONTAINER/volumeDevices", [{"name": "a", "devicePath": "/dev/x"}]),
        ("spec/successPolicy", {"rules": []}),
    ],
)
def test_what_keeps_a_job_from_leaving_when_it_is_submitted_is_not_kept_in_its_task_either(path, value):
    changed = job(path, value)
    assert errors(changed, native=True)
    assert to_skypilot(changed).refused()


def test_strict_counts_every_loss():
    found = to_skypilot(job("spec/ttlSecondsAfterFinished", 5))
    assert not found.refused()
    assert "spec.ttlSecondsAfterFinished" in [line.field for line in found.refused(strict=True)]


def test_a_manifest_without_a_loss_is_strictly_kept():
    manifest = pod(nodeSelector={"nvidia.com/gpu.product": "NVIDIA-L4"})
    manifest["spec"]["containers"][0]["workingDir"] = "/srv"
    assert to_skypilot(manifest).refused(strict=True) == ()


@pytest.mark.parametrize("value", [{}, {"kind": "Job"}, {"kind": "Service"}, {"metadata": 3}])
def test_what_is_no_job_becomes_no_task(value):
    found = to_skypilot(value)
    assert found.task == {}
    assert found.refused()


def test_lines_come_in_the_order_of_the_manifest():
    fields = [line.field for line in to_skypilot(job("spec/ttlSecondsAfterFinished", 5)).report]
    assert fields.index("metadata.name") < fields.index("spec.template.spec.restartPolicy")
    assert fields[-1] == "spec.ttlSecondsAfterFinished"


def test_the_manifest_stays_as_it_was():
    manifest = job("metadata|annotations", {"starburst.io/cloud": "only"})
    before = repr(manifest)
    to_skypilot(manifest)
    assert repr(manifest) == before


def test_mistakes_are_told_as_submit_tells_them():
    wrong = job("CONTAINER/resources", {"requests": {"cpu": "1x"}})
    (told,) = errors(wrong, native=True)
    (line,) = to_skypilot(wrong).refused()
    assert told.endswith(f"{line.field}: {line.text}")
