"""Gangs of each kind by file and by kubectl: at home, away, without a node, and home again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from starburst.kube.resources import PODS
from tests.gangs.jobs import APART, HOME, OUT, SPREAD, jobset, ray_job, torchrun, unsuspended
from tests.gangs.programs import IMAGE, PATH, install, load_image
from tests.hybrid.test_hybrid import LAUNCH_S, all_gone, jobs, phases
from tests.kube.crds import JOBSET, PYTORCH, RAY_JOB, crd
from tests.kube.lab import kubelets
from tests.kube.live import Live, give_gpus, job_manifest, live

#: The last line of a job, with the number of its task if it has several.
DONE = re.compile(r"^(?:\[\d+\] )?done$", re.MULTILINE)
#: They leave, and come home.
TRAVEL = ("torch-applied", "ray-applied")
KINDS = (JOBSET, PYTORCH, RAY_JOB)
#: Wall seconds that two nodes of PyTorch or Ray may take on a loaded machine, once they have their place.
START_S = 800.0


@contextmanager
def cluster_of_two(root: Path) -> Iterator[Live]:
    """Two kubelets of four GPUs each with the image and the kinds of the operators; nothing started yet."""
    install()
    root.chmod(0o755)
    with kubelets(2) as found:
        give_gpus(found, ["node0", "node1"], 4)
        load_image(found, 2)
        with live(found, root) as starburst:
            starburst.apply([crd(each) for each in KINDS])
            yield starburst


def begin(cluster: Live, settings: dict[str, Any]) -> None:
    """Start Starburst and Chakra, once the server knows the kinds."""
    names = [f"crd/{crd(each)['metadata']['name']}" for each in KINDS]
    cluster.kubectl("wait", "--for=condition=established", *names)
    cluster.let_leave()
    cluster.configure(yaml.safe_dump(settings))
    cluster.up()
    cluster.chakra()


def run_gangs(cluster: Live, lose: Callable[[Live, str], None]) -> None:
    """The whole story, up to the end of all jobs and machines; `lose` takes a node of a job's machine."""
    at_home(cluster)
    gate = fill_the_cluster(cluster)
    submit(
        cluster,
        torchrun("torch", "stay", OUT | APART),
        jobset("set", OUT),
        ray_job("ray", "end", OUT | APART),
    )
    says(cluster, "torch", "sum 3 of 2 on cloud in attempt 1")
    lose(cluster, "torch")
    says(cluster, "torch", "sum 3 of 2 on cloud in attempt 2")
    ends(cluster, "torch", "set", "ray")

    travels = {**OUT, **APART, "starburst.io/checkpoint": "true", "starburst.io/runtime-estimate": "2h"}
    cluster.apply(
        [
            torchrun("torch-applied", "travel", travels),
            jobset("set-applied", OUT),
            ray_job("ray-applied", "travel", travels),
        ]
    )
    says(cluster, "torch-applied", "sum 3 of 2 on cloud in attempt 1")
    saved = "saved step 7"
    cluster.wait_for(f"ray-applied {saved}", lambda: saved in cluster.run("logs", "ray-applied"), START_S)
    ends(cluster, "set-applied")
    gate.touch()
    ends(cluster, "torch-applied", "ray-applied")
    each_ended_once(cluster)
    its_owners_know(cluster)
    cluster.wait_for("no machine is left", lambda: all_gone(cluster), LAUNCH_S)
    pods = cluster.ask(lambda api: api.list(PODS, "default"))
    assert not [pod for pod in pods if pod["status"]["phase"] in ("Pending", "Running")]


def at_home(cluster: Live) -> None:
    """A torchrun, a RayJob and a plain script on a Ray of its own, in two pods each."""
    submit(cluster, torchrun("torch-home", "end", HOME | APART), ray_job("ray-home", "end", HOME | APART))
    needs = ["--nodes", "2", "--gpus", "2", "--image", IMAGE, "--env", f"PATH={PATH}", "--cloud", "never"]
    script = ["python3", "-c", SPREAD, "end"]
    cluster.run("submit", "--ray", "--name", "script-home", "--no-workdir", *needs, "--", *script)
    ends(cluster, "torch-home", "ray-home", "script-home")


def fill_the_cluster(cluster: Live) -> Path:
    """Two jobs hold all GPUs until the file that is returned is there."""
    gate = cluster.root / "gate"
    gate.mkdir()
    script = f"until [ -e {gate}/open ]; do sleep 0.5; done; echo done"
    submit(cluster, *(job_manifest(f"block-{n}", script, gpus=4, keys=HOME, volume=gate) for n in range(2)))
    cluster.wait_for("the GPUs are taken", lambda: phases(cluster, "block") == {"running": 2})
    return gate / "open"


def submit(cluster: Live, *manifests: dict[str, Any]) -> None:
    text = "\n---\n".join(json.dumps(unsuspended(each)) for each in manifests)
    cluster.run("submit", "-", "-o", "name", given=text)


def says(cluster: Live, name: str, what: str, tasks: int = 2) -> None:
    """Both tasks of a job have written this, or one of them."""

    def both() -> bool:
        running = any(job.name == name and job.phase == "running" for job in jobs(cluster))
        done = any(job.name == name and job.phase in ("failed", "succeeded") for job in jobs(cluster))
        return (running or done) and cluster.run("logs", name).count(what) == tasks

    cluster.wait_for(f"{name} says {what}", both, START_S)


def ends(cluster: Live, *names: str) -> None:
    """They have succeeded."""

    def over() -> bool:
        found = {job.name: job.phase for job in jobs(cluster)}
        failed = [name for name in names if found.get(name) in ("failed", "cancelled")]
        assert not failed, "".join(cluster.run("logs", name) for name in failed) + cluster.logs()
        return all(found.get(name) == "succeeded" for name in names)

    cluster.wait_for(f"{', '.join(names)} have succeeded", over, START_S)


def each_ended_once(cluster: Live) -> None:
    """Of all that the attempts of a gang wrote there is one end; where it ran is as it was meant."""
    for job in cluster.jobs():
        said = [
            cluster.run("logs", job["id"], "--attempt", str(number))
            for number in range(1, job["attempt"] + 1)
        ]
        assert sum(len(DONE.findall(text)) for text in said) == 1, (job, said)
        home = job["name"].endswith("home") or job["name"].startswith("block") or job["name"] in TRAVEL
        assert job["site"] == ("cluster" if home else "cloud"), job
    for name in ("ray-home", "script-home", "ray", "ray-applied"):
        site = "cloud" if name == "ray" else "cluster"
        first, last = (7, 10) if name in TRAVEL else (0, 7)
        text = cluster.run("logs", name)
        assert f"on 2 nodes of Ray, {site}" in text
        assert f"trained from step {first} to {last}, sum 3, {site}" in text
    for name in ("set", "set-applied"):
        assert "sum 3 of 2 on cloud" in cluster.run("logs", name)
    assert "home at step 7" in cluster.run("logs", "torch-applied")
    assert cluster.run("logs", "torch-home").count("sum 3 of 2 on cluster in attempt 1") == 2


def its_owners_know(cluster: Live) -> None:
    cluster.kubectl("wait", "--for=condition=Succeeded", "pytorchjobs/torch-applied", "--timeout=60s")
    cluster.kubectl("wait", "--for=condition=Completed", "jobsets/set-applied", "--timeout=60s")
    ray = cluster.ask(lambda api: api.get(RAY_JOB.resource, "default", "ray-applied"))
    assert ray["status"]["jobStatus"] == "SUCCEEDED"
