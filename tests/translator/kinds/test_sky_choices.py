"""Alternatives of a SkyPilot task: several accelerators, `any_of` and `ordered`, as one job."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from starburst.domain.cloud import Offer, OfferRules
from starburst.domain.job import CloudChoice
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from tests.translator.kinds.running import Elsewhere, problems, read
from translator.fidelity import FidelityLevel
from translator.field import Field, ManifestReport
from translator.kinds.conversion import converted
from translator.kinds.kind_fidelity import KindReading
from translator.kinds.overrides import NONE
from translator.tasks.skypilot import to_skypilot

TASK = "name: train\nrun: python train.py\nresources: "
ORDER = "the order is not kept: at home the first with room is taken, in the cloud the cheapest"


def asked(resources: str) -> tuple[str, OfferRules, CloudChoice, tuple[str, ...]]:
    """GPUs as text, what may be rented, whether it leaves, and the notes."""
    found = read(TASK + resources, "task.yaml")
    return str(found.job.tasks[0]), found.job.offer_rules, found.job.cloud, found.notes


@pytest.mark.parametrize(
    ("resources", "gpus", "notes"),
    [
        ("{accelerators: {A100: 8, H100: 8}}", "8 A100 or H100 GPUs", ()),
        ("{accelerators: {'A100:8', 'NVIDIA-H100-80GB-HBM3:8'}}", "8 A100 or H100 GPUs", ()),
        ("{accelerators: {L4: null, a10g: null}}", "1 L4 or A10G GPU", ()),
        (
            "{accelerators: ['A100:8', 'H100:8']}",
            "8 A100 or H100 GPUs",
            (f"resources.accelerators: {ORDER}",),
        ),
        (
            "{accelerators: {'A100:8': null, 'V100:4': null, 'H100:8': null, 'H100:16': null}}",
            "8 A100 or H100 GPUs",
            ("resources.accelerators: V100:4, H100:16: left out; a job has one number of GPUs, here 8",),
        ),
        ("{any_of: [{accelerators: 'A100:8'}, {accelerators: 'H100:8'}]}", "8 A100 or H100 GPUs", ()),
        (
            "{ordered: [{accelerators: 'A100:8'}, {accelerators: {H100: 8, H200: 8}}]}",
            "8 A100 or H100 or H200 GPUs",
            (f"resources.ordered: {ORDER}",),
        ),
    ],
)
def test_any_of_the_types_with_the_number_of_the_first(
    resources: str, gpus: str, notes: tuple[str, ...]
) -> None:
    found, _, _, told = asked(resources)
    assert (found, told) == (gpus, notes)


@pytest.mark.parametrize(
    ("types", "resource"),
    [("MI300X", "amd.com/gpu"), ("MI300X, MI250X", "amd.com/gpu"), ("A100, MI300X", "nvidia.com/gpu")],
)
def test_gpus_of_amd_are_asked_for_by_their_own_name(types: str, resource: str) -> None:
    """Nodes have them under it alone, and no job that asks for nvidia.com/gpu rents them."""
    accelerators = "{" + ", ".join(f"{name}: 8" for name in types.split(", ")) + "}"
    found = converted(f"{TASK}{{accelerators: {accelerators}}}", "task.yaml", Elsewhere(), NONE)
    assert found is not None
    (container,) = json.loads(found.text)["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {resource: 8}
    offer = Offer("mi300x", Resources(8, 8000, 65536, "MI300X"), Money.of(1), gpu_maker="amd")
    assert asked(f"{{accelerators: {accelerators}}}")[1].admits(offer) == (resource == "amd.com/gpu")


@pytest.mark.parametrize(
    ("alternatives", "rules"),
    [
        ("{infra: aws}, {infra: gcp/us-1}", OfferRules("aws", elsewhere=(("gcp", "us-1", ""),))),
        ("{cloud: AWS, region: us-east-1}, {}", OfferRules()),
        ("{use_spot: true}, {use_spot: false}", OfferRules()),
        ("{use_spot: true, infra: aws}, {use_spot: true, infra: gcp}",
         OfferRules("aws", spot=True, elsewhere=(("gcp", "", ""),))),
        ("{infra: kubernetes}, {infra: aws, use_spot: true}", OfferRules("aws", spot=True)),
        ("{infra: k8s}, {}", OfferRules()),
        ("{infra: aws}, {infra: aws}", OfferRules("aws")),
    ],
)  # fmt: skip
def test_places_and_prices_of_any_alternative_will_do(alternatives: str, rules: OfferRules) -> None:
    for key in ("any_of", "ordered"):
        gpus, found, cloud, notes = asked(f"{{accelerators: A100, {key}: [{alternatives}]}}")
        assert (gpus, found, cloud) == ("1 A100 GPU", rules, CloudChoice.AUTO)
        either = "use_spot: true" in alternatives and rules.spot is None
        assert (
            any(note.startswith(f"resources.{key}[0]: spot machines and others") for note in notes) == either
        )


def test_types_and_places_that_go_with_any_of_each_other_are_all_kept() -> None:
    clouds, kinds = ("aws", "gcp"), ("L4", "T4")
    every = ", ".join(f"{{infra: {cloud}, accelerators: {kind}}}" for kind in kinds for cloud in clouds)
    gpus, rules, _, notes = asked(f"{{any_of: [{every}]}}")
    assert (gpus, rules.places, notes) == ("1 L4 or T4 GPU", (("aws", "", ""), ("gcp", "", "")), ())


MIXED = "is left out: a job takes any of its GPU types in any of its places, spot or not"


@pytest.mark.parametrize(
    ("resources", "gpus", "places", "note"),
    [
        (
            "{any_of: [{infra: aws, accelerators: L4}, {infra: gcp, accelerators: T4}, "
            "{infra: gcp, accelerators: L4}]}",
            "1 L4 GPU",
            ("aws", "gcp"),
            f"resources.any_of[1]: {MIXED}",
        ),
        (
            "{any_of: [{infra: aws, accelerators: L4}, {infra: k8s, accelerators: T4}]}",
            "1 L4 or T4 GPU",
            ("aws",),
            "",
        ),
        (
            "{any_of: [{accelerators: 'A100:8'}, {accelerators: 'H100:4', cpus: 8}]}",
            "8 A100 GPUs",
            ("",),
            "resources.any_of[1]: is left out: the number of GPUs and cpus would differ from the first "
            "alternative's",
        ),
        (
            "{any_of: [{accelerators: T4}, {accelerators: T4, disk_size: 99}], memory: 8}",
            "1 T4 GPU, 8 GiB",
            ("",),
            "resources.any_of[1]: is left out: disk_size would differ from the first alternative's",
        ),
        (
            "{any_of: [{accelerators: T4}, {accelerators: L4, image_id: ami-1}]}",
            "1 T4 GPU",
            ("",),
            "resources.any_of[1]: is left out: resources.image_id: only images of containers are run, "
            "such as docker:ubuntu:24.04",
        ),
        (
            "{any_of: [{accelerators: T4}, {accelerators: L4, ports: 80}]}",
            "1 L4 or T4 GPU",
            ("",),
            "resources.ports: ports of a job are not opened to the outside",
        ),
    ],
)
def test_what_does_not_go_together_is_left_out_and_said(
    resources: str, gpus: str, places: tuple[str, ...], note: str
) -> None:
    found, rules, _, told = asked(resources)
    assert sorted(found.replace(" or ", " ").split()) == sorted(gpus.replace(" or ", " ").split())
    assert (tuple(place[0] for place in rules.places), told) == (places, (note,) if note else ())


def test_any_of_beside_ordered_is_refused_as_by_skypilot() -> None:
    (line,) = problems(TASK + "{any_of: [{cpus: 1}], ordered: [{cpus: 1}]}", "task.yaml")
    assert line.endswith("resources.ordered: is beside any_of; a task has one of them")


@pytest.mark.parametrize(
    ("resources", "task"),
    [
        ("{accelerators: {A100: 8, H100: 8}}", {"accelerators": {"A100": 8, "H100": 8}}),
        (
            "{any_of: [{infra: aws, accelerators: L4}, {infra: gcp/us-central1, accelerators: L4}]}",
            {"accelerators": {"L4": 1}, "any_of": [{"infra": "aws"}, {"infra": "gcp/us-central1"}]},
        ),
    ],
)
def test_a_task_is_translated_with_its_alternatives_and_nothing_of_them_is_lost(
    resources: str, task: dict[str, Any]
) -> None:
    document = yaml.safe_load(TASK + resources)
    reading = KindReading.of(Field(document, "", ManifestReport("task.yaml", 1)))
    found = reading.told(to_skypilot(reading.manifest))
    assert found.task["resources"] == task
    lines = {
        line.field: line
        for line in found.report
        if line.field in ("resources.accelerators", "resources.infra")
    }
    assert lines
    assert {line.verdict for line in lines.values()} <= {FidelityLevel.KEPT}, lines
    again = read(
        yaml.safe_dump({"name": "train", "run": "true", "resources": found.task["resources"]}), "t.yaml"
    )
    first = read(TASK + resources, "task.yaml")
    assert (again.job.tasks, again.job.offer_rules) == (first.job.tasks, first.job.offer_rules)
