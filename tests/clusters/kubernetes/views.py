"""Views of Jobs, pods and nodes in a few words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from starburst.domain.constraints import ANY_UNTAINTED
from starburst.kube import names
from starburst.kube.objects import JobView, NodeView, Owner, PodView

ME = "store-1"


def a_job(job_id: str = "a", attempt: int | None = 1, uid: str = "", **more: Any) -> JobView:
    """A Job of ours; `attempt` None: it waits."""
    marks = {} if attempt is None else {names.ATTEMPT: str(attempt), names.NODES: "n0"}
    labels = {names.JOB: job_id, names.CONTROLLER: ME, **more.pop("labels", {})}
    return JobView(
        namespace="ns",
        name=more.pop("name", f"{job_id}-{attempt}"),
        uid=uid or f"uid-{job_id}-{attempt}",
        labels=labels,
        annotations={**marks, **more.pop("annotations", {})},
        **{
            "scheduler": names.CHAKRA,
            "parallelism": 1,
            "suspended": False,
            "deleting": False,
            "end": "",
            "end_reason": "",
            "end_message": "",
            "started_at": None,
            **more,
        },
    )


def a_pod(name: str = "p", job: JobView | None = None, **more: Any) -> PodView:
    """A pod, of a Job if one is given."""
    owner = None if job is None else Owner("Job", job.name, job.uid)
    return PodView(
        namespace="ns",
        name=name,
        uid=more.pop("uid", f"uid-{name}"),
        labels=more.pop("labels", {}),
        annotations=more.pop("annotations", {}),
        **{
            "owner": owner,
            "node": "",
            "phase": "Pending",
            "deleting": False,
            "requests": {"cpu": 1000, "pods": 1},
            "selector": (),
            "rules": ANY_UNTAINTED,
            "scheduler": names.CHAKRA,
            "priority": 0,
            "preempts": True,
            "host_ports": (),
            "unsupported": (),
            "created_at": 0.0,
            "exit_code": None,
            "reason": "",
            "message": "",
            "unschedulable": "",
            **more,
        },
    )


def running(pod: PodView, node: str = "n0") -> PodView:
    return replace(pod, node=node, phase="Running")


def failed(pod: PodView, code: int | None = 1, reason: str = "Error", **more: Any) -> PodView:
    return replace(pod, phase="Failed", exit_code=code, reason=reason, **more)


def succeeded(pod: PodView) -> PodView:
    return replace(pod, phase="Succeeded", exit_code=0)


def a_node(name: str = "n0", **allocatable: int) -> NodeView:
    """A node that takes pods."""
    return NodeView(
        name=name,
        uid=f"uid-{name}",
        allocatable={"cpu": 8000, "memory": 2**33, "pods": 10, **allocatable},
        labels={},
        taints=(),
        schedulable=True,
        ready=True,
    )


def marked(job: JobView, how: str, **more: Any) -> JobView:
    """A Job that we are ending, so that it counts as `how`."""
    attempt = job.annotations[names.ATTEMPT]
    return replace(job, annotations={**job.annotations, names.STOPPING: f"{attempt} {how}"}, **more)
