"""What a job that is no manifest is to have, as its user writes it on a command line or in Python."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from starburst.app.errors import UserError
from translator.duration import seconds
from translator.kinds.gpu_request import GpuRequest
from translator.kinds.overrides import Overrides
from translator.quantity import quantity

V = TypeVar("V")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class CommandOptions:
    """The options as texts; "" and None are unsaid."""

    name: str = ""
    #: A number of GPUs of each task, a type, or both: "A100:2".
    gpus: str = ""
    #: Of each task, as Kubernetes quantities.
    cpus: str = ""
    memory: str = ""
    image: str = ""
    #: NAME=VALUE, or NAME for the value it has here.
    env: list[str] | None = None
    nodes: int | None = None
    ray: bool = False
    array: str = ""
    #: Durations: "90s", "12h".
    time: str = ""
    estimate: str = ""
    max_wait: str = ""
    #: Jobs that must have succeeded.
    after: list[str] | None = None
    queue: str = ""
    cloud: str = ""
    priority: int | None = None
    retries: int | None = None
    checkpoint: bool = False

    def spelled(self, option: str) -> str:
        """How the user writes an option."""
        return option

    def overrides(self, arguments: tuple[str, ...] = ()) -> Overrides:
        """The options as values.

        Raises:
            UserError: one of them is not valid.
        """
        limit_s = None if not self.time else self._read("time", self.time, _longer_than_none)
        for option, text in (("cpus", self.cpus), ("memory", self.memory)):
            if text:
                self._read(option, text, quantity)
        return Overrides(
            name=self.name,
            gpus=self._read("gpus", self.gpus, GpuRequest.parse) if self.gpus else None,
            cpus=self.cpus,
            memory=self.memory,
            image=self.image,
            tasks=self.nodes,
            array=self.array,
            time_limit_s=None if limit_s is None else max(1, round(limit_s)),
            env=dict(self._variable(text) for text in self.env or ()),
            hints=self._hints(),
            arguments=arguments,
        )

    def _hints(self) -> dict[str, str]:
        hints = {
            "runtime-estimate": self.estimate,
            "max-wait": self.max_wait,
            "after-ok": ",".join(self.after or ()),
            "queue": self.queue,
            "cloud": self.cloud,
            "priority": "" if self.priority is None else str(self.priority),
            "retries": "" if self.retries is None else str(self.retries),
            "checkpoint": "true" if self.checkpoint else "",
        }
        return {key: value for key, value in hints.items() if value}

    def _read(self, option: str, text: str, read: Callable[[str], V]) -> V:
        try:
            return read(text)
        except ValueError as bad:
            raise UserError(f"{self.spelled(option)}: {text!r}: {bad}") from None

    def _variable(self, text: str) -> tuple[str, str]:
        name, equals, value = text.partition("=")
        option = self.spelled("env")
        if not _VARIABLE.fullmatch(name):
            raise UserError(f"{option}: {text!r}: write NAME=VALUE, or NAME for the value that it has here")
        if not equals and name not in os.environ:
            raise UserError(f"{option}: {text!r}: is not set here; write {name}=VALUE")
        return name, value if equals else os.environ[name]


def _longer_than_none(text: str) -> float:
    if (limit_s := seconds(text)) <= 0:
        raise ValueError("a time limit must be longer than 0")
    return limit_s
