"""Settings of the whole test suite."""

from __future__ import annotations

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
