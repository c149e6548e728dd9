"""The config, `starburst.yaml`.

Commands that only list find their home in this package and read no config, so the models, which need pydantic
and the reader of manifests, are imported at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starburst.app.config.config import Config, load_config, parse_config, trust_problem

__all__ = ["Config", "load_config", "parse_config", "trust_problem"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("starburst.app.config.config"), name)
