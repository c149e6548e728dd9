"""Volumes of jobs on machines: every machine has all that is mapped, a container sees its own part (3 s)."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.access.ports import LaunchSpec
from starburst.clouds.sky.access.sdk import task_of
from starburst.clouds.sky.agent.containers.options import TaskRefusedError, bind
from starburst.clouds.sky.runs.storage import all_mounts, place
from starburst.core.model.events import InstanceReady, RunEnd, RunEnded
from starburst.runs.ports import Run
from tests.app.virtual import run
from tests.clouds.sky.container_task import ContainerTask
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import OFFER, Life, run_of
from translator.carried import Bucket, SkyVolume

SETS, COPIED, HOMES = Bucket("s3://lab/sets"), Bucket("s3://lab/sets", "COPY"), SkyVolume("homes")
STORES = {"pvc/sets": SETS, "hostPath:/sets": SETS, "pvc/homes": HOMES}


# --- what a machine is rented with ------------------------------------------------------------------------


def test_a_store_has_a_place_of_its_own_which_tells_its_mode_too() -> None:
    places = {place(store) for store in (SETS, COPIED, HOMES, SkyVolume("home"), Bucket("s3://lab"))}
    assert len(places) == 5
    assert all(where.startswith("~/starburst-volumes/") for where in places)
    assert place(SETS) == place(Bucket("s3://lab/sets")) == "~/starburst-volumes/5c465846dab1"


def test_skypilot_is_asked_for_a_machine_with_all_of_them() -> None:
    machine = LaunchSpec(
        "sb-1", "aws/us-east-1", "p3.2xlarge", True, (("a", "b"),), 5, "s3://mine", all_mounts(STORES)
    )
    assert task_of(machine) == {
        "resources": {
            "infra": "aws/us-east-1",
            "instance_type": "p3.2xlarge",
            "use_spot": True,
            "labels": {"a": "b"},
            "autostop": {"idle_minutes": 5, "down": True},
        },
        "file_mounts": {
            "~/starburst-bucket": {"source": "s3://mine", "mode": "MOUNT"},
            place(SETS): {"source": "s3://lab/sets", "mode": "MOUNT"},
        },
        "volumes": {place(HOMES): "homes"},
    }
    assert task_of(replace(machine, bucket=None, mounts=())).keys() == {"resources"}


# --- from the manifest to the machine ---------------------------------------------------------------------


def mounting(*volumes: tuple[str, dict[str, Any], dict[str, Any]], runtime: str = "container") -> Run:
    """A run of a Pod with an image and these volumes, each with its source and its mount."""
    made = run_of("a", 5)
    spec = {
        "containers": [{"volumeMounts": [{"name": name, **mount} for name, _, mount in volumes]}],
        "volumes": [{"name": name, **source} for name, source, _ in volumes],
    }
    metadata = {"name": "a", "annotations": {"starburst.io/runtime": runtime}}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    workload = replace(
        made.workload, image="me/train", manifest=json.dumps(manifest), on_host=runtime == "host"
    )
    return replace(made, workload=workload)


CLAIM = {"persistentVolumeClaim": {"claimName": "sets"}}
IN = {"mountPath": "/in", "subPath": "train", "readOnly": True}


def story(tmp_path: Path, what: Run, **life: Any) -> tuple[FakeSky, RunEnded]:
    """A machine, and a run on it."""

    async def main() -> tuple[FakeSky, RunEnded]:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home", **life) as alive:
            await alive.cloud.launch("i-1", OFFER)
            await alive.heard(InstanceReady)
            await alive.cloud.start(what)
            return sky, await alive.heard(RunEnded)

    return run(main())


def test_the_machine_has_every_store_and_the_run_its_part_of_them(tmp_path: Path) -> None:
    made = mounting(("v", CLAIM, IN), ("scratch", {"emptyDir": {}}, {"mountPath": "/tmp/x"}))
    sky, end = story(tmp_path, made, stores=STORES)
    assert (end.end, end.exit_code) == (RunEnd.EXITED, 0)
    (rented,) = sky.clusters_known.values()
    assert dict(rented.mounts) == {place(SETS): SETS, place(HOMES): HOMES}
    assert sky.vms[0].tasks["a/1/0"].spec["docker"]["volumes"] == [
        {
            "path": "/in",
            "store": place(SETS),
            "told": "s3://lab/sets",
            "copied": False,
            "below": "train",
            "read_only": True,
            "files": False,
            "memory_mib": None,
        },
        {
            "path": "/tmp/x",
            "store": None,
            "told": "emptyDir",
            "copied": False,
            "below": "1",
            "read_only": False,
            "files": False,
            "memory_mib": None,
        },
    ]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (
            mounting(("v", {"persistentVolumeClaim": {"claimName": "gone"}}, IN)),
            "spec.volumes[0].persistentVolumeClaim: does not go along to a cloud; name what stands in for",
        ),
        (
            mounting(("v", CLAIM, IN), runtime="host"),
            "spec.containers[0].volumeMounts[0].mountPath: cannot be made for a job on the machine itself",
        ),
    ],
)
def test_a_run_whose_volume_cannot_be_had_is_refused_by_name(tmp_path: Path, made: Run, why: str) -> None:
    sky, end = story(tmp_path, made, stores=STORES)
    assert (end.end, why in end.message) == (RunEnd.REFUSED, True), end.message
    assert not sky.vms[0].tasks


# --- on the machine ---------------------------------------------------------------------------------------


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerTask:
    made = ContainerTask(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", made.engine.path)
    return made


def of_store(store: Bucket, **more: Any) -> dict[str, Any]:
    found = {"path": "/in", "store": place(store), "told": store.source, "below": "", "read_only": False}
    return {**found, "copied": store.mode == "COPY", **more}


OWN = {
    "path": "/scratch",
    "store": None,
    "told": "emptyDir",
    "copied": False,
    "below": "1/s",
    "read_only": False,
}


def store_dir(task: ContainerTask, store: Bucket) -> Path:
    """As if the store were there."""
    made = Path(place(store).replace("~", str(task.home)))
    made.mkdir(parents=True)
    return made


def test_a_container_is_shown_its_part_of_a_store_and_directories_of_its_own(task: ContainerTask) -> None:
    there = store_dir(task, COPIED)
    read_only = of_store(COPIED, below="train/a b", read_only=True)
    assert task.run(volumes=[read_only, of_store(COPIED, path="/all"), OWN]) == 0
    said = "|".join(task.engine.called("create"))
    assert f"|-v|{there}/train/a b:/in:ro|-v|{there}:/all|-v|{task.dir}/volumes/1/s:/scratch|" in said
    assert (there / "train/a b").is_dir(), "as the cluster makes a subPath"


def refusal(task: ContainerTask, volume: dict[str, Any]) -> str:
    task.run(volumes=[volume])
    assert not any(call[0] == "create" for call in task.engine.said)
    ended_by, message = task.verdict
    assert ended_by == "refusal"
    return message


def test_a_machine_that_was_rented_without_the_store_refuses_the_task_by_name(task: ContainerTask) -> None:
    assert refusal(task, of_store(SETS)) == (
        "s3://lab/sets is not mounted on this machine; "
        "a machine has what cloud.volumes named when it was rented"
    )


def test_a_directory_that_nothing_is_mounted_on_is_no_bucket(task: ContainerTask) -> None:
    store_dir(task, SETS)
    assert "s3://lab/sets is not mounted" in refusal(task, of_store(SETS))


def test_a_link_in_a_store_does_not_lead_out_of_it(task: ContainerTask) -> None:
    (store_dir(task, COPIED) / "way").symlink_to("/etc")
    assert refusal(task, of_store(COPIED, below="way/ssh")) == (
        "way/ssh leads out of s3://lab/sets; mend subPath"
    )


def test_a_bucket_is_shown_where_it_is_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    there = Path(place(SETS).replace("~", str(tmp_path)))
    there.mkdir(parents=True)
    monkeypatch.setattr(os.path, "ismount", lambda path: path == str(there))
    assert bind(str(tmp_path / "a/1/0"), of_store(SETS, below="x")) == ["-v", f"{there}/x:/in"]


def test_a_directory_of_its_own_is_for_whoever_the_image_runs_as(tmp_path: Path) -> None:
    bind(str(tmp_path), OWN)
    assert (tmp_path / "volumes/1/s").stat().st_mode & 0o777 == 0o777


def test_what_cannot_be_made_in_a_store_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    there = Path(place(COPIED).replace("~", str(tmp_path)))
    there.mkdir(parents=True)
    (there / "file").touch()
    with pytest.raises(TaskRefusedError, match="s3://lab/sets: file/x cannot be made: Not a directory"):
        bind(str(tmp_path), of_store(COPIED, below="file/x"))
    (option, mount) = bind(str(tmp_path), of_store(COPIED, below="file"))
    assert (option, mount) == ("-v", f"{there}/file:/in")
