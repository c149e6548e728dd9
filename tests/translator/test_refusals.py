"""Bad manifests, each with the one line it is answered with."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.translator.manifests import CONTAINER, GOOD_JOB, errors, job, pod

POD = "spec.template.spec"
TAKEN = "Starburst takes batch/v1 Job and v1 Pod"
ONE = {"name": "other", "command": ["true"]}
LIMITS = f"{CONTAINER}.resources.limits"
REQUESTS = f"{CONTAINER}.resources.requests"


def limit(name: str, amount: object) -> dict[str, Any]:
    return job("CONTAINER/resources", {"limits": {name: amount}})


def gpus(count: object) -> dict[str, Any]:
    return limit("nvidia.com/gpu", count)


def both(name: str, request: object, most: object) -> dict[str, Any]:
    return job("CONTAINER/resources", {"requests": {name: request}, "limits": {name: most}})


def hint(key: str, value: object) -> dict[str, Any]:
    return job("metadata|annotations", {f"starburst.io/{key}": value})


PLACEHOLDER = "is a placeholder; put the name of an image in its place, as envsubst does with $NAME"
KUSTOMIZE = "is what kustomize reads; submit what it makes: kubectl kustomize DIRECTORY | starburst submit -"
CASES: list[tuple[Any, str]] = [
    # What it is
    ("just text", f'"just text": not a manifest; write apiVersion, kind, metadata and spec; {TAKEN}'),
    ("[1, 2]", f"not a manifest; write apiVersion, kind, metadata and spec; {TAKEN}"),
    (
        job("kind", "Deployment"),
        f"kind: Deployment train: is no job; apply it with kubectl apply -f; {TAKEN}",
    ),
    (job("kind", "deployment"), f'kind: "deployment": not a batch job; {TAKEN}'),
    (job("kind", ["Job"]), f"kind: not a batch job; {TAKEN}"),
    (job("kind", None), f"kind: is missing; {TAKEN}"),
    ({"kind": "Kustomization", "resources": ["job.yaml"]}, KUSTOMIZE),
    ({"resources": ["job.yaml"], "namePrefix": "dev-"}, KUSTOMIZE),
    (
        job("apiVersion", "batch/v1beta1"),
        'apiVersion: "batch/v1beta1": is not supported; write batch/v1 for a Job',
    ),
    (job("apiVersion", None), "apiVersion: is missing; write batch/v1 for a Job"),
    (job("kind", "Pod"), 'apiVersion: "batch/v1": is not supported; write v1 for a Pod'),
    (job("metadata/labels", {"team": 5}), "metadata.labels.team: 5: must be text; put it in quotes"),
    (job("metadata/annotations", {"a": ["b"]}), "metadata.annotations.a: must be text; put it in quotes"),
    # Names
    (job("metadata/name", "a" * 300), "metadata.name: has 300 letters; write at most 253"),
    (job("metadata", {}), "metadata.name: is missing; give the job a name, or a generateName"),
    (job("metadata", None), "metadata.name: is missing; give the job a name, or a generateName"),
    *(
        (
            job("metadata", {key: name}),
            f'metadata.{key}: "{name}": must be lower-case letters, digits, dashes and dots, '
            "with a letter or digit at each end",
        )
        for key, name in [
            ("name", "My_Job"),
            ("name", "train-"),
            ("name", ""),
            ("name", "x" * 60 + "é"),
            ("generateName", "-"),
        ]
    ),
    (job("metadata/name", 7), "metadata.name: 7: must be text; put it in quotes"),
    # Misspelt fields
    (job("sepc", {}), "sepc: is not a field of a manifest; did you mean spec?"),
    (job("metadata/lables", {}), "metadata.lables: is not a field of metadata; did you mean labels?"),
    (job("spec/paralelism", 2), "spec.paralelism: is not a field of a Job spec; did you mean parallelism?"),
    (
        job("POD/nodeselector", {}),
        f"{POD}.nodeselector: is not a field of a pod spec; did you mean nodeSelector?",
    ),
    (
        job("CONTAINER/comand", []),
        f"{CONTAINER}.comand: is not a field of a container; did you mean command?",
    ),
    (
        job("CONTAINER/resource", {}),
        f"{CONTAINER}.resource: is not a field of a container; did you mean resources?",
    ),
    (job("CONTAINER/zzz", 1), f"{CONTAINER}.zzz: is not a field of a container; remove it"),
    (
        job("CONTAINER/resources", {"limit": {"cpu": 1}}),
        f"{CONTAINER}.resources.limit: is not a field of resources; did you mean limits?",
    ),
    (
        job("CONTAINER/env", [{"name": "A", "valeu": "1"}]),
        f"{CONTAINER}.env[0].valeu: is not a field of an environment variable; did you mean value?",
    ),
    # Shapes
    (job("metadata/labels", ["a"]), "metadata.labels: must be a mapping of keys to values"),
    # GPUs, CPUs and memory
    (
        gpus("1.5"),
        f'{LIMITS}["nvidia.com/gpu"]: "1.5": a GPU count must be a whole number; write 1 or 2',
    ),
    (gpus(0.5), f'{LIMITS}["nvidia.com/gpu"]: 0.5: a GPU count must be a whole number; write 1'),
    (
        gpus("500m"),
        f'{LIMITS}["nvidia.com/gpu"]: "500m": a GPU count must be a whole number; write 1',
    ),
    (gpus(-1), f'{LIMITS}["nvidia.com/gpu"]: -1: a quantity cannot be negative'),
    (
        gpus(True),
        f'{LIMITS}["nvidia.com/gpu"]: true: not a Kubernetes quantity; '
        "write a number such as 2, 500m, 1.5Gi or 2G",
    ),
    (limit("memory", "16GB"), f'{LIMITS}.memory: "16GB": not a Kubernetes quantity; write 16Gi or 16G'),
    (limit("cpu", [1]), f"{LIMITS}.cpu: must be a quantity such as 2, 500m or 1.5Gi"),
    (gpus(10**7), f'{LIMITS}["nvidia.com/gpu"]: 10000000: must be at most 1000000'),
    (both("nvidia.com/gpu", 1, 2), f'{REQUESTS}["nvidia.com/gpu"]: 1: must equal the limit of 2 GPUs'),
    (both("memory", "2Gi", "1Gi"), f'{REQUESTS}.memory: "2Gi": is more than the limit of 1Gi'),
    (
        job("CONTAINER/resources", {"limits": {"nvidia.com/gpu": 1, "amd.com/gpu": 1}}),
        f"{CONTAINER}.resources: asks for GPUs of two makers; keep one of the two",
    ),
    (
        limit("nvidia.com/gpus", 1),
        f'{LIMITS}["nvidia.com/gpus"]: 1: is not a resource Starburst schedules by; '
        "did you mean nvidia.com/gpu?",
    ),
    *(
        (
            limit(part, 1),
            f"{LIMITS}[{json.dumps(part)}]: 1: is not a resource Starburst schedules by; "
            "it is a part of a GPU; ask for a whole one, nvidia.com/gpu",
        )
        for part in (
            "nvidia.com/mig-1g.5gb",
            "nvidia.com/gpu.shared",
            "nvidia.com/gpumem",
            "aliyun.com/gpu-mem",
        )
    ),
    (limit("gpu", 1), f"{LIMITS}.gpu: 1: is not a resource Starburst schedules by; ask for nvidia.com/gpu"),
    (
        limit("rdma/hca", 1),
        f'{LIMITS}["rdma/hca"]: 1: is not a resource Starburst schedules by; '
        "ask for cpu, memory, nvidia.com/gpu, amd.com/gpu",
    ),
    (
        job("CONTAINER/resources/claims", [{"name": "gpu"}]),
        f"{CONTAINER}.resources.claims: resource claims are not supported; ask for GPUs under limits",
    ),
    *(
        (job("CONTAINER/image", image), f"{CONTAINER}.image: {json.dumps(image)}: {mend}")
        for image, mend in (
            ("$IMAGE", PLACEHOLDER),
            ("gcr.io/<project>/train", PLACEHOLDER),
            ("{{ image }}:1", PLACEHOLDER),
            (
                "Train",
                "is no name of an image: write it as registry/repository:tag, in lower case up to the tag",
            ),
        )
    ),
    # One container
    (job("POD/containers", []), f"{POD}.containers: is missing; a pod needs one container"),
    (job("POD/containers", None), f"{POD}.containers: is missing; a pod needs one container"),
    (
        job("POD/containers", [*GOOD_JOB["spec"]["template"]["spec"]["containers"], ONE]),
        f"{POD}.containers[1]: one container per pod; sidecars are not supported yet",
    ),
    (
        job("POD/initContainers", [ONE]),
        f"{POD}.initContainers[0]: the init container other is not supported; do its work in the command",
    ),
    # Gangs and the course of a job
    (
        job("spec/completions", 5),
        "spec.completions: 5: must equal parallelism, which is 1: set parallelism to 5 to run all at once, "
        "or completionMode to Indexed for an array of 5 jobs",
    ),
    (job("spec/parallelism", 0), "spec.parallelism: 0: must be at least 1"),
    (job("spec/parallelism", 10**9), "spec.parallelism: 1000000000: must be at most 1000"),
    (job("spec/parallelism", "2"), 'spec.parallelism: "2": must be a whole number'),
    (job("spec/parallelism", True), "spec.parallelism: true: must be a whole number"),
    (job("spec/completionMode", "indexed"), 'spec.completionMode: "indexed": must be Indexed or NonIndexed'),
    (job("spec/backoffLimit", -1), "spec.backoffLimit: -1: must be at least 0"),
    (job("spec/suspend", "yes"), 'spec.suspend: "yes": must be true or false'),
    (job("spec/activeDeadlineSeconds", 0), "spec.activeDeadlineSeconds: 0: must be at least 1"),
    (
        job("spec/successPolicy", {"rules": []}),
        "spec.successPolicy: of success policies one rule with succeededIndexes is read, of an Indexed Job",
    ),
    (
        job("POD/terminationGracePeriodSeconds", "30s"),
        f'{POD}.terminationGracePeriodSeconds: "30s": must be a whole number',
    ),
    (job("POD/restartPolicy", None), f"{POD}.restartPolicy: is missing; write Never"),
    (job("POD/restartPolicy", "Always"), f'{POD}.restartPolicy: "Always": a batch job ends; write Never'),
    (job("POD/restartPolicy", "never"), f'{POD}.restartPolicy: "never": must be Never or OnFailure'),
    (pod(restartPolicy="Always"), 'spec.restartPolicy: "Always": a batch job ends; write Never'),
    # What it runs
    (
        job("CONTAINER/command", "python3 train.py"),
        f'{CONTAINER}.command: "python3 train.py": must be a list; write ["sh", "-c", "…"] for a shell line',
    ),
    (job("CONTAINER/command", ["sleep", 5]), f"{CONTAINER}.command[1]: 5: must be text; put it in quotes"),
    (
        job("CONTAINER/env", [{"name": "A", "value": 1}]),
        f"{CONTAINER}.env[0].value: 1: must be text; put it in quotes",
    ),
    (
        job("CONTAINER/env", [{"name": "A=B", "value": "1"}]),
        f'{CONTAINER}.env[0].name: "A=B": must be the name of a variable, without =',
    ),
    (
        job("CONTAINER/env", [{"value": "1"}]),
        f"{CONTAINER}.env[0].name: must be the name of a variable, without =",
    ),
    (
        job("CONTAINER/env", [{"name": "A", "valueFrom": {"secretKeyRef": {}}}]),
        f"{CONTAINER}.env[0].valueFrom: values from elsewhere are not supported; write it under value",
    ),
    (
        job("CONTAINER/envFrom", [{"configMapRef": {"name": "x"}}]),
        f"{CONTAINER}.envFrom: variables from config maps and secrets are not supported; list them under env",
    ),
    (
        job("CONTAINER/args", ["--rank=$(JOB_COMPLETION_INDEX)"]),
        f'{CONTAINER}.args[0]: "--rank=$(JOB_COMPLETION_INDEX)": $(JOB_COMPLETION_INDEX) is known only '
        "when the job runs; read $JOB_COMPLETION_INDEX in the command",
    ),
    (
        pod(containers=[{"args": ["--help"], "resources": {"limits": {"cpu": 1}}}]),
        "spec.containers[0].args: arguments without a command; name the program under command",
    ),
    (job("CONTAINER/workingDir", 1), f"{CONTAINER}.workingDir: 1: must be text; put it in quotes"),
    # What cannot be left out
    (
        job("POD/volumes", [{"name": "data", "persistentVolumeClaim": {"claimName": "x"}}]),
        f"{POD}.volumes[0].persistentVolumeClaim: this type of volume is not supported; "
        "use a hostPath that every node has, or storage the command reaches itself",
    ),
    (
        job("POD/volumes", [{"name": "data", "hostpath": {"path": "/x"}}]),
        f"{POD}.volumes[0].hostpath: is not a field of a volume; did you mean hostPath?",
    ),
    *(
        (
            job(
                f"POD/affinity/{kind}/requiredDuringSchedulingIgnoredDuringExecution", [{"topologyKey": "x"}]
            ),
            f"{POD}.affinity.{kind}.requiredDuringSchedulingIgnoredDuringExecution: "
            "keeping pods together or apart is not supported; choose nodes with nodeSelector",
        )
        for kind in ("podAffinity", "podAntiAffinity")
    ),
    (
        job("POD/topologySpreadConstraints", [{"maxSkew": 1}]),
        f"{POD}.topologySpreadConstraints[0]: spreading pods is not supported; remove it, or let "
        "whenUnsatisfiable be ScheduleAnyway",
    ),
    (
        job("POD/overhead", {"cpu": 1}),
        f"{POD}.overhead: overhead is not supported; add it to the container's requests",
    ),
    (
        job("spec/managedBy", "example.com/other"),
        'spec.managedBy: "example.com/other": another controller is to run this job; remove it',
    ),
    (
        job("POD/volumes", [{"name": "data", "cephfs": {"monitors": []}}]),
        f"{POD}.volumes[0].cephfs: this type of volume is not supported; use a hostPath that every node has",
    ),
    (
        job("POD/resourceClaims", [{"name": "gpu"}]),
        f"{POD}.resourceClaims: resource claims are not supported; ask for nvidia.com/gpu under limits",
    ),
    (
        job("POD/hostNetwork", True),
        f"{POD}.hostNetwork: true: sharing a namespace of the host is not supported; remove it",
    ),
    (
        job("CONTAINER/securityContext", {"privileged": True}),
        f"{CONTAINER}.securityContext.privileged: true: privileged containers are not supported; remove it",
    ),
    # Hints
    *(
        (hint(key, value), f'metadata.annotations["starburst.io/{key}"]: {mend}')
        for key, value, mend in [
            ("max-wiat", "1h", '"1h": Starburst has no such key; did you mean max-wait?'),
            ("zzz", "1h", '"1h": Starburst has no such key; remove it'),
            ("max-wait", "15", '"15": a duration needs a unit; write 15s, 15m, 15h or 15d'),
            ("max-wait", 15, "15: a duration needs a unit; write 15s, 15m, 15h or 15d"),
            ("max-wait", "-1h", '"-1h": a duration cannot be negative; write 0 or a time such as 15m'),
            (
                "max-wait",
                ["1h"],
                "not a duration; write a number and a unit, such as 90s, 15m, 1.5h or 2d",
            ),
            (
                "runtime-estimate",
                "0",
                '"0": a run time of 0 is no estimate; write how long the job will run, or remove it',
            ),
            ("cloud", "sometimes", '"sometimes": must be auto or never or only'),
            ("cloud", False, "false: must be auto or never or only"),
            ("checkpoint", "maybe", '"maybe": must be true or false'),
            ("priority", "high", '"high": must be a whole number'),
            ("priority", True, "true: must be a whole number"),
            (
                "workload",
                "My Net",
                '"My Net": a workload is named by up to 253 lower-case letters, digits, dashes and dots',
            ),
            *(
                (
                    "iterations-per-s",
                    bad,
                    f"{shown}: must be iterations a second with a machine to itself, such as 12.5",
                )
                for bad, shown in [("0", '"0"'), ("fast", '"fast"'), (True, "true")]
            ),
            ("priority", 10**10, "10000000000: must be at most 1000000000"),
            ("priority", "9" * 24, f"{'9' * 24}: must be at most 1000000000"),
            ("runtime-estimate", "99999999999d", '"99999999999d": must be at most 3650d'),
            ("max-wait", "3651d", '"3651d": must be at most 3650d'),
            (
                "queue",
                "NLP team",
                '"NLP team": a queue is named by up to 63 lower-case letters, digits and dashes',
            ),
            ("queue", 5, "5: must be text; put it in quotes"),
        ]
    ),
    (
        job("spec/template/metadata", {"labels": {"starburst.io/queue": "nlp"}}),
        'spec.template.metadata.labels["starburst.io/queue"]: "nlp": '
        "is not read from a template; move it to the manifest's own metadata",
    ),
]


@pytest.mark.parametrize(("manifest", "line"), CASES)
def test_a_bad_manifest_is_answered_with_one_line(manifest: Any, line: str) -> None:
    assert errors(manifest) == [f"train.yaml, document 1: {line}"]


def test_all_that_is_wrong_with_a_document_is_said_at_once() -> None:
    manifest = job("CONTAINER/comand", ["true"])
    manifest["metadata"]["name"] = "Train"
    manifest["spec"]["parallelism"] = 0
    assert len(errors(manifest)) == 3


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
PATHS = [
    "spec",
    "metadata",
    "POD",
    "CONTAINER",
    *(f"metadata/{key}" for key in ("name", "labels", "annotations", "namespace")),
    *(f"spec/{key}" for key in ("template", "parallelism", "completions", "suspend", "completionMode")),
    *(f"POD/{key}" for key in ("containers", "initContainers", "volumes", "nodeSelector", "securityContext")),
    *(f"POD/{key}" for key in ("affinity", "affinity/nodeAffinity", "tolerations", "overhead", "resources")),
    *(
        f"CONTAINER/{key}"
        for key in ("command", "args", "env", "resources", "resources/limits", "workingDir")
    ),
]


@given(st.sampled_from(PATHS), values, st.booleans())
def test_whatever_stands_in_a_field_no_traceback_comes_of_it(path: str, value: object, native: bool) -> None:
    for line in errors(job(path, value), native=native):
        assert line.startswith("train.yaml, document 1: ")


@given(st.text(max_size=60) | st.text("ab:-[]{}#&*!|>'\"%@\n \t", max_size=60))
def test_whatever_stands_in_a_file_no_traceback_comes_of_it(text: str) -> None:
    for line in errors(text):
        assert line.startswith("train.yaml, document ")
