"""Fields of Jobs and Pods that are not translated: kept, dropped or refused, each with the reason."""

from __future__ import annotations

from starburst.domain.job import CloudChoice
from translator.fidelity import Fidelity, UntranslatedFields
from translator.field import ONLY_THE_CLUSTER, Field, ManifestReport
from translator.manifests.hints import MACHINE_KEYS, PREFIX, JobHints
from translator.manifests.manifest import SERVERS_METADATA
from translator.success_policy import deciding_ranks
from translator.tasks.cluster_names import SERVICE, texts_of
from translator.tasks.manifest_parts import ManifestParts

#: Hints for the instance, which become `resources` of the task.
_READ_ELSEWHERE = frozenset(PREFIX + key for key in MACHINE_KEYS if key not in ("runtime", "gpu-type"))

_SERVERS = "is the API server's"
_RETRIES = "a task is run again as a whole, as often as backoffLimit says"
_PROBE = "no kubelet watches the command"
_PEERS = "pods do not find one another by name there; use SKYPILOT_NODE_IPS"
_HOSTS = f"a task has no part in the machine's own namespaces; {ONLY_THE_CLUSTER}"
_TERMINAL = "no terminal is there"
_MESSAGE = "there is no pod status to write it to"

_METADATA = UntranslatedFields(
    translated=("name", "generateName", "namespace", "labels", "annotations"),
    dropped=dict.fromkeys(SERVERS_METADATA, _SERVERS),
)

_JOB_SPEC = UntranslatedFields(
    translated=(
        "activeDeadlineSeconds",
        "backoffLimit",
        "completionMode",
        "completions",
        "parallelism",
        "successPolicy",
        "template",
    ),
    dropped={
        "backoffLimitPerIndex": _RETRIES,
        "managedBy": "SkyPilot is told of the task by Starburst",
        "manualSelector": "there are no pods to select",
        "maxFailedIndexes": _RETRIES,
        "podFailurePolicy": _RETRIES,
        "podReplacementPolicy": _RETRIES,
        "scheduling": "all nodes of a task start together",
        "selector": "there are no pods to select",
        "suspend": "a task starts when it is launched",
        "ttlSecondsAfterFinished": "a task leaves no object behind",
    },
)

_POD_SPEC = UntranslatedFields(
    translated=(
        "activeDeadlineSeconds",
        "affinity",
        "containers",
        "imagePullSecrets",
        "initContainers",
        "nodeSelector",
        "os",
        "overhead",
        "resources",
        "restartPolicy",
        "runtimeClassName",
        "securityContext",
        "subdomain",
        "terminationGracePeriodSeconds",
        "volumes",
    ),
    kept={
        "schedulerName": "Starburst and SkyPilot choose the machines, all nodes of a task together",
        "tolerations": "rented machines have no taints",
    },
    dropped={
        "automountServiceAccountToken": "no account of the cluster is there",
        "dnsConfig": "the machine's DNS is used",
        "dnsPolicy": "the machine's DNS is used",
        "evictionResponders": "a rented machine is the job's own",
        "enableServiceLinks": "no services are there",
        "hostAliases": "the machine's own /etc/hosts is used",
        "hostUsers": "the container engine decides",
        "hostname": _PEERS,
        "preemptionPolicy": "a rented machine is the job's own",
        "priority": "a rented machine is the job's own",
        "priorityClassName": "a rented machine is the job's own",
        "readinessGates": _PROBE,
        "serviceAccount": "no account of the cluster is there",
        "serviceAccountName": "no account of the cluster is there",
        "setHostnameAsFQDN": _PEERS,
        "shareProcessNamespace": "one container is there",
        "topologySpreadConstraints": "each node of a task is a machine of its own",
    },
    refused={
        "ephemeralContainers": f"does not go along; {ONLY_THE_CLUSTER}",
        "hostIPC": _HOSTS,
        "hostNetwork": _HOSTS,
        "hostPID": _HOSTS,
        "hostnameOverride": f"is not set there; {ONLY_THE_CLUSTER}",
        "nodeName": f"names a node of the cluster; {ONLY_THE_CLUSTER}",
        "resourceClaims": f"does not go along; {ONLY_THE_CLUSTER}",
        "schedulingGates": f"does not go along; {ONLY_THE_CLUSTER}",
        "schedulingGroup": f"does not go along; {ONLY_THE_CLUSTER}",
        "workloadRef": f"does not go along; {ONLY_THE_CLUSTER}",
    },
)

_CONTAINER = UntranslatedFields(
    translated=(
        "args",
        "command",
        "env",
        "envFrom",
        "image",
        "name",
        "resources",
        "securityContext",
        "volumeMounts",
        "workingDir",
    ),
    dropped={
        "imagePullPolicy": "a machine pulls its image once",
        "lifecycle": "hooks are not run there",
        "livenessProbe": f"{_PROBE}; set activeDeadlineSeconds to end one that hangs",
        "ports": "no port is opened to others",
        "readinessProbe": _PROBE,
        "resizePolicy": "a machine keeps its size",
        "restartPolicy": _RETRIES,
        "restartPolicyRules": _RETRIES,
        "startupProbe": _PROBE,
        "stdin": _TERMINAL,
        "stdinOnce": _TERMINAL,
        "terminationMessagePath": _MESSAGE,
        "terminationMessagePolicy": _MESSAGE,
        "tty": _TERMINAL,
    },
    refused={"volumeDevices": f"block devices do not go along; {ONLY_THE_CLUSTER}"},
)


def report_untranslated(parts: ManifestParts, hints: JobHints, fidelity: Fidelity) -> None:
    """Add an entry to the fidelity report for each field that no other module translates."""
    _METADATA.judge(parts.metadata, fidelity)
    _JOB_SPEC.judge(parts.job, fidelity)
    _judge_success(parts.job, fidelity)
    _POD_SPEC.judge(parts.spec, fidelity)
    _CONTAINER.judge(parts.container, fidelity)
    _judge_metadata(parts, hints, fidelity)
    for kind, what in (("initContainers", "the init container"), ("containers", "the container")):
        for other in parts.spec.at(kind).items():
            if other.path != parts.container.path:
                name = other.at("name").value or "without a name"
                fidelity.refused(other, f"{what} {name} does not go along; {ONLY_THE_CLUSTER}")
    for security in (parts.spec.at("securityContext"), parts.container.at("securityContext")):
        if security.at("privileged").value:
            mend = f"SkyPilot runs no privileged containers; {ONLY_THE_CLUSTER}"
            fidelity.refused(security.at("privileged"), mend)
        if security.entries().keys() - {"privileged"}:
            fidelity.dropped(security, "the command runs as the user that SkyPilot finds in the image")
    _judge_names(parts, fidelity)
    if parts.spec.at("os").at("name").value == "windows":
        fidelity.refused(parts.spec.at("os"), f"rented machines run Linux; {ONLY_THE_CLUSTER}")
    elif parts.spec.at("os").value:
        fidelity.kept(parts.spec.at("os"), "rented machines run Linux")
    runtime = parts.spec.at("runtimeClassName")
    if runtime.value == "nvidia":
        fidelity.kept(runtime, "machines with GPUs have NVIDIA's runtime")
    elif runtime.value:
        fidelity.dropped(runtime, "the machine's own container runtime is used")


def _judge_success(job: Field, fidelity: Fidelity) -> None:
    """Report the success policy, which is Starburst's to apply: SkyPilot has none."""
    report, policy = ManifestReport("", 0), job.at("successPolicy")
    tasks = job.at("parallelism").value
    deciding_ranks(Field(job.value, "", report), tasks if isinstance(tasks, int) else 1)
    if policy.value and report.errors:
        fidelity.refused(policy, f"{report.errors[0].mend}; {ONLY_THE_CLUSTER}")
    elif policy.value:
        fidelity.approximated(
            policy, "Starburst ends the other nodes; sky launch alone waits for all of them"
        )


def _judge_names(parts: ManifestParts, fidelity: Fidelity) -> None:
    """Report names of the cluster's DNS, which machines in a cloud do not find."""
    subdomain, tasks = parts.spec.at("subdomain"), parts.job.at("parallelism").value
    if subdomain.value and isinstance(tasks, int) and tasks > 1:
        fidelity.refused(subdomain, f"{_PEERS}; or {ONLY_THE_CLUSTER}")
    elif subdomain.value:
        fidelity.dropped(subdomain, _PEERS)
    for text in texts_of(parts.container):
        if SERVICE.search(str(text.value)):
            fidelity.approximated(text, "names a service of the cluster; a rented machine does not find it")


def _judge_metadata(parts: ManifestParts, hints: JobHints, fidelity: Fidelity) -> None:
    """Report the namespace, labels and annotations, and the metadata of the pod template."""
    if parts.metadata.at("namespace").value:
        fidelity.dropped(parts.metadata.at("namespace"), "a cloud has none; Secrets are looked up in it")
    for kind in ("labels", "annotations"):
        for key, note in parts.metadata.at(kind).entries().items():
            if key == f"{PREFIX}cloud" and hints.cloud is CloudChoice.NEVER:
                fidelity.refused(note, "this job does not leave the cluster")
            elif key in _READ_ELSEWHERE:
                continue
            elif key.startswith(PREFIX):
                fidelity.kept(note, "is read by Starburst")
            elif kind == "annotations":
                fidelity.dropped(note, "is for software of the cluster")
    if parts.template is not parts.root:
        for field in parts.template.at("metadata").entries().values():
            if field.value:
                fidelity.dropped(field, "is of pods, and there are none")
