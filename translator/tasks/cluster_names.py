"""Names of the cluster's DNS in a container's texts, which rented machines do not find."""

from __future__ import annotations

import re
from collections.abc import Iterator

from translator.field import ONLY_THE_CLUSTER, Field

SERVICE = re.compile(r"\.svc(\.cluster\.local)?(?=[:/.\s]|$)")


def judge_names(spec: Field, tasks: int) -> None:
    """Note names of services in what the first container of a pod spec runs. A gang of `tasks` that names its
    pods, by the subdomain of the spec, stays on the cluster.
    """
    subdomain = spec.at("subdomain").value
    of_pods = re.compile(rf"\.{re.escape(str(subdomain))}\b") if subdomain and tasks > 1 else None
    for text in texts_of(_first(spec.at("containers"))):
        if of_pods is not None and of_pods.search(str(text.value)):
            text.stay(
                f"names of pods in {subdomain}",
                "names a pod, which machines in a cloud do not find",
                f"let it read $MASTER_ADDR, which Starburst sets on machines too; {ONLY_THE_CLUSTER}",
            )
        elif SERVICE.search(str(text.value)):
            text.note_away("names a service of a Kubernetes cluster, which is not found")


def texts_of(container: Field) -> Iterator[Field]:
    """The texts of a container's command, arguments and variables."""
    words = (word for key in ("command", "args") for word in _elements(container.at(key)))
    values = (variable.at("value") for variable in _elements(container.at("env")))
    yield from (text for text in (*words, *values) if isinstance(text.value, str))


def _first(containers: Field) -> Field:
    return next(iter(_elements(containers)), Field(None, containers.path, containers.report))


def _elements(field: Field) -> list[Field]:
    """The elements of a list; none of anything else, which is refused where it is read."""
    return field.items() if isinstance(field.value, list) else []
