"""Other people's machines on the same account: the reaper never lists, claims or ends one of them."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starburst.app.daemon.reaper import ReapRules
from starburst.clouds.sky.machines.naming import CONTROLLER, INTENT, OWNER, Naming
from starburst.core.model.events import SiteSynced
from tests.app.virtual import run
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.fake_vm import Vm
from tests.clouds.sky.life import OFFER, Life, play, ready, reaper_of

OURS = Naming("starburst", "c")
TAG = dict(OURS.intent("x", None))[CONTROLLER]


#: Ends whatever it may, at any age.
HARSH = ReapRules("c", after_s=0.0, others=True)


def launched_by_hand(sky: FakeSky, name: str, **labels: str) -> Vm:
    vm = sky.strange(name)
    sky.clusters_known[name] = replace(sky.clusters_known[name], labels=tuple(sorted(labels.items())))
    return vm


@pytest.mark.parametrize("name", ["debug", "i-000001", "i-1x", "h0123456789abcdef0123"])
def test_a_persons_cluster_with_a_name_like_ours_is_neither_listed_nor_ended(
    tmp_path: Path, name: str
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        vm = launched_by_hand(sky, f"sb-{TAG}-{name}")
        for _ in range(3):
            await reaper_of(life.cloud, "i-1", rules=HARSH).round()
            await asyncio.sleep(60)
        assert vm.ended_at is None
        assert [machine.id for machine in await life.cloud.owned()] == ["i-1"]

    play(tmp_path, story)


def test_it_is_let_be_also_while_skypilot_launches_it(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await life.heard(SiteSynced)
        name = f"sb-{TAG}-debug"
        vm = launched_by_hand(sky, name)
        request = sky.begin("sky.launch", name, asyncio.sleep(300))
        await reaper_of(life.cloud, rules=HARSH).round()
        await asyncio.sleep(60)
        assert vm.ended_at is None
        assert not sky.requests[request].done.cancelled()

    play(tmp_path, story)


def test_a_launch_of_ours_is_known_before_it_has_labels_also_after_a_restart(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await life.cloud.launch("i-1", OFFER)
        while not sky.clusters_known:
            await asyncio.sleep(0.5)
        (status,) = sky.statuses()
        assert not status.labels
        assert [machine.id for machine in await life.cloud.owned()] == ["i-1"]
        async with Life(sky, life.home) as second:
            assert [machine.id for machine in await second.cloud.owned()] == ["i-1"]

    play(tmp_path, story)


NAMES = st.one_of(
    st.from_regex(r"[a-z0-9]([a-z0-9-]{0,12}[a-z0-9])?", fullmatch=True).map(lambda end: f"sb-{TAG}-{end}"),
    st.from_regex(r"sb-[0-9a-f]{8}-[a-z0-9]{1,8}", fullmatch=True),
    st.from_regex(r"[a-z][a-z0-9-]{0,15}", fullmatch=True),
)
LABELS = st.dictionaries(
    st.sampled_from([OWNER, CONTROLLER, INTENT, "team"]),
    st.sampled_from(["starburst", TAG, "deadbeef", "i-1", ""]),
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(NAMES, LABELS, max_size=6))
def test_only_what_carries_our_label_is_ended_whatever_there_is(clusters: dict[str, dict[str, str]]) -> None:
    async def main(home: Path) -> None:
        sky = FakeSky(home / "sky")
        async with Life(sky, home / "home") as life:
            await ready(life)
            theirs = {
                name: launched_by_hand(sky, name, **labels)
                for name, labels in clusters.items()
                if name != OURS.cluster("i-1")
            }
            await reaper_of(life.cloud, "i-1", rules=HARSH).round()
            await asyncio.sleep(120)
            ended = {name for name, vm in theirs.items() if vm.ended_at is not None}
            marked = {name for name in theirs if clusters[name].get(CONTROLLER) == TAG}
            assert ended == {name for name in marked if name.startswith(f"sb-{TAG}-")}
            assert sky.alive(OURS.cluster("i-1")), "what is claimed stays"

    with tempfile.TemporaryDirectory() as home:
        run(main(Path(home)))
