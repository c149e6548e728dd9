"""Nodes come, go and fall silent; runs are displaced; the API server is away."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from starburst.kube.resources import JOBS, NODES
from tests.kube_unit.store import RefusedError
from tests.storm.weather import chance, every

if TYPE_CHECKING:
    from tests.storm.run import Storm

chance("image-never-there", 0.01, "a container's image is never there")
chance("oom-killed", 0.01, "a container is killed for its memory")
chance("pod-lingers", 0.3, "a deleted pod works on for all of its grace")


def restore(storm: Storm, name: str, gpus: int) -> None:
    """The node is there, ready, takes pods, and has its GPUs."""
    storm.cluster.silent.discard(name)
    storm.cluster.cordoned.discard(name)
    with suppress(RefusedError):
        storm.cluster.get(NODES, "", name)
        wanted = storm.cluster.node(name, gpus)
        storm.cluster.change(NODES, "", name, {"spec": {"unschedulable": None}, "status": wanted["status"]})
        storm.cluster.nudge()
        return
    storm.cluster.add_node(name, gpus)


@every("node-drained", 4.0, "a node is cordoned, its pods are evicted, and it comes back")
async def drained(storm: Storm) -> bool:
    """As kubectl drain does."""
    draw = storm.weather.draw("node-drained")
    name = draw.choice(sorted(storm.nodes))
    with suppress(RefusedError):
        storm.cluster.change(NODES, "", name, {"spec": {"unschedulable": True}})
        storm.cluster.cordoned.add(name)
        for pod in storm.cluster.pods_on(name):
            storm.cluster.evict(pod)
        await asyncio.sleep(draw.uniform(60, 3600))
        restore(storm, name, storm.nodes[name])
        return True
    return False


@every("node-gone", 8.0, "a node is deleted with all that runs there, and a new one comes")
async def gone(storm: Storm) -> bool:
    """As a cloud's autoscaler or a fire does: its pods go with it."""
    draw = storm.weather.draw("node-gone")
    name = draw.choice(sorted(storm.nodes))
    with suppress(RefusedError):
        storm.cluster.remove(NODES, "", name)
        storm.cluster.cordoned.add(name)
        for pod in storm.cluster.pods_on(name):
            metadata = pod["metadata"]
            storm.cluster.delete_at_once(metadata["namespace"], metadata["name"])
        await asyncio.sleep(draw.uniform(60, 3600))
        restore(storm, name, storm.nodes[name])
        return True
    return False


@every("node-silent", 5.0, "a node is NotReady for a while, and its pods live on")
async def silent(storm: Storm) -> bool:
    """Its kubelet does not answer."""
    draw = storm.weather.draw("node-silent")
    name = draw.choice(sorted(storm.nodes))
    with suppress(RefusedError):
        storm.cluster.silent.add(name)
        away = storm.cluster.node(name, storm.nodes[name], ready=False)
        storm.cluster.change(NODES, "", name, {"status": away["status"]})
        await asyncio.sleep(draw.choice((20.0, 200.0, 1500.0)))
        restore(storm, name, storm.nodes[name])
        return True
    return False


@every("node-shrinks", 8.0, "GPUs of a node break, and are mended")
async def shrinks(storm: Storm) -> bool:
    """The device plugin offers fewer."""
    draw = storm.weather.draw("node-shrinks")
    name = draw.choice(sorted(storm.nodes))
    with suppress(RefusedError):
        less = storm.cluster.node(name, storm.nodes[name] // 2)
        storm.cluster.change(NODES, "", name, {"status": less["status"]})
        await asyncio.sleep(draw.uniform(60, 7200))
        restore(storm, name, storm.nodes[name])
        return True
    return False


@every("pod-evicted", 2.0, "a pod is evicted")
async def evicted(storm: Storm) -> bool:
    """By node pressure or by hand."""
    pods = [pod for name in sorted(storm.nodes) for pod in storm.cluster.pods_on(name)]
    if not pods:
        return False
    storm.cluster.evict(storm.weather.draw("pod-evicted").choice(pods))
    return True


@every("chakra-away", 6.0, "nobody binds pods for a while")
async def chakra_away(storm: Storm) -> bool:
    """Chakra is down."""
    storm.cluster.chakra = False
    await asyncio.sleep(storm.weather.draw("chakra-away").choice((20.0, 300.0)))
    storm.cluster.chakra = True
    storm.cluster.nudge()
    return True


@every("api-away", 4.0, "the API server is away, from seconds to six hours")
async def api_away(storm: Storm) -> bool:
    """All streams break, and no call is answered."""
    storm.cluster.go_away(storm.weather.draw("api-away").choice((1.0, 30.0, 600.0, 6 * 3600.0)))
    return True


@every("api-forgets", 3.0, "the API server compacts its history and breaks all streams")
async def api_forgets(storm: Storm) -> bool:
    """Whoever comes back with an old version is told 410."""
    storm.cluster.forget()
    storm.cluster.cut_watches()
    return True


@every("node-added", 8.0, "a node more comes for some hours, and is drained")
async def added(storm: Storm) -> bool:
    """As an autoscaler does."""
    draw = storm.weather.draw("node-added")
    name = f"more-{draw.getrandbits(32):08x}"
    storm.cluster.add_node(name, draw.choice((1, 4)))
    storm.cluster.nudge()
    await asyncio.sleep(draw.uniform(600, 4 * 3600))
    storm.cluster.change(NODES, "", name, {"spec": {"unschedulable": True}})
    storm.cluster.cordoned.add(name)
    for pod in storm.cluster.pods_on(name):
        storm.cluster.evict(pod)
    await asyncio.sleep(600)
    storm.cluster.remove(NODES, "", name)
    return True


@every("controller-away", 8.0, "nobody makes or removes pods of Jobs for a while")
async def controller_away(storm: Storm) -> bool:
    """kube-controller-manager is down."""
    storm.cluster.controller = False
    await asyncio.sleep(storm.weather.draw("controller-away").choice((20.0, 300.0)))
    storm.cluster.controller = True
    storm.cluster.nudge()
    return True


@every("job-deleted", 6.0, "somebody deletes the Job of a run with kubectl")
async def job_deleted(storm: Storm) -> bool:
    """Which cancels its job."""
    return _delete_one(storm, "job-deleted")


@every("deleted-while-down", 6.0, "somebody deletes the Job of a run while the scheduler is down")
async def deleted_while_down(storm: Storm) -> bool:
    """It finds no trace of that run when it comes back."""
    if not storm.process.is_up:
        return False
    storm.process.kill()
    return _delete_one(storm, "deleted-while-down")


def _delete_one(storm: Storm, fault: str) -> bool:
    """Delete a Job that is not over, if there is one."""
    jobs = [job for job in storm.cluster.all(JOBS) if "deletionTimestamp" not in job["metadata"]]
    live = [job for job in jobs if not (job.get("status") or {}).get("conditions")]
    if not live:
        return False
    metadata = storm.weather.draw(fault).choice(live)["metadata"]
    storm.users.wished_away(metadata)
    storm.cluster.delete(JOBS, metadata["namespace"], metadata["name"])
    return True
