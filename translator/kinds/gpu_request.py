"""GPUs as command lines write them: "2", "A100:2", "a100"."""

from __future__ import annotations

import re
from dataclasses import dataclass

from starburst.domain.gpu_types import gpu_type

MAX_GPUS = 1024
_REQUEST = re.compile(r"(?:(?P<type>[A-Za-z][\w.-]*)(?::(?P<of>\d{1,6}))?)|(?P<count>\d{1,6})")


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """A number of GPUs, and their type, a constraint as `Resources` have it; "" is any."""

    count: int = 0
    type: str = ""

    @classmethod
    def parse(cls, text: str) -> GpuRequest:
        """Read a count, a type, or both.

        Raises:
            ValueError: it is none of them.
        """
        found = _REQUEST.fullmatch(text.strip())
        if found is None:
            raise ValueError("write a number of GPUs, a type, or both, such as 2, A100 or A100:2")
        count = int(found["count"] or found["of"] or 1)
        kind = gpu_type(found["type"]) if found["type"] else ""
        if found["type"] and not kind:
            raise ValueError("names no model of a GPU; write one such as A100, A100-80GB or L4")
        if count > MAX_GPUS:
            raise ValueError(f"must be at most {MAX_GPUS} GPUs a task")
        return cls(count, kind)
