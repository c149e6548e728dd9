"""Settings of the whole test suite."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

# Examples are drawn from the test itself, so a red run is red again; no deadline, as machines are shared.
settings.register_profile(
    "starburst",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("starburst")


REAL_SERVERS_S = 2400.0
"""Seconds that a test against real servers may take, with their start; one that hangs ends with its stack."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _needs_servers(item):
            item.add_marker(pytest.mark.timeout(REAL_SERVERS_S))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What collection has made lives till the end: later collections of garbage leave it out."""
    if not any(map(_needs_servers, session.items)):  # these wait more than they count
        gc.collect()
        gc.freeze()


def _needs_servers(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("kube", "sky"))


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """Commands set up the log of their process; no test inherits it, bound to a stream that is closed."""
    yield
    structlog.reset_defaults()
