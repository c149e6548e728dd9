"""A server that is not up yet when Starburst starts is asked again, with pauses that grow."""

from __future__ import annotations

from pathlib import Path

import pytest

from starburst.clusters.kubernetes.cluster import LONGEST_PAUSE_S
from starburst.kube.api import TRIES
from tests.clusters.kubernetes.scene import Scene, play

DOWN_S = 1500.0


@pytest.mark.parametrize("status", [0, 503], ids=["no answer", "not ready"])
def test_a_server_that_comes_up_after_a_long_time_is_reached_within_the_longest_pause(
    tmp_path: Path, status: int
) -> None:
    async def act(scene: Scene) -> None:
        scene.world.fail("GET /version", status=status, times=10**6)
        scene.start_watching()
        await scene.pass_time(DOWN_S)
        asked = sum(call.path == "/version" for call in scene.world.asked)
        assert asked / TRIES < 2.5 * DOWN_S / LONGEST_PAUSE_S
        assert not scene.synced
        scene.world.heal()
        await scene.until(lambda: scene.synced, limit_s=LONGEST_PAUSE_S + 5.0)

    play(tmp_path, act, watching=False)
