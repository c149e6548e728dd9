"""The packers by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from starburst.policy.packing.plan import Packer

#: Name → module and class, imported on demand because some need large libraries.
PACKERS = {
    "none": "none:NoPacking",
    "stratus": "stratus:Stratus",
    "synergy": "synergy:Synergy",
    "owl": "owl:Owl",
    "optimal": "optimal:Optimal",
    "eva": "eva:Eva",
    "eva-rp": "eva:Eva",
    "eva-single": "eva:Eva",
    "eva-partial": "eva:Eva",
    "eva-full": "eva:Eva",
}
#: Settings of the variants of Eva (Eva, sections 6.4 and 6.6); all other packers use their defaults.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "eva-rp": {"interference": False},
    "eva-single": {"gangs": False},
    "eva-partial": {"mode": "partial"},
    "eva-full": {"mode": "full"},
}


def packer(name: str) -> Packer:
    """The packer of this name with its default settings.

    Raises:
        ValueError: no packer has this name.
    """
    if name not in PACKERS:
        raise ValueError(f"no packer is called {name!r}; there are {', '.join(PACKERS)}")
    module, factory = PACKERS[name].split(":")
    made: Packer = getattr(import_module(f"starburst.policy.packing.packers.{module}"), factory)(
        **SETTINGS.get(name, {})
    )
    return made
