"""Volumes of jobs on machines: every machine has all that is mapped, a container sees its own part (3 s)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.access.ports import LaunchSpec
from starburst.clouds.sky.access.sdk import task_of
from starburst.clouds.sky.agent.containers import pinned
from starburst.clouds.sky.agent.containers.engine import Engine
from starburst.clouds.sky.agent.containers.options import TaskRefusedError, source_of
from starburst.clouds.sky.agent.separation import RootRefusedError
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


class Mounts:
    """The kernel, whose mounts are links here."""

    def mount(self, what: bytes, where: bytes, *_more: object) -> int:
        os.unlink(where) if os.path.isfile(where) else os.rmdir(where)
        os.symlink(os.readlink(what), where)
        return 0

    def umount2(self, _where: bytes, _flags: int) -> int:
        return -1


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerTask:
    made = ContainerTask(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", made.engine.path)
    monkeypatch.setattr(pinned, "ask_root", lambda _verb, request: pinned.pin(request))
    monkeypatch.setattr(pinned, "_libc", Mounts())
    return made


def of_store(store: Bucket, **more: Any) -> dict[str, Any]:
    found = {"path": "/in", "store": place(store), "told": store.source, "below": "", "read_only": False}
    return {**found, "copied": store.mode == "COPY", **more}


#: Pins a directory twice, as a container that is made again does, swaps it for a link, and takes it down.
PINS = """
import os, sys
from starburst.clouds.sky.agent.containers import pinned, removal
task, volume = sys.argv[1] + "/task", sys.argv[1] + "/volume"
for _ in range(2):
    (place,) = pinned.pin({"path": task, "parts": [[volume, "sub"]]})["places"]
os.rename(volume + "/sub", volume + "/old")
os.symlink("/etc", volume + "/sub")
print(os.listdir(place))
removal._unpin(task)
print(os.listdir(place))
"""
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
    pinned_ = task.dir / "pinned/0"
    assert f"|-v|{pinned_}:/in:ro|-v|{there}:/all|-v|{task.dir}/volumes/1/s:/scratch|" in said
    assert (there / "train/a b").samefile(pinned_)
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


def test_a_directory_that_is_swapped_for_a_link_once_it_was_looked_at_is_not_shown(
    task: ContainerTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = store_dir(task, COPIED)
    (there / "sub").mkdir()

    def swapped(_verb: str, request: dict[str, Any]) -> dict[str, Any]:
        (there / "sub").rmdir()
        (there / "sub").symlink_to("/etc")
        return pinned.pin(request)

    monkeypatch.setattr(pinned, "ask_root", swapped)
    assert refusal(task, of_store(COPIED, below="sub")) == (
        "CreateContainerConfigError: a subPath cannot be mounted: sub: it was replaced by a link"
    )


def test_without_root_a_part_of_a_store_is_shown_by_an_engine_without_root_alone(
    task: ContainerTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> dict[str, Any]:
        raise RootRefusedError("its user cannot become root: sudo failed")

    monkeypatch.setattr(pinned, "ask_root", refused)
    there = store_dir(task, COPIED)
    assert "its user cannot become root" in refusal(task, of_store(COPIED, below="sub"))
    parts = [(str(there), str(there / "sub"))]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert pinned.pinned(str(task.dir), Engine("podman", ("podman",)), parts) == [str(there / "sub")]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts, as root alone may")
def test_what_is_mounted_stays_what_it_was_and_goes_with_its_container(tmp_path: Path) -> None:
    (tmp_path / "volume/sub").mkdir(parents=True)
    (tmp_path / "volume/sub/kept").write_text("theirs")
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", sys.executable, "-c", PINS, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("['kept']\n[]\n", "")
    assert (tmp_path / "volume/old/kept").read_text() == "theirs"


def test_a_bucket_is_shown_where_it_is_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    there = Path(place(SETS).replace("~", str(tmp_path)))
    there.mkdir(parents=True)
    monkeypatch.setattr(os.path, "ismount", lambda path: path == str(there))
    assert source_of(str(tmp_path / "a/1/0"), of_store(SETS, below="x")) == f"{there}/x"


def test_a_directory_of_its_own_is_for_whoever_the_image_runs_as(tmp_path: Path) -> None:
    source_of(str(tmp_path), OWN)
    assert (tmp_path / "volumes/1/s").stat().st_mode & 0o777 == 0o777


def test_what_cannot_be_made_in_a_store_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    there = Path(place(COPIED).replace("~", str(tmp_path)))
    there.mkdir(parents=True)
    (there / "file").touch()
    with pytest.raises(TaskRefusedError, match="s3://lab/sets: file/x cannot be made: Not a directory"):
        source_of(str(tmp_path), of_store(COPIED, below="file/x"))
    assert source_of(str(tmp_path), of_store(COPIED, below="file")) == f"{there}/file"
