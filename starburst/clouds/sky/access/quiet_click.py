"""Keeps what SkyPilot's SDK says to a person at a terminal out of the scheduler's output."""

from __future__ import annotations

from typing import Any


def hush(sdk: Any) -> None:
    """Have a launch not print the cluster's name amid the log. May be repeated."""
    if not isinstance(sdk.click, _QuietClick):
        sdk.click = _QuietClick(sdk.click)


class _QuietClick:
    """The module `click` as the SDK has it, without styled output."""

    def __init__(self, click: Any) -> None:
        self._click = click

    def __getattr__(self, name: str) -> Any:
        return getattr(self._click, name)

    def secho(self, *_words: Any, **_style: Any) -> None:
        """Print nothing."""
