"""Gangs of each kind, for pods and rented machines alike: torchrun, a JobSet, a RayJob, a batch script."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from starburst.kube.operator_kinds import OperatorKind
from starburst.kube.resources import Object
from tests.gangs.programs import IMAGE, PATH
from tests.kube.crds import JOBSET, PYTORCH, RAY_JOB

#: PyTorch adds a number of each task; then by its argument it ends, stays in its first attempt, or travels.
TRAIN = """
import os, signal, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, how = dist.get_rank(), sys.argv[1]
number = torch.tensor([rank + 1.0])
dist.all_reduce(number)
site, attempt = os.environ["STARBURST_SITE"], os.environ["STARBURST_ATTEMPT"]
if how == "travel":
    step = os.path.join(os.environ["STARBURST_CHECKPOINT_DIR"], "step")

    def save(*_):
        if rank == 0:
            with open(step, "w") as file:
                file.write("7")
        sys.exit(0)

    signal.signal(signal.SIGTERM, save)
    if site == "cluster" and rank == 0:
        with open(step) as file:
            print("home at step", file.read(), flush=True)
print(f"sum {int(number)} of {dist.get_world_size()} on {site} in attempt {attempt}", flush=True)
while (how == "stay" and attempt == "1") or (how == "travel" and site == "cloud"):
    time.sleep(0.2)
dist.destroy_process_group()
if rank == 0:
    print("done", flush=True)
"""
#: A driver adds what its worker sends; the worker knows it by the name of its pod.
ADD = """
import os, socket, time
port = int(os.environ["MASTER_PORT"])
if "DRIVER" not in os.environ:
    with socket.create_server(("", port)) as server:
        peer, _ = server.accept()
        print("sum", 1 + int(peer.recv(16)), "of 2 on", os.environ["STARBURST_SITE"])
        print("done")
else:
    for _ in range(600):
        try:
            with socket.create_connection((os.environ["DRIVER"], port), 5) as peer:
                peer.sendall(b"2")
            break
        except OSError:
            time.sleep(0.1)
    else:
        raise SystemExit("no driver")
"""
#: Tasks of Ray on both nodes, then Ray Train with a worker on each. By its argument it ends, or travels: away
#: it trains until it is stopped, at home it goes on from its last checkpoint. The worker on the driver's node
#: saves, as rented machines of a gang share no directory.
SPREAD = """
import os, sys, tempfile, time
import ray
from ray import train
from ray.train.torch import TorchTrainer

def add_up(config):
    import torch
    import torch.distributed as dist

    keeps = ray.get_runtime_context().get_node_id() == config["driver"]
    step = torch.zeros(1)
    if keeps and train.get_checkpoint():
        with train.get_checkpoint().as_directory() as saved, open(os.path.join(saved, "step")) as file:
            step += int(file.read())
    dist.all_reduce(step)
    first = int(step)
    while step < config["steps"] or config["endless"]:
        if step == config["steps"]:
            time.sleep(0.2)
            continue
        sum = torch.tensor([train.get_context().get_world_rank() + 1.0])
        dist.all_reduce(sum)
        step += 1
        metrics = {"first": first, "step": int(step), "sum": int(sum)}
        with tempfile.TemporaryDirectory() as made:
            with open(os.path.join(made, "step"), "w") as file:
                file.write(str(int(step)))
            train.report(metrics, checkpoint=train.Checkpoint.from_directory(made) if keeps else None)
        if keeps:
            print("saved step", int(step), flush=True)

ray.init()

@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def where(_):
    time.sleep(1)
    return ray.get_runtime_context().get_node_id()

nodes = set(ray.get([where.remote(number) for number in range(4)]))
site, travels = os.environ["STARBURST_SITE"], sys.argv[1] == "travel"
print("on", len(nodes), "nodes of Ray,", site, flush=True)
trainer = TorchTrainer(
    add_up,
    train_loop_config={
        "driver": ray.get_runtime_context().get_node_id(),
        "steps": 10 if travels and site == "cluster" else 7,
        "endless": travels and site == "cloud",
    },
    scaling_config=train.ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD"),
    run_config=train.RunConfig(
        name="adds",
        storage_path=os.environ["STARBURST_CHECKPOINT_DIR"] if travels else tempfile.mkdtemp(),
    ),
)
metrics = trainer.fit().metrics
print("trained from step {first} to {step}, sum {sum},".format(**metrics), site)
print("done")
"""
SWEEP = """#!/bin/sh
#SBATCH --job-name=sweep
#SBATCH --array=0-7
#SBATCH --gpus=1
#SBATCH --mem=64M
echo "member $SLURM_ARRAY_TASK_ID on $STARBURST_SITE"
sleep 5
echo done
"""

HOME = {"starburst.io/queue": "default", "starburst.io/runtime": "host", "starburst.io/cloud": "never"}
OUT = {"starburst.io/queue": "default", "starburst.io/runtime": "host", "starburst.io/max-wait": "1s"}
APART = {"starburst.io/spread": "node"}


def torchrun(name: str, how: str, keys: Mapping[str, str]) -> Object:
    """A PyTorchJob of two nodes; `how` is what TRAIN does after its sum."""
    words = ["torchrun", "--no-python", "python3", "-c", TRAIN, how]
    roles = {
        role: {"replicas": 1, "restartPolicy": "Never", "template": _template(words)}
        for role in ("Master", "Worker")
    }
    policy = {"suspend": True, "cleanPodPolicy": "None"}
    return _of(PYTORCH, name, keys, {"runPolicy": policy, "nprocPerNode": "1", "pytorchReplicaSpecs": roles})


def jobset(name: str, keys: Mapping[str, str]) -> Object:
    """A JobSet of a driver and a worker."""
    words = ["python3", "-c", ADD]
    driver = {"DRIVER": f"{name}-driver-0-0.{name}"}
    jobs = [
        {"name": role, "template": {"spec": {"backoffLimit": 0, "template": _template(words, env)}}}
        for role, env in (("driver", {}), ("worker", driver))
    ]
    return _of(JOBSET, name, keys, {"suspend": True, "replicatedJobs": jobs})


def ray_job(name: str, how: str, keys: Mapping[str, str]) -> Object:
    """A RayJob of a head and a worker; `how` is what SPREAD does after its tasks."""
    group = {"rayStartParams": {"num-cpus": "2"}, "template": _template([])}
    cluster = {"headGroupSpec": group, "workerGroupSpecs": [{**group, "groupName": "workers", "replicas": 1}]}
    entry = f"python3 -c {shlex.quote(SPREAD)} {how}"
    spec = {
        "suspend": True,
        "shutdownAfterJobFinishes": True,
        "entrypoint": entry,
        "rayClusterSpec": cluster,
    }
    return _of(RAY_JOB, name, keys, spec)


def unsuspended(manifest: Object) -> Object:
    """The same for `starburst submit`, where a suspended job is a held one."""
    spec = {key: value for key, value in manifest["spec"].items() if key != "suspend"}
    if "runPolicy" in spec:
        spec["runPolicy"] = {key: value for key, value in spec["runPolicy"].items() if key != "suspend"}
    return {**manifest, "spec": spec}


def _of(kind: OperatorKind, name: str, keys: Mapping[str, str], spec: Object) -> Object:
    labels = {key: value for key, value in keys.items() if key == "starburst.io/queue"}
    annotations = {key: value for key, value in keys.items() if key not in labels}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.name,
        "metadata": metadata,
        "spec": spec,
    }


def _template(command: Sequence[str], env: Mapping[str, str] = {}) -> Object:
    """A pod of two GPUs."""
    container: Object = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "env": [{"name": key, "value": value} for key, value in {"PATH": PATH, **env}.items()],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"nvidia.com/gpu": "2"}},
    }
    if command:
        container["command"] = list(command)
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 20, "containers": [container]}
    return {"spec": spec}
