"""Plain scalars of a SkyPilot task, where they are other than those of a manifest."""

from __future__ import annotations

import re

from yaml import ScalarNode

from translator.manifests.scalars import TAG, ScalarLoader

_EXPONENT = re.compile(r"[-+]?[0-9._]+[eE][-+]?[0-9]+")
#: PyYAML, with which SkyPilot reads tasks, knows a number with an exponent by its dot and its sign.
_NUMBER = re.compile(r"[-+]?[0-9_]*\.[0-9_]*[eE][-+][0-9]+")


class TaskLoader(ScalarLoader):
    """A loader to which 1e-4, and a commit such as 1234e56, are text, as to SkyPilot."""

    def resolve(self, kind: type[object], value: str, implicit: tuple[bool, bool]) -> str:
        """The tag of a node."""
        if kind is ScalarNode and implicit[0] and _EXPONENT.fullmatch(value) and not _NUMBER.fullmatch(value):
            return f"{TAG}str"
        return super().resolve(kind, value, implicit)
