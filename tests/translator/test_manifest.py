"""Good manifests and the submissions they become."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starburst.domain.cloud import ANY_OFFER, OfferRules
from starburst.domain.job import CloudChoice, Job, Submission, Workload
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from tests.translator.manifests import CONTAINER, GOOD_JOB, job, pod, read, read_one
from translator.errors import ManifestErrors
from translator.intake.texts import read_manifests
from translator.object_names import DNS_LABEL

EXAMPLES = sorted((Path(__file__).parents[2] / "configs" / "examples").glob("*.yaml"))

FULL = """
apiVersion: batch/v1
kind: Job
metadata:
  name: pretrain
  labels: {app: gpt, starburst.io/queue: nlp, starburst.io/cloud: only}
  annotations:
    starburst.io/max-wait: 1.5h
    starburst.io/cloud: auto
    starburst.io/runtime-estimate: 2d
    starburst.io/checkpoint: true
    starburst.io/priority: "-5"
spec:
  parallelism: 2
  completions: 2
  completionMode: Indexed
  activeDeadlineSeconds: 7200
  backoffLimit: 4
  template:
    metadata: {labels: {app: gpt}}
    spec:
      restartPolicy: OnFailure
      activeDeadlineSeconds: 3600
      terminationGracePeriodSeconds: 120
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB, zone: b}
      volumes: [{name: data, hostPath: {path: /data}}]
      containers:
        - name: main
          image: trainer:1
          command: [torchrun, --nodes=2]
          args: [train.py, --out=$(OUT)/model]
          env: [{name: ROOT, value: /data}, {name: OUT, value: $(ROOT)/out}]
          workingDir: /src
          volumeMounts: [{name: data, mountPath: /data}]
          resources:
            requests: {cpu: 7500m, nvidia.com/gpu: 4}
            limits: {cpu: 8, memory: 1.5Gi, nvidia.com/gpu: 4}
"""


def test_a_full_job_becomes_a_gang_with_all_its_wishes() -> None:
    task = Resources(gpus=4, cpu_milli=7500, memory_mib=1536, gpu_type="A100-80GB")
    assert read_manifests(FULL, "full.yaml", suffix=lambda: "x1y2z", user="ada") == [
        Submission(
            job=Job(
                id="pretrain-x1y2z",
                name="pretrain",
                tasks=(task, task),
                user="ada",
                queue="nlp",
                node_selector=(("zone", "b"),),
                runtime_estimate_s=172800,
                time_limit_s=3600,
                max_wait_s=5400,
                cloud=CloudChoice.AUTO,
                checkpoint=True,
                priority=-5,
                grace_s=120,
                retries=4,
                image="trainer:1",
            ),
            workload=Workload(
                command=("torchrun", "--nodes=2", "train.py", "--out=/data/out/model"),
                env=(("ROOT", "/data"), ("OUT", "/data/out")),
                working_dir="/src",
                image="trainer:1",
                time_limit_s=3600,
            ),
            notes=(
                "spec.template.spec.restartPolicy: a failed command is not restarted in place",
                "spec.template.spec.volumes[0]: not mounted by the embedded cluster; paths are the host's",
                "spec.template.spec.nodeSelector.zone: no price list tells this label; a rented machine is "
                "taken to be as it requires",
            ),
        )
    ]


def test_a_plain_job_leaves_all_to_the_policy() -> None:
    assert read_one(GOOD_JOB) == Submission(
        job=Job(id="train-a1b2c", name="train", tasks=(Resources.of(1, 4, 16),), image="trainer:1"),
        workload=Workload(command=("python3", "train.py"), image="trainer:1"),
    )


def test_a_pod_is_a_job_of_one_task() -> None:
    found = read_one(pod(activeDeadlineSeconds=60))
    assert found.job == replace(read_one(GOOD_JOB).job, time_limit_s=60)
    assert found.workload.time_limit_s == 60


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_taken_and_notes_are_of_what_is_for_a_cluster_only(path: Path) -> None:
    text = path.read_text()
    found = read_manifests(text, path.name, suffix=lambda: "a1b2c")
    assert text.startswith("# ")
    assert found
    for submission in found:
        noted = {"train-job.yaml": "spec.runtimeRef", "adopted-jobset.yaml": "spec.suspend"}.get(path.name)
        assert [note.partition(": ")[0] for note in submission.notes] == ([noted] if noted else [])
        assert submission.workload.command[0] in ("python3", "sh", "/bin/sh")


def test_there_are_a_dozen_examples() -> None:
    assert len(EXAMPLES) >= 12


@pytest.mark.parametrize(
    ("metadata", "name", "job_id"),
    [
        ({"name": "train"}, "train", "train-a1b2c"),
        ({"generateName": "train-"}, "train", "train-a1b2c"),
        ({"generateName": "train"}, "train", "traina1b2c"),
        ({"name": "train", "generateName": "other-"}, "train", "train-a1b2c"),
        ({"name": "my.train"}, "my.train", "my-train-a1b2c"),
        ({"name": "x" * 70}, "x" * 70, "x" * 57 + "-a1b2c"),
        ({"name": "x" * 56 + "-" + "y" * 6}, "x" * 56 + "-" + "y" * 6, "x" * 56 + "-a1b2c"),
        ({"generateName": "x" * 70}, "x" * 70, "x" * 57 + "-a1b2c"),
    ],
)
def test_an_id_is_the_name_and_a_suffix(metadata: dict[str, str], name: str, job_id: str) -> None:
    found = read_one(job("metadata", metadata)).job
    assert (found.name, found.id) == (name, job_id)
    assert DNS_LABEL.fullmatch(found.id)


def test_each_id_draws_its_own_suffix() -> None:
    draws = iter(["aaaaa", "bbbbb"])
    text = f"{json.dumps(GOOD_JOB)}\n---\n{json.dumps(GOOD_JOB)}"
    found = read_manifests(text, "two.yaml", suffix=lambda: next(draws))
    assert [submission.job.id for submission in found] == ["train-aaaaa", "train-bbbbb"]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"limits": {"nvidia.com/gpu": "2"}}, Resources(2)),
        ({"limits": {"amd.com/gpu": 2}, "requests": {"amd.com/gpu": 2}}, Resources(2)),
        ({"requests": {"nvidia.com/gpu": 1.0, "cpu": 0.5}}, Resources(1, 500)),
        ({"limits": {"cpu": 4, "memory": "2Gi"}, "requests": {"cpu": 2}}, Resources(0, 2000, 2048)),
        ({"requests": {"cpu": "100u", "memory": 1}}, Resources(0, 1, 1)),
        ({"requests": {"cpu": 2, "memory": "1G"}}, Resources(0, 2000, 954)),
        ({"requests": {"cpu": 2, "nvidia.com/gpu": 0}}, Resources(0, 2000)),
    ],
)
def test_limits_stand_in_for_requests_and_parts_are_rounded_up(resources: Any, expected: Resources) -> None:
    found = read_one(job("CONTAINER/resources", resources))
    assert found.job.tasks == (expected,)
    assert found.notes == ()


@pytest.mark.parametrize("resources", [None, {}, {"requests": {"memory": "1Gi"}}, {"requests": {"cpu": 0}}])
def test_a_job_that_asks_for_neither_cpu_nor_gpu_gets_a_cpu(resources: Any) -> None:
    found = read_one(job("CONTAINER/resources", resources))
    assert found.job.resources.cpus == 1
    assert found.notes == (f"{CONTAINER}.resources: asks for no CPU and no GPU; it gets 1 CPU",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1y21"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(date)", "$(date)"),
        ("$A ${A} $", "$A ${A} $"),
        ("$(A", "$(A"),
        ("$()", "$()"),
        ("$(STARBURST_LEVEL)", "5"),
        ("$(LATER)", "3"),
    ],
)
def test_references_are_filled_in_as_kubernetes_does(text: str, expected: str) -> None:
    manifest = job("CONTAINER/command", ["echo", text])
    manifest["spec"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "2$(A)"},
        {"name": "C", "value": "$(LATER)"},
        {"name": "LATER", "value": "3"},
        {"name": "STARBURST_LEVEL", "value": "5"},
        {"name": "NOTHING"},
    ]
    workload = read_one(manifest).workload
    assert workload.command == ("echo", expected)
    assert dict(workload.env)["C"] == "$(LATER)"
    assert dict(workload.env)["NOTHING"] == ""


def test_the_last_of_two_variables_counts() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    assert read_one(job("CONTAINER/env", env)).workload.env == (("A", "2"),)


def test_an_image_without_a_command_has_an_empty_command() -> None:
    assert read_one(job("CONTAINER/command", None)).workload.command == ()


@pytest.mark.parametrize(
    ("key", "value", "field", "expected"),
    [
        ("max-wait", "0", "max_wait_s", 0),
        ("max-wait", 0, "max_wait_s", 0),
        ("max-wait", "90s", "max_wait_s", 90),
        ("runtime-estimate", "15m", "runtime_estimate_s", 900),
        ("cloud", "never", "cloud", CloudChoice.NEVER),
        ("cloud", "only", "cloud", CloudChoice.ONLY),
        ("checkpoint", "true", "checkpoint", True),
        ("checkpoint", "false", "checkpoint", False),
        ("checkpoint", True, "checkpoint", True),
        ("priority", "10", "priority", 10),
        ("priority", 10, "priority", 10),
        ("hold", "true", "hold", True),
        ("retries", "3", "retries", 3),
        ("after-ok", "prep, load.2,prep", "after_ok", ("prep", "load.2")),
        ("after-any", "prep-x1y2z", "after_any", ("prep-x1y2z",)),
        ("after-not-ok", "prep", "after_not_ok", ("prep",)),
        ("after-start", "prep,load", "after_start", ("prep", "load")),
        ("queue", "nlp-2", "queue", "nlp-2"),
        ("workload", "resnet-50", "workload", "resnet-50"),
        ("iterations-per-s", "12.5", "alone_per_s", 12.5),
        ("iterations-per-s", 3, "alone_per_s", 3.0),
    ],
)
@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_a_hint_may_be_a_label_or_an_annotation(
    kind: str, key: str, value: object, field: str, expected: object
) -> None:
    found = read_one(job(f"metadata|{kind}", {f"starburst.io/{key}": value})).job
    assert getattr(found, field) == expected


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("infra", "aws", OfferRules("aws", engine=True)),
        ("infra", "*/us-east-1", OfferRules("", "us-east-1", engine=True)),
        ("infra", "aws/us-east-1/us-east-1b", OfferRules("aws", "us-east-1", "us-east-1b", engine=True)),
        ("infra", "gcp, */us-east-1", OfferRules("gcp", elsewhere=(("", "us-east-1", ""),), engine=True)),
        ("use-spot", "true", OfferRules(spot=True, engine=True)),
        ("use-spot", "false", OfferRules(spot=False, engine=True)),
        ("max-hourly-cost", "3.50", OfferRules(ceiling=Money.of("3.50"), engine=True)),
        ("runtime", "host", ANY_OFFER),
    ],
)
def test_wishes_for_the_machine_say_which_offers_will_do(key: str, value: str, expected: OfferRules) -> None:
    found = read_one(job("metadata|annotations", {f"starburst.io/{key}": value}))
    assert (found.job.offer_rules, found.notes) == (expected, ())


@pytest.mark.parametrize(("key", "value"), [("disk-size", "200Gi"), ("autostop", "10m")])
def test_wishes_that_no_shared_machine_can_keep_are_said_to_be_lost(key: str, value: str) -> None:
    annotations = {f"starburst.io/{key}": value}
    (note,) = read_one(job("metadata|annotations", annotations)).notes
    assert note.startswith(f'metadata.annotations["starburst.io/{key}"]: machines are shared')
    assert read_one(job("metadata|annotations", {**annotations, "starburst.io/cloud": "never"})).notes == ()


@pytest.mark.parametrize(
    ("job_s", "pod_s", "limit_s"),
    [(None, None, None), (10, None, 10), (None, 20, 20), (10, 20, 10), (20, 10, 10)],
)
def test_the_smaller_time_limit_counts(job_s: int | None, pod_s: int | None, limit_s: int | None) -> None:
    manifest = job("spec/activeDeadlineSeconds", job_s)
    manifest["spec"]["template"]["spec"]["activeDeadlineSeconds"] = pod_s
    assert read_one(manifest).workload.time_limit_s == limit_s


@pytest.mark.parametrize(
    ("spec", "retries"),
    [
        ({"parallelism": 2, "completions": 2, "backoffLimit": 4}, 4),
        ({"parallelism": 2, "backoffLimit": 0}, 0),
        ({"parallelism": 2}, 0),  # not Kubernetes' six, each of which could rent two machines
        ({"parallelism": 2, "completions": 8, "backoffLimit": 4}, 0),  # tasks in turn
        ({"backoffLimit": 4}, 0),
        ({}, 0),
    ],
)
def test_on_kubernetes_a_gang_is_run_again_as_a_whole_and_other_pods_by_the_cluster(
    spec: dict[str, Any], retries: int
) -> None:
    manifest = job("spec", {"template": GOOD_JOB["spec"]["template"], **spec})
    assert read_one(manifest, native=True).job.retries == retries


@pytest.mark.parametrize(("given", "grace_s"), [(None, 30), (0, 0), (600, 600)])
def test_the_grace_is_thirty_seconds_unless_said_otherwise(given: int | None, grace_s: int) -> None:
    assert read_one(job("POD/terminationGracePeriodSeconds", given)).job.grace_s == grace_s


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("status", {"active": 1}),
        ("metadata/uid", "1234"),
        ("metadata/namespace", "default"),
        ("spec/backoffLimit", 0),
        ("spec/suspend", False),
        ("spec/completions", 1),
        ("spec/ttlSecondsAfterFinished", 100),
        ("POD/schedulerName", "default-scheduler"),
        ("POD/serviceAccountName", "default"),
        ("POD/securityContext", {}),
        ("POD/hostNetwork", False),
        ("POD/affinity", {"nodeAffinity": {}}),
        ("POD/tolerations", []),
        ("spec/managedBy", "kubernetes.io/job-controller"),
        ("POD/imagePullSecrets", [{"name": "registry"}]),
        ("CONTAINER/imagePullPolicy", "Always"),
        ("CONTAINER/ports", [{"containerPort": 80}]),
        ("CONTAINER/readinessProbe", {"exec": {"command": ["true"]}}),
        ("CONTAINER/securityContext", {"privileged": False}),
    ],
)
def test_what_changes_nothing_is_passed_over(path: str, value: object) -> None:
    assert read_one(job(path, value)) == read_one(GOOD_JOB)


def test_the_user_is_kept() -> None:
    (found,) = read(GOOD_JOB, user="ada")
    assert found.job.user == "ada"


@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_an_empty_element_is_no_container(field: str) -> None:
    spec = {**GOOD_JOB["spec"]["template"]["spec"]}
    spec[field] = [*spec.get(field, []), None]
    manifest = job("spec", {"template": {"spec": spec}})
    with pytest.raises(ManifestErrors, match=rf"{field}\[\d\]: is empty; remove it"):
        read_one(manifest, native=True)
