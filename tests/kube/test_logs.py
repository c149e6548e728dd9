"""`starburst logs` and the keeper of logs, with pods that truly run."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from starburst.app.config import parse_config
from starburst.app.config.home import Home
from starburst.clusters.kubernetes.logs import LogKeeper
from starburst.domain.job import Adopted, Job, Submission, Workload
from starburst.domain.resources import Resources
from starburst.kube.api import Api
from starburst.kube.resources import JOBS, PODS, Object
from starburst.runs.attempt_dir import log_path
from tests.cli.past import NOON, Past
from tests.kube.lab import Lab

PATIENCE_S = 60.0
#: Says when it begins and, told to end, that it does.
UNTIL_TOLD = "trap 'echo ended; exit 0' TERM; echo begun; while :; do sleep 0.1; done"
MANIFEST = json.dumps({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {}})


@pytest.fixture
def past(tmp_path: Path, two_kubelets: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Past]:
    """A scheduler that is down; the cluster is the one it ran with."""
    cluster = {"kind": "kubernetes", "kubeconfig": str(two_kubelets.kubeconfig)}
    with Past.begin(tmp_path / "home" / "starburst.db", NOON) as begun:
        monkeypatch.setenv("STARBURST_HOME", str(tmp_path / "home"))
        begun.store.set_fact("config", parse_config({"cluster": cluster}, "test").model_dump(mode="json"))
        yield begun


def running(past: Past, job_id: str, *, tasks: int = 1, adopted: Adopted | None = None) -> None:
    """A job whose first run goes on, on the cluster."""
    job = Job(job_id, job_id, (Resources.of(1),) * tasks)
    past.tell(submissions=(Submission(job, Workload(manifest=MANIFEST, adopted=adopted)),))
    past.start(job_id)


def pod_spec(command: str, node: str = "node0") -> Object:
    return {
        "nodeName": node,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "main",
                "image": "docker.io/local/busybox:1",
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", command],
            }
        ],
    }


def pod(name: str, job_id: str, command: str, *, node: str = "node0", rank: int = 0) -> Object:
    """As the adapter and Chakra leave it."""
    annotations = {"starburst.io/attempt": "1", "starburst.io/rank": str(rank)}
    metadata = {"name": name, "labels": {"starburst.io/job": job_id}, "annotations": annotations}
    return {"metadata": metadata, "spec": pod_spec(command, node)}


@asynccontextmanager
async def api_of(lab: Lab) -> AsyncIterator[Api]:
    async with await Api.connect(lab.kubeconfig) as api:
        yield api


async def eventually(so: Callable[[], Awaitable[object]]) -> None:
    """Wait until something is so."""
    give_up = time.monotonic() + PATIENCE_S
    while not await so():
        assert time.monotonic() < give_up, "it never came to be"
        await asyncio.sleep(0.1)


async def is_in(api: Api, name: str, phase: str) -> bool:
    """Whether a pod is in a phase; "" is gone."""
    found = await api.find(PODS, "default", name)
    return phase == ("" if found is None else found["status"].get("phase", "Pending"))


async def has_succeeded(api: Api, name: str) -> bool:
    """Whether a Job has a pod that ended well."""
    return bool((await api.get(JOBS, "default", name))["status"].get("succeeded"))


def starburst(*words: str) -> Any:
    """A command to its end."""
    command = [sys.executable, "-m", "starburst", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_a_pod_that_is_ended_early_is_followed_to_its_last_line_and_kept(
    two_kubelets: Lab, past: Past
) -> None:
    home = Home(Path(os.environ["STARBURST_HOME"]))
    running(past, "early-1")

    async def end_early() -> None:
        async with api_of(two_kubelets) as api:
            await api.create(PODS, "default", pod("early-1-1", "early-1", UNTIL_TOLD))
            await eventually(lambda: is_in(api, "early-1-1", "Running"))
            told = await asyncio.to_thread(starburst, "logs", "early")
            assert (told.returncode, told.stdout) == (0, "begun\n"), told.stderr
            command = [sys.executable, "-m", "starburst", "logs", "early", "-f"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
                assert follower.stdout is not None
                assert await asyncio.to_thread(follower.stdout.readline) == "begun\n"
                target = log_path(home.cluster, "early-1", 1)
                keeping = asyncio.create_task(
                    LogKeeper(api, home.cluster).keep("default", "early-1-1", target)
                )
                await api.delete(PODS, "default", "early-1-1", grace_s=20)
                await asyncio.wait_for(keeping, PATIENCE_S)
                assert target.read_text() == "begun\nended\n"
                assert await asyncio.to_thread(follower.stdout.readline) == "ended\n"
                past.end("early-1")
                assert await asyncio.to_thread(follower.stdout.read) == ""
                assert follower.wait(PATIENCE_S) == 0
            await eventually(lambda: is_in(api, "early-1-1", ""))

    asyncio.run(end_early())
    told = starburst("logs", "early")
    assert (told.returncode, told.stdout) == (0, "begun\nended\n"), "the pod is gone, the file is there"


def test_a_gang_over_two_nodes_and_an_adopted_job(two_kubelets: Lab, past: Past) -> None:
    running(past, "gang-1", tasks=2)

    async def make() -> str:
        async with api_of(two_kubelets) as api:
            await api.create(PODS, "default", pod("gang-1-1-a", "gang-1", "echo right", node="node1", rank=1))
            await api.create(PODS, "default", pod("gang-1-1-b", "gang-1", "echo left"))
            job = {
                "metadata": {"name": "theirs"},
                "spec": {"template": {"spec": pod_spec("echo adopted")}},
            }
            made = await api.create(JOBS, "default", job)
            await eventually(lambda: is_in(api, "gang-1-1-a", "Succeeded"))
            await eventually(lambda: is_in(api, "gang-1-1-b", "Succeeded"))
            await eventually(lambda: has_succeeded(api, "theirs"))
            return str(made["metadata"]["uid"])

    uid = asyncio.run(make())
    running(past, "theirs-1", adopted=Adopted("Job", "default", "theirs", uid))
    assert starburst("logs", "gang").stdout == "[0] left\n[1] right\n"
    assert starburst("logs", "gang", "--rank", "1").stdout == "right\n"
    assert starburst("logs", "theirs").stdout == "adopted\n"
