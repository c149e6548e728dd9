"""The watch of one kind of operators' objects: JobSets, PyTorchJobs, RayJobs and their like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from starburst.clusters.kubernetes.runs.identity import adopted_id
from starburst.kube import names
from starburst.kube.api import Api
from starburst.kube.objects import JobView, read_operator_object
from starburst.kube.operator_kinds import OperatorKind
from starburst.kube.reflector import Handler, Reflector
from starburst.kube.resources import Object


def operator_reflector(
    api: Api,
    kind: OperatorKind,
    namespace: str,
    *,
    seen: Callable[[Object], None],
    handler: Handler[JobView],
) -> Reflector[JobView]:
    """Objects with a queue's label in a namespace, in all namespaces for ""; each goes to `seen` first."""
    read = partial(_read, kind, seen)
    return Reflector(api, kind.resource, read, handler, namespace=namespace, selector=names.QUEUE)


def _read(kind: OperatorKind, seen: Callable[[Object], None], item: Object) -> JobView:
    item = {"apiVersion": kind.resource.api_version, "kind": kind.name, **item}
    seen(item)
    view = read_operator_object(item, kind)
    if view.labels.get(names.JOB) in (None, adopted_id(view.name, view.uid)):
        return view
    labels, annotations = (
        {key: value for key, value in found.items() if key not in names.MARKS}
        for found in (view.labels, view.annotations)
    )  # its user wrote the marks of another object
    return replace(view, labels=labels, annotations=annotations)
