"""Gangs of each kind on both laboratories: by file and by kubectl, at home, away, a node lost, home again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from starburst.kube.resources import PODS
from tests.hybrid.gang_jobs import APART, HOME, OUT, SWEEP, jobset, ray_job, torchrun, unsuspended
from tests.hybrid.programs import ctr, install, load_image
from tests.hybrid.test_hybrid import BOOT_S, LAUNCH_S, NOTICE_S, all_gone, config, jobs, machines, phases, tag
from tests.kube.crds import JOBSET, PYTORCH, RAY_JOB, crd
from tests.kube.lab import kubelets
from tests.kube.live import IMAGE, Live, give_gpus, job_manifest, live
from tests.sky_lab.containers import BUSYBOX, engines
from tests.sky_lab.ec2 import rented
from tests.sky_lab.lab import lab

pytestmark = [pytest.mark.gangs, pytest.mark.filterwarnings("ignore")]

#: The last line of a job, with the number of its task if it has several.
DONE = re.compile(r"^(?:\[\d+\] )?done$", re.MULTILINE)
KINDS = (JOBSET, PYTORCH, RAY_JOB)
#: Wall seconds that two nodes of PyTorch or Ray may take on a loaded machine, once they have their place.
START_S = 400.0


@pytest.fixture
def cluster(laboratory: None, tmp_path: Path) -> Iterator[Live]:
    """Two kubelets of four GPUs each with the image and the kinds of the operators; nothing started yet."""
    install()
    tmp_path.chmod(0o755)
    with kubelets(2) as found:
        give_gpus(found, ["node0", "node1"], 4)
        load_image(found, 2)
        with live(found, tmp_path) as starburst:
            starburst.apply([crd(each) for each in KINDS])
            yield starburst


def test_gangs_of_each_kind_run_at_home_and_away_and_end_once(cluster: Live) -> None:
    (cluster.root / "checkpoints").mkdir()
    begin(cluster, config(cluster.root))
    run_gangs(cluster, lose_a_node)
    the_bill_is_right(cluster)


def test_an_array_of_a_batch_script_overflows_in_containers(cluster: Live) -> None:
    with engines():
        begin(cluster, config(cluster.root))
        gate = fill_the_cluster(cluster)
        (cluster.root / "sweep.sh").write_text(SWEEP)
        for node in range(2):  # its image has the name that it has in the machines' registry
            tag_image(cluster, node)
        cluster.run("submit", "sweep.sh", "--image", BUSYBOX, "--max-wait", "1s", "--no-workdir")
        cluster.wait_for("the array has ended", lambda: phases(cluster, "sweep") == {"succeeded": 8}, START_S)
        gate.touch()
        cluster.wait_for("the blockers have ended", lambda: phases(cluster) == {"succeeded": 10})
        cluster.wait_for("no machine is left", lambda: all_gone(cluster), LAUNCH_S)
    for job in jobs(cluster):
        if job.name.startswith("sweep"):
            assert job.site == "cloud"
            assert len(DONE.findall(cluster.run("logs", job.id))) == 1
    the_bill_is_right(cluster)


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
    submit(cluster, torchrun("torch", "stay", OUT | APART), jobset("set", OUT), ray_job("ray", OUT | APART))
    says(cluster, "torch", "sum 3 of 2 on cloud in attempt 1")
    lose(cluster, "torch")
    says(cluster, "torch", "sum 3 of 2 on cloud in attempt 2")
    ends(cluster, "torch", "set", "ray")

    travels = {**OUT, **APART, "starburst.io/checkpoint": "true", "starburst.io/runtime-estimate": "2h"}
    cluster.apply(
        [
            torchrun("torch-applied", "travel", travels),
            jobset("set-applied", OUT),
            ray_job("ray-applied", OUT | APART),
        ]
    )
    says(cluster, "torch-applied", "sum 3 of 2 on cloud in attempt 1")
    ends(cluster, "set-applied", "ray-applied")
    gate.touch()
    ends(cluster, "torch-applied")
    each_ended_once(cluster)
    its_owners_know(cluster)
    cluster.wait_for("no machine is left", lambda: all_gone(cluster), LAUNCH_S)
    pods = cluster.ask(lambda api: api.list(PODS, "default"))
    assert not [pod for pod in pods if pod["status"]["phase"] in ("Pending", "Running")]


def at_home(cluster: Live) -> None:
    """A torchrun and a RayJob in two pods each, on both nodes."""
    submit(cluster, torchrun("torch-home", "end", HOME | APART), ray_job("ray-home", HOME | APART))
    ends(cluster, "torch-home", "ray-home")


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


def says(cluster: Live, name: str, what: str) -> None:
    """Both tasks of a job have written this."""

    def both() -> bool:
        running = any(job.name == name and job.phase == "running" for job in jobs(cluster))
        done = any(job.name == name and job.phase in ("failed", "succeeded") for job in jobs(cluster))
        return (running or done) and cluster.run("logs", name).count(what) == 2

    cluster.wait_for(f"{name} says {what}", both, START_S)


def ends(cluster: Live, *names: str) -> None:
    """They have succeeded."""

    def over() -> bool:
        found = {job.name: job.phase for job in jobs(cluster)}
        failed = [name for name in names if found.get(name) in ("failed", "cancelled")]
        assert not failed, "".join(cluster.run("logs", name) for name in failed) + cluster.logs()
        return all(found.get(name) == "succeeded" for name in names)

    cluster.wait_for(f"{', '.join(names)} have succeeded", over, START_S)


def lose_a_node(cluster: Live, name: str) -> None:
    """The cloud takes one of the two nodes of a job's machine."""
    (machine,) = [job.runs_on for job in jobs(cluster) if job.name == name]
    nodes = [one.id for one in rented(tag(cluster)) if one.intent == machine]
    assert len(nodes) == 2
    lab("preempt", nodes[1])
    cluster.wait_for("its end is known", lambda: machines(cluster)[machine].preempted, LAUNCH_S)


def each_ended_once(cluster: Live) -> None:
    """Of all that the attempts of a gang wrote there is one end; where it ran is as it was meant."""
    for job in cluster.jobs():
        said = [
            cluster.run("logs", job["id"], "--attempt", str(number))
            for number in range(1, job["attempt"] + 1)
        ]
        assert sum(len(DONE.findall(text)) for text in said) == 1, (job, said)
        home = (
            job["name"].endswith("home") or job["name"].startswith("block") or job["name"] == "torch-applied"
        )
        assert job["site"] == ("cluster" if home else "cloud"), job
    for name, site in (("ray-home", "cluster"), ("ray", "cloud"), ("ray-applied", "cloud")):
        assert f"on 2 nodes of Ray, {site}" in cluster.run("logs", name)
    for name in ("set", "set-applied"):
        assert "sum 3 of 2 on cloud" in cluster.run("logs", name)
    assert "home at step 7" in cluster.run("logs", "torch-applied")
    assert cluster.run("logs", "torch-home").count("sum 3 of 2 on cluster in attempt 1") == 2


def its_owners_know(cluster: Live) -> None:
    cluster.kubectl("wait", "--for=condition=Succeeded", "pytorchjobs/torch-applied", "--timeout=60s")
    cluster.kubectl("wait", "--for=condition=Completed", "jobsets/set-applied", "--timeout=60s")
    ray = cluster.ask(lambda api: api.get(RAY_JOB.resource, "default", "ray-applied"))
    assert ray["status"]["jobStatus"] == "SUCCEEDED"


def the_bill_is_right(cluster: Live) -> None:
    """Each machine costs what its cloud counted for each of its nodes; the cloud has nothing of ours left."""
    told = {one["id"]: one for one in json.loads(cluster.run("instances", "--all", "-o", "json"))}
    nodes = rented(tag(cluster))
    assert {node.intent for node in nodes} == told.keys()
    for name, machine in told.items():
        own = [node for node in nodes if node.intent == name]
        number = machines(cluster)[name].offer.nodes
        assert len(own) == number, (machine, own)
        assert all(node.ended_at is not None for node in own)
        price = machine["usd_per_hour"] / number / 3600
        counted = sum((node.ended_at or 0.0) - node.launched_at for node in own) * price
        lives = [(node.ended_at or 0.0) - node.launched_at for node in own]
        print(
            f"{name}: {number} × {own[0].type}, {', '.join(f'{life:.0f}' for life in lives)} s by its cloud, "
            f"${counted:.4f}; billed {machine['billed_s']:.0f} s, ${machine['cost_usd']:.4f}"
        )
        least, most = (
            counted - number * BOOT_S * price,
            max(lives) * number * price + number * NOTICE_S * price,
        )
        assert least <= machine["cost_usd"] <= most, (machine, own)
        assert machine["cost_usd"] == pytest.approx(
            machine["usd_per_hour"] * machine["billed_s"] / 3600, abs=1e-5
        )
    shares = json.loads(cluster.run("cost", "--by", "job", "-o", "json"))
    whole = sum(machine["cost_usd"] for machine in told.values())
    assert sum(share["cost_usd"] for share in shares) == pytest.approx(whole, abs=1e-6)


def tag_image(cluster: Live, node: int) -> None:
    """Let a kubelet have busybox under its name in the machines' registry."""
    ctr(cluster.lab, node, "images", "tag", IMAGE, BUSYBOX)
