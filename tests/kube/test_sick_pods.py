"""Pods that cannot be made, bound or started, on a real API server with real kubelets.

Their jobs say why while they are stuck, give their place to a sound one, and none of them fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from starburst.kube.resources import Object
from starburst.store.listings import queries
from tests.kube.lab import Lab
from tests.kube.live import Live, give_gpus, job_manifest, live

#: Ten times as fast, so that a pause of 10 s takes one; limits that let the pauses grow soon.
CONFIG = """
clock:
  speed: 10
policy:
  offload_cpu_only: false
cluster:
  kind: kubernetes
  bind_limit: 12s
  start_limit: 16s
cloud:
  offers: []
"""
#: What each sick job is told, by name.
WORDS = {
    "no-account": 'serviceaccount "nobody" not found',
    "no-class": "no PriorityClass with name urgent was found",
    "too-large": 'Invalid value: "10m"',
    "no-image": "ErrImageNeverPull",
    "no-secret": 'secret "nothing" not found',
    "no-volume": 'configmap "nothing" not found',
}


def sick(name: str) -> Object:
    """A Job that never starts; all of them have their places at a time."""
    keys = {"starburst.io/queue": "default", "starburst.io/cloud": "never"}
    manifest = job_manifest(name, "true", gpus=2, keys=keys)
    spec: Any = manifest["spec"]["template"]["spec"]
    spec["schedulerName"] = "chakra"
    container = spec["containers"][0]
    if name == "no-account":
        spec["serviceAccountName"] = "nobody"
    elif name == "no-class":
        spec["priorityClassName"] = "urgent"
    elif name == "too-large":
        manifest["metadata"]["namespace"] = "narrow"
    elif name == "no-image":
        container["image"] = "docker.io/local/nothing:1"
    elif name == "no-secret":
        container["envFrom"] = [{"secretRef": {"name": "nothing"}}]
    else:
        spec["volumes"] = [{"name": "v", "configMap": {"name": "nothing"}}]
        container["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    return manifest


def narrow() -> list[Object]:
    """A namespace whose LimitRange allows next to nothing."""
    limit = {"type": "Container", "max": {"cpu": "5m"}}
    meta = {"name": "narrow"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": meta},
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {**meta, "namespace": "narrow"},
            "spec": {"limits": [limit]},
        },
    ]


@pytest.fixture
def running(two_kubelets: Lab, tmp_path: Path) -> Iterator[Live]:
    """A Starburst and a Chakra beside the cluster."""
    give_gpus(two_kubelets, ["node0", "node1"], 8)
    with live(two_kubelets, tmp_path) as starburst:
        starburst.configure(CONFIG)
        starburst.apply(narrow())
        starburst.up()
        starburst.chakra()
        try:
            yield starburst
        finally:
            starburst.kubectl("delete", "jobs", "--all", "--wait=false")
            starburst.kubectl("delete", "namespace", "narrow", "--wait=false")


def test_sick_jobs_say_why_and_a_sound_one_passes_them(running: Live) -> None:
    running.apply([sick(name) for name in WORDS])
    running.wait_for("all are taken in", lambda: len(running.jobs()) == len(WORDS))
    ids = {job["name"]: job["id"] for job in running.jobs()}
    untold = set(WORDS)

    def all_told() -> bool:
        with running.store() as store:
            for name in list(untold):
                record = queries.record(store, ids[name])
                if record is not None and WORDS[name] in record.stall:
                    untold.discard(name)
        return not untold

    sound = job_manifest("sound", "true", gpus=8, keys={"starburst.io/queue": "default"})
    (running.root / "sound.json").write_text(json.dumps(sound))
    running.run("submit", "sound.json", "-o", "name")
    running.wait_for("all have said why while they were stuck", all_told, 240)
    for name, words in WORDS.items():  # while it is held up, or while it pauses for that
        running.wait_for(f"why {name} waits", lambda n=name, w=words: w in running.run("explain", ids[n]))  # type: ignore[misc]

    def phases() -> dict[str, str]:
        return {job["name"]: job["phase"] for job in running.jobs()}

    # It needs a whole node, which is free once the pauses of three sick ones are long.
    running.wait_for("the sound one ran", lambda: phases()["sound"] == "succeeded", 400)
    assert set(phases().values()) - {"succeeded"} <= {"blocked", "starting", "stopping", "queued"}
    events = json.loads(running.kubectl("get", "events", "-A", "-o", "json"))["items"]
    said = {event["involvedObject"]["name"] for event in events if event["reason"] == "HeldUp"}
    assert set(WORDS) <= said
