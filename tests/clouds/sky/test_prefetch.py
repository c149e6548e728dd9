"""Images are pulled while machines come up, and machines tell which ones they have."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

from starburst.core.model.events import ImagesReported, InstanceReady, RunEnded
from starburst.runs.ports import Run
from tests.clouds.sky.fake import BOOT_S, FakeSky
from tests.clouds.sky.life import OFFER, Life, play, run_of
from translator.manifests.references import Reference
from translator.tasks.runtime_values import ReferencedData

TORCH = "registry.example/team/train:1"


def boxed(job: str = "a", manifest: object = None, **of_workload: object) -> Run:
    """A run with an image."""
    run = run_of(job, 60)
    text = None if manifest is None else json.dumps(manifest)
    return replace(run, workload=replace(run.workload, image=TORCH, manifest=text, **of_workload))


def test_an_image_is_there_when_its_machine_has_come_up(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await life.cloud.launch("i-1", OFFER)
        await life.cloud.prepare(boxed())
        await asyncio.sleep(BOOT_S / 2)
        assert sky.vms[0].images == {TORCH: 30.0}
        assert not life.of(InstanceReady)
        await life.heard(InstanceReady)
        assert (await life.heard(ImagesReported)).images == ((TORCH, 30.0),)
        await life.cloud.start(boxed())
        assert (await life.heard(RunEnded)).exit_code == 0
        assert len(life.of(ImagesReported)) == 1

    play(tmp_path, story)


def test_every_machine_of_a_gang_pulls(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await life.cloud.launch("i-1", OFFER.times(2))
        await life.cloud.prepare(boxed())
        await life.heard(InstanceReady)
        assert [list(vm.images) for vm in sky.vms] == [[TORCH], [TORCH]]

    play(tmp_path, story)


def test_what_cannot_be_pulled_ahead_keeps_no_machine_from_coming_up(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        sky.cloud_searches = False
        await life.cloud.launch("i-1", OFFER)
        await life.cloud.prepare(boxed())
        await life.heard(InstanceReady)
        assert not sky.vms[0].images
        await life.cloud.prepare(boxed())  # too late: its start pulls
        await asyncio.sleep(BOOT_S)
        assert not sky.vms[0].images

    play(tmp_path, story)


def test_jobs_on_the_host_and_images_that_are_never_pulled_are_left_out(tmp_path: Path) -> None:
    never = {"kind": "Pod", "spec": {"containers": [{"image": TORCH, "imagePullPolicy": "Never"}]}}

    async def story(life: Life, sky: FakeSky) -> None:
        await life.cloud.launch("i-1", OFFER)
        await life.cloud.prepare(boxed(on_host=True))
        await life.cloud.prepare(boxed(manifest=never))
        await life.cloud.prepare(run_of("b", 60))
        await life.heard(InstanceReady)
        assert not sky.vms[0].images

    play(tmp_path, story)


def test_logins_of_its_pull_secrets_go_along(tmp_path: Path) -> None:
    auths = {"auths": {"registry.example": {"username": "ada", "password": "word"}}}
    secret = Reference("Secret", "default", "hub")
    spec = {"containers": [{"image": TORCH}], "imagePullSecrets": [{"name": "hub"}]}
    pod = {"kind": "Pod", "metadata": {"namespace": "default"}, "spec": spec}

    async def story(life: Life, sky: FakeSky) -> None:
        await life.cloud.launch("i-1", OFFER)
        await life.cloud.prepare(boxed(manifest=pod))
        await life.heard(InstanceReady)
        login = {"registry": "registry.example", "username": "ada", "password": "word"}
        assert sky.vms[0].logins == {TORCH: [login]}

    async def source(_manifest: str) -> ReferencedData:
        return ReferencedData("default", {secret: {".dockerconfigjson": json.dumps(auths)}})

    play(tmp_path, story, source=source)
