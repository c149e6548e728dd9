"""Runs as the server has them now: a watch may be dead for minutes before anybody notices."""

from __future__ import annotations

from dataclasses import replace

from starburst.clusters.kubernetes.runs.run_object import RunObject
from starburst.kube.api import Api
from starburst.kube.objects import JobView, PodView, read_job, read_pod, resource_of
from starburst.kube.resources import PODS, Object


async def fresh_look(api: Api, run: RunObject) -> RunObject | None:
    """A run with its object and pods of now; None if its object is not there any more.

    Raises ApiError, UnreachableError.
    """
    view = run.view
    there = await api.find(resource_of(view), *view.key)
    if there is None or there["metadata"]["uid"] != view.uid:
        return None
    if isinstance(view, PodView):
        pod = read_pod(there)
        return replace(run, view=pod, pods={pod.key: pod})
    return replace(run, view=read_job(there), pods={pod.key: pod for pod in await pods_of(api, view, there)})


async def pods_of(api: Api, view: JobView, job: Object | None) -> list[PodView]:
    """The pods of a Job, which is `job` as the server has it, or gone. Raises ApiError, UnreachableError."""
    labels = {} if job is None else (job["spec"].get("selector") or {}).get("matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    listed = map(read_pod, await api.list(PODS, view.namespace, selector))
    return [pod for pod in listed if pod.owner is not None and pod.owner.uid == view.uid]
