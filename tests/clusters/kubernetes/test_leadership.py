"""Two Starbursts on one cluster: one leads, the other stands by; a former leader writes nothing."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from starburst.clusters.kubernetes.leadership import LeaseOptions
from starburst.kube import names
from starburst.kube.errors import LeaseLostError
from starburst.kube.resources import JOBS, LEASES
from tests.clusters.kubernetes.scene import FakeDesk, Scene, a_job, play, staged
from tests.clusters.kubernetes.world import World, run

DURATION_S = 15.0


class Rival(Scene):
    """A Starburst with a home and a store of its own, on the world of another scene."""

    def __init__(self, scene: Scene, logs: Path, name: str, *, required: bool = False) -> None:
        self.name, self.stood_by, self._required = name, list[str](), required
        super().__init__(scene.world, FakeDesk(), logs)

    def reborn(self) -> None:
        super().reborn()
        lease = LeaseOptions("ns", "starburst", self.name, self._required, self.stood_by.append)
        self.cluster._options = replace(self.cluster._options, controller=self.name, lease=lease)
        self.cluster._registry._controller = self.name

    async def ended(self) -> BaseException | None:
        """What its watch ended with."""
        assert self._watching is not None
        with suppress(BaseException):
            await self._watching
        return None if self._watching.cancelled() else self._watching.exception()


def holder(world: World) -> str:
    """Of the Lease."""
    found = world.all(LEASES)
    return found[0]["spec"]["holderIdentity"] if found else ""


def test_the_second_stands_by_and_takes_over_what_comes_when_the_first_is_gone(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        first, second = (Rival(scene, tmp_path, name) for name in ("a", "b"))
        await first.watch()
        second.start_watching()
        scene.world.add(JOBS, a_job("early"))
        await first.until(lambda: first.desk.submissions)
        await scene.pass_time(60)
        assert (second.synced, second.desk.submissions) == ([], {}), "it places and takes in nothing"
        assert (second.stood_by, holder(scene.world)) == (["a"], "a")
        await first.die()
        scene.world.add(JOBS, a_job("late"))
        await second.until(lambda: second.desk.submissions, 5.0)
        assert second.stood_by == ["a", ""]
        labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in scene.world.all(JOBS)}
        await second.until(lambda: names.JOB in scene.the(JOBS, "late")["metadata"]["labels"])
        assert labels["early"][names.CONTROLLER] == "a", "it is the first one's for ever"
        await second.die()

    play(tmp_path, act, watching=False)


def test_after_a_kill_it_is_taken_over_within_the_duration_and_by_the_same_home_at_once(
    tmp_path: Path,
) -> None:
    async def act(scene: Scene) -> None:
        scene.world.add(LEASES, a_lease("a"))
        again, other = Rival(scene, tmp_path, "a"), Rival(scene, tmp_path, "b")
        began = asyncio.get_running_loop().time()
        await again.watch()
        assert asyncio.get_running_loop().time() - began < 5.0
        scene.world.change(LEASES, "ns", "starburst", {"spec": {"holderIdentity": "killed"}})
        other.start_watching()
        await other.until(lambda: other.stood_by)
        await other.until(lambda: other.synced, DURATION_S + 5.0)
        await other.die()
        assert isinstance(await again.ended(), LeaseLostError)

    play(tmp_path, act, watching=False)


def a_lease(whose: str) -> dict[str, object]:
    """As a process left it that was killed."""
    spec = {"holderIdentity": whose, "leaseDurationSeconds": int(DURATION_S), "leaseTransitions": 0}
    return {"metadata": {"namespace": "ns", "name": "starburst"}, "spec": spec}


def test_one_that_cannot_renew_writes_nothing_and_goes_on_when_it_can(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        mine = Rival(scene, tmp_path, "a")
        await mine.watch()
        scene.world.fail("PUT /apis/coordination", status=500, times=10**6)
        await scene.pass_time(30)
        before = len(scene.world.asked)
        scene.world.add(JOBS, a_job())
        await scene.pass_time(30)
        allowed = ("/apis/coordination", "/apis/authorization")
        calls = [call for call in scene.world.asked[before:] if call.method != "GET"]
        written = [call.path for call in calls if not call.path.startswith(allowed)]
        assert written == [], "another one may lead by now"
        scene.world.heal()
        await mine.until(lambda: names.JOB in scene.the(JOBS, "train")["metadata"]["labels"])
        assert len(mine.desk.submissions) == 1
        await mine.die()

    play(tmp_path, act, watching=False)


def test_one_that_was_taken_over_meanwhile_ends(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        mine = Rival(scene, tmp_path, "a")
        await mine.watch()
        scene.world.change(LEASES, "ns", "starburst", {"spec": {"holderIdentity": "b"}})
        error = await mine.ended()
        assert isinstance(error, LeaseLostError)
        assert "b has taken over the Lease ns/starburst" in str(error)
        assert mine.stood_by[-2:] == ["b", ""]
        await mine.cluster._election.cancel()

    play(tmp_path, act, watching=False)


@pytest.mark.parametrize("required", [False, True])
def test_without_the_rights_it_goes_on_alone_unless_a_lease_is_asked_for(
    tmp_path: Path, required: bool
) -> None:
    async def main() -> None:
        async with staged(tmp_path) as scene:
            scene.world.allows = lambda asked: asked.get("resource") != "leases"
            mine = Rival(scene, tmp_path, "a", required=required)
            mine.start_watching()
            if required:
                assert "it may not get, create, update the Lease" in str(await mine.ended())
            else:
                await mine.until(lambda: mine.synced)
                await mine.die()

    run(main())
