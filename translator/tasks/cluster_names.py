"""What a container's texts name and only a Kubernetes cluster fills in: its DNS, and variables of a gang."""

from __future__ import annotations

import re
from collections.abc import Iterator

from translator.field import ONLY_THE_CLUSTER, Field
from translator.manifests.expansion import names_in

SERVICE = re.compile(r"\.svc(\.cluster\.local)?(?=[:/.\s]|$)")
#: Variables that a gang's tasks are given when they start; a Kubernetes cluster fills in $(NAME) of them.
GIVEN_TO_GANGS = (
    *("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "NNODES", "NODE_RANK"),
    *("SKYPILOT_NODE_IPS", "SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES", "SKYPILOT_NUM_GPUS_PER_NODE"),
)


def judge_names(spec: Field, tasks: int) -> None:
    """Note names of services in what the first container of a pod spec runs. A gang of `tasks` that names its
    pods, by the subdomain of the spec, or $(NAME) of its variables, stays on the cluster.
    """
    if tasks > 1:
        _judge_references(_first(spec.at("containers")))
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


def _judge_references(container: Field) -> None:
    """Refuse or hold $(NAME) of what a gang is given: only Kubernetes fills it in, when a pod starts."""
    own = [variable.at("name").value for variable in _elements(container.at("env"))]
    for text in texts_of(container):
        for name in dict.fromkeys(names_in(str(text.value))):
            if name in GIVEN_TO_GANGS and name not in own:
                known = f"$({name}) is known only when the job runs"
                text.refuse_away(f"{known}; read ${name} in the command", known, part=f"$({name})")


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
