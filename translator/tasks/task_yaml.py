"""Serializes SkyPilot tasks as YAML, with `run` as a literal block."""

from __future__ import annotations

from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """A YAML dumper with literal blocks and without aliases."""

    def ignore_aliases(self, data: object) -> bool:
        """Write repeated values in full."""
        return True


class _Block(str):
    """A text that is written as a literal block."""

    __slots__ = ()


def _block(dumper: _Dumper, text: _Block) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")


_Dumper.add_representer(_Block, _block)


def as_yaml(task: dict[str, Any]) -> str:
    """A task as a YAML document without the `---` marker."""
    shown = {key: _Block(value) if key == "run" else value for key, value in task.items()}
    text: str = yaml.dump(shown, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)
    return text
