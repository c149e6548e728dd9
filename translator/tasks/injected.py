"""Annotations of a pod by which software of its cluster puts something into it, as a mutating webhook does.

On a rented machine nobody reads them, so the job would begin without what it needs.
"""

from __future__ import annotations

from translator.field import Field

#: What is put in, by the annotation that asks for it.
_INJECTED = {
    "k8s.v1.cni.cncf.io/networks": "networks of the cluster",
    "vault.hashicorp.com/agent-inject": "secrets of Vault",
}


def judge_annotations(manifest: Field) -> None:
    """Keep a job on its cluster if its pods are given something there by software that no machine has."""
    is_job = manifest.at("kind").value == "Job"
    pod = manifest.at("spec").at("template") if is_job else manifest
    for key, what in _INJECTED.items():
        annotation = pod.at("metadata").at("annotations").at(key)
        if annotation.value not in (None, "", "false"):
            annotation.stay(what, "is read by software of the cluster alone")
