"""A job of one program: what a command line, a batch script and a SkyPilot task come to before a manifest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from starburst.domain.gpu_types import maker, types_of
from translator.manifests.amounts import AMD, NVIDIA
from translator.manifests.hints import PREFIX
from translator.object_names import DNS_SUBDOMAIN

#: Longest name of a job: an id is it with a dash and a suffix, and a label.
MAX_NAME = 50
#: A dollar that Kubernetes would take for more than itself.
_EXPANDED = re.compile(r"\$(?=[$(])")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandJob:
    """The program of each task, and what a task needs."""

    name: str
    #: Program and arguments, not a shell line.
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    #: "" is none: the program runs on the node or machine itself.
    image: str = ""
    working_dir: str = ""
    #: Of each task; sizes are Kubernetes quantities, "" is unsaid.
    gpus: int = 0
    #: A constraint, as `Resources` have it.
    gpu_type: str = ""
    cpus: str = ""
    memory: str = ""
    tasks: int = 1
    time_limit_s: int | None = None
    grace_s: int | None = None
    #: Values of annotations starburst.io/…
    hints: Mapping[str, str] = field(default_factory=dict)

    def manifest(self) -> dict[str, Any]:
        """The same as a batch/v1 Job."""
        kinds = ",".join(types_of(self.gpu_type)) if self.gpus else ""
        hints = {**self.hints, **({"gpu-type": kinds} if kinds else {})}
        spec: dict[str, Any] = {
            "backoffLimit": 0,
            "template": {"spec": {"restartPolicy": "Never", "containers": [self._container()]}},
        }
        if self.tasks > 1:
            spec |= {"parallelism": self.tasks, "completions": self.tasks, "completionMode": "Indexed"}
        if self.time_limit_s is not None:
            spec["activeDeadlineSeconds"] = self.time_limit_s
        if self.grace_s is not None:
            spec["template"]["spec"]["terminationGracePeriodSeconds"] = self.grace_s
        metadata: dict[str, Any] = {"name": self.name}
        if hints:
            metadata["annotations"] = {f"{PREFIX}{key}": value for key, value in hints.items()}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}

    def _container(self) -> dict[str, Any]:
        amounts = {"cpu": self.cpus, "memory": self.memory}
        requests: dict[str, Any] = {name: amount for name, amount in amounts.items() if amount}
        resources = {"requests": requests} if requests else {}
        if self.gpus:
            makers = set(map(maker, types_of(self.gpu_type)))
            resources["limits"] = {AMD if makers == {"amd"} else NVIDIA: self.gpus}
        container: dict[str, Any] = {"name": "main", "command": [_unexpanded(word) for word in self.command]}
        if self.image:
            container["image"] = self.image
        if self.working_dir:
            container["workingDir"] = self.working_dir
        if self.env:
            env = ({"name": name, "value": _unexpanded(value)} for name, value in self.env.items())
            container["env"] = list(env)
        if resources:
            container["resources"] = resources
        return container


def job_name(text: str, default: str = "job") -> str:
    """A text as the name of a job: lower case, dashes for what names may not have, shortened."""
    if len(text) <= MAX_NAME and DNS_SUBDOMAIN.fullmatch(text):
        return text
    name = _NOT_IN_NAMES.sub("-", text.lower()).strip("-")[:MAX_NAME].strip("-")
    return name or default


def name_of_command(command: Sequence[str]) -> str:
    """The name of a job for a command: that of its script, else of its program."""
    scripts = [PurePath(word).stem for word in command if PurePath(word).suffix in (".py", ".sh")]
    return job_name(scripts[0] if scripts else PurePath(command[0]).name, "command")


def _unexpanded(text: str) -> str:
    """A text that Kubernetes, which fills in $(NAME), leaves as it is."""
    return _EXPANDED.sub("$$", text)
