"""Many objects at once, and another Starburst that is after the same ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from starburst.clusters.kubernetes.adoption.found_objects import FoundObjects
from starburst.clusters.kubernetes.runs.identity import adopted_id
from starburst.domain.job import Submission
from starburst.kube import names
from starburst.kube.resources import JOBS, PODS
from tests.clusters.kubernetes.kinds import KINDS, an_object
from tests.clusters.kubernetes.scene import ME, NS, Scene, a_job, a_pod, play

MANY = 24


def apply_many(scene: Scene) -> None:
    """Half Jobs, half Pods."""
    for number in range(MANY):
        if number % 2:
            scene.world.add(JOBS, a_job(f"n-{number}"))
        else:
            scene.world.add(PODS, a_pod(f"n-{number}"))


def adopted(scene: Scene) -> list[str]:
    """The jobs that objects are marked with."""
    items = [*scene.world.all(JOBS), *scene.world.all(PODS)]
    return [
        item["metadata"]["labels"][names.JOB] for item in items if names.JOB in item["metadata"]["labels"]
    ]


def test_many_are_read_no_second_time_and_share_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(scene: Scene) -> None:
        groups: list[int] = []
        submit = scene.desk.submit

        def counting(submissions: Sequence[Submission]) -> Mapping[str, str]:
            groups.append(len(submissions))
            return submit(submissions)

        monkeypatch.setattr(scene.desk, "submit", counting)
        scene.world.controller = False
        apply_many(scene)
        await scene.until(lambda: len(adopted(scene)) == MANY)
        assert sorted(adopted(scene)) == sorted(scene.desk.submissions)
        assert sum(groups) == MANY, "each was handed in once"
        assert len(groups) <= MANY / 4
        reads = [call for call in scene.world.asked if call.method == "GET" and "/n-" in call.path]
        assert reads == []

    play(tmp_path, act)


def test_what_is_too_much_to_keep_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FoundObjects.__init__, "__defaults__", (1,))

    async def act(scene: Scene) -> None:
        apply_many(scene)
        await scene.until(lambda: len(adopted(scene)) == MANY)
        assert len(scene.desk.submissions) == MANY

    play(tmp_path, act)


@pytest.mark.parametrize("call", [0, 7, 20])
def test_a_crash_in_the_middle_of_many_leaves_one_job_each(tmp_path: Path, call: int) -> None:
    """From one of the writes on, none comes through; then the process dies."""

    async def act(scene: Scene) -> None:
        apply_many(scene)
        await scene.until(lambda: len(adopted(scene)) >= call)
        scene.world.fail("PATCH", times=10**6, done=bool(call % 2))
        await scene.pass_time(1)
        await scene.die()
        scene.world.heal()
        await scene.watch()
        await scene.until(lambda: len(adopted(scene)) == MANY)
        assert sorted(adopted(scene)) == sorted(scene.desk.submissions)

    play(tmp_path, act)


@KINDS
def test_of_two_starbursts_the_one_that_marks_later_gives_the_job_up(tmp_path: Path, kind: str) -> None:
    async def act(scene: Scene) -> None:
        item, resource = an_object(kind)
        theirs = {names.JOB: "their-job", names.CONTROLLER: "store-2"}
        submit = scene.desk.submit

        def slowly(submissions: Sequence[Submission]) -> Mapping[str, str]:
            """Between the reading and the marking, the other one marks it."""
            marks = {"metadata": {"labels": theirs, "annotations": {names.ADOPTED: "true"}}}
            scene.world.change(resource, NS, "train", marks)
            return submit(submissions)

        scene.desk.submit = slowly  # type: ignore[method-assign]
        there = scene.world.add(resource, item)
        mine = adopted_id("train", there["metadata"]["uid"])
        await scene.until(lambda: mine in scene.cancels)
        scene.take_up(mine)
        await scene.start(mine, "n0")
        scene.desk.records[mine].phase = scene.desk.records[mine].phase.CANCELLED
        scene.told(scene.desk.records[mine])
        await scene.pass_time(20)
        labels = scene.the(resource, "train")["metadata"]["labels"]
        assert (labels[names.CONTROLLER], labels[names.JOB]) == ("store-2", "their-job")
        assert not [
            call
            for call in scene.world.asked
            if call.method == "PATCH" and ME not in str(call.body) and "/train" in call.path
        ], "nothing is written to an object of theirs"
        assert scene.world.ran == []

    play(tmp_path, act)
