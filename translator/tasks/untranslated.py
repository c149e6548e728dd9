"""Fields of Jobs and Pods that stay behind when a job leaves for a cloud, each with the reason."""

from __future__ import annotations

from translator.fidelity import UntranslatedFields
from translator.field import ONLY_THE_CLUSTER
from translator.manifests.manifest import SERVERS_METADATA

_SERVERS = "is the API server's"
_RETRIES = "failed commands are not run again there"
_PROBE = "no kubelet watches the command"
_PEERS = "pods do not find one another by name there; use SKYPILOT_NODE_IPS"
_HOSTS = f"a task has no part in the machine's own namespaces; {ONLY_THE_CLUSTER}"
_TERMINAL = "no terminal is there"
_MESSAGE = "there is no pod status to write it to"

METADATA = UntranslatedFields(
    translated=("name", "generateName", "namespace", "labels", "annotations"),
    dropped=dict.fromkeys(SERVERS_METADATA, _SERVERS),
)

JOB_SPEC = UntranslatedFields(
    translated=(
        "activeDeadlineSeconds",
        "backoffLimit",
        "completionMode",
        "completions",
        "parallelism",
        "template",
        "suspend",
    ),
    dropped={
        "backoffLimitPerIndex": _RETRIES,
        "managedBy": "SkyPilot is told of the task by Starburst",
        "manualSelector": "there are no pods to select",
        "maxFailedIndexes": _RETRIES,
        "podFailurePolicy": _RETRIES,
        "podReplacementPolicy": _RETRIES,
        "selector": "there are no pods to select",
        "ttlSecondsAfterFinished": "a task leaves no object behind",
    },
    refused={"successPolicy": f"a task succeeds when all its nodes do; {ONLY_THE_CLUSTER}"},
)

POD_SPEC = UntranslatedFields(
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
        "subdomain": _PEERS,
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
        "workloadRef": f"does not go along; {ONLY_THE_CLUSTER}",
    },
)

CONTAINER = UntranslatedFields(
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
