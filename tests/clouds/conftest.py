"""A root that outlives no test."""

from __future__ import annotations

from tests.runs.conftest import root

__all__ = ["root"]
