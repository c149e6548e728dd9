"""The demo's forty jobs: a burst, as Kubernetes manifests; deterministic for a seed."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from starburst.demo import train
from starburst.domain.job import OWNER, Submission
from translator.intake.texts import read_manifests

#: Scheduler seconds per wall second: one second is ten minutes.
SPEED = 600.0
#: Duration of the burst, wall seconds.
BURST_S = 28.0
USERS = ("ada", "grace", "alan")
NAMES = ("bert-tune", "resnet", "vit-sweep", "asr-train", "gnn-embed", "llm-lora", "diffusion", "rec-ranker")


@dataclass(frozen=True, slots=True)
class DemoJob:
    """A submission, its arrival and its duration of work, both in wall seconds."""

    submission: Submission
    arrival_s: float
    work_s: float


def demo_jobs(count: int, seed: int, witness: Path) -> list[DemoJob]:
    """Jobs in order of arrival. Sizes follow the Philly trace's mix; run times are exponential.

    The mix includes jobs for each feature: CPU-only jobs, gangs of two tasks, and long checkpointing jobs
    that may return from the cloud.
    """
    draw = random.Random(seed)
    jobs = []
    for i in range(count):
        arrival_s = BURST_S * i / count
        gpus = draw.choices((1, 2, 4), (0.62, 0.23, 0.15))[0]
        work_s = min(14.0, max(1.5, draw.expovariate(1 / 5.0)))
        tasks, checkpoint = 1, draw.random() < 0.3
        if i % 13 == 7:  # CPU-only preparation of data
            gpus, work_s = 0, 2.0
        elif i % 20 == 11:  # a gang of two tasks
            tasks, gpus, work_s = 2, 2, 6.0
        elif i % 10 == 4:  # a long job that saves its progress
            gpus, work_s, checkpoint = 1, 22.0, True
        name = draw.choice(NAMES) if gpus else "prepare"
        manifest = _manifest(name, gpus=gpus, tasks=tasks, command=_command(work_s, checkpoint, witness))
        manifest["metadata"]["annotations"] = {
            "starburst.io/runtime-estimate": f"{work_s * SPEED:.0f}s",
            "starburst.io/checkpoint": str(checkpoint).lower(),
        }
        number, user = f"{i + 1:02d}", draw.choice(USERS)
        text = yaml.safe_dump(manifest, sort_keys=False)
        found = read_manifests(text, "demo", suffix=partial(str, number), user=user)[0]
        mine = replace(found, workload=replace(found.workload, submitter=OWNER))
        jobs.append(DemoJob(mine, arrival_s, work_s))
    return jobs


def _command(work_s: float, checkpoint: bool, witness: Path) -> list[str]:
    program = [sys.executable, "-I", "-S", train.__file__]
    options = ["--seconds", f"{work_s:.2f}", "--witness", str(witness)]
    return program + options + (["--checkpoint"] if checkpoint else [])


def _manifest(name: str, *, gpus: int, tasks: int, command: list[str]) -> dict[str, Any]:
    limits = {"cpu": "4", "memory": "16Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    container = {
        "name": "train",
        "image": "pytorch/pytorch",
        "command": command,
        "resources": {"limits": limits},
    }
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": f"{name}-"},
        "spec": {"parallelism": tasks, "completions": tasks, "template": {"spec": pod}},
    }
