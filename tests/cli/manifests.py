"""Manifests as users type them."""

from __future__ import annotations

import json


def manifest(name: str, *command: str, gpus: int = 1, tasks: int = 1, **annotations: str) -> str:
    """A Job; annotations without their prefix and with _ for -."""
    limits = {"nvidia.com/gpu": gpus} if gpus else {"cpu": "100m"}
    hints = {f"starburst.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    container = {
        "name": "main",
        "image": "busybox",
        "command": list(command),
        "resources": {"limits": limits},
    }
    return json.dumps(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "annotations": hints},
            "spec": {
                "parallelism": tasks,
                "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
            },
        }
    )
