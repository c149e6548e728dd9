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
from starburst.clouds.sky.agent.containers import TaskRefusedError, bind
from starburst.clouds.sky.runs.docker import container
from starburst.clouds.sky.runs.storage import all_mounts, place
from starburst.core.model.events import InstanceReady, RunEnd, RunEnded
from starburst.domain.job import Workload
from starburst.domain.resources import Resources
from starburst.runs.ports import Run
from tests.app.virtual import run
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import OFFER, Life, run_of
from tests.clouds.sky.test_agent import NAME, Machine, spec, text
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
        },
        {
            "path": "/tmp/x",
            "store": None,
            "told": "emptyDir",
            "copied": False,
            "below": "1",
            "read_only": False,
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
def machine(tmp_path: Path) -> Machine:
    """With a stand-in for docker that writes down how it was called."""
    made = Machine(tmp_path / "home")
    engine = made.home / "bin" / "docker"
    engine.parent.mkdir(exist_ok=True)
    engine.write_text('#!/bin/sh\nprintf "%s|" "$@" >>"$HOME/said"\n')
    engine.chmod(0o755)
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


def boxed(*volumes: dict[str, Any]) -> dict[str, Any]:
    made = container("sb-a-1-0", Workload(("train",), image="me/train"), Resources(), {})
    box = {"name": made["name"], "image": made["image"], "options": made["options"], "rest": made["rest"]}
    return spec(docker={**box, "env_file": made["env_file"], "env": made["env"], "volumes": list(volumes)})


def finished(machine: Machine, *volumes: dict[str, Any]) -> dict[str, Any]:
    machine.exchange(lease_s=100, specs={NAME: {**boxed(*volumes), "secrets": {"KEY": "s3cret"}}})
    machine.finish()
    return machine.exchange()


def store_dir(machine: Machine, store: Bucket) -> Path:
    """As if the store were there."""
    made = Path(place(store).replace("~", str(machine.home)))
    made.mkdir(parents=True)
    return made


def test_a_container_is_shown_its_part_of_a_store_and_directories_of_its_own(machine: Machine) -> None:
    there = store_dir(machine, COPIED)
    read_only = of_store(COPIED, below="train/a b", read_only=True)
    state = finished(machine, read_only, of_store(COPIED, path="/all"), OWN)
    assert state["exit"]["exit_code"] == 0, text(state)
    said = (machine.home / "said").read_text()
    assert said.startswith(
        f"run|--rm|--name|sb-a-1-0|--network|host|--env-file|{machine.dir}/env"
        f"|-v|{machine.home}/starburst/checkpoints/a:/starburst/checkpoints"
        f"|-v|{machine.dir}/report:/starburst/report"
        f"|-v|{there}/train/a b:/in:ro|-v|{there}:/all|-v|{machine.dir}/volumes/1/s:/scratch"
        "|-e|KEY|--entrypoint=train|--|me/train|"
    )
    assert (there / "train/a b").is_dir(), "as the cluster makes a subPath"
    assert not (machine.dir / "volumes").exists(), "what is its own goes with the attempt"


def test_a_machine_that_was_rented_without_the_store_refuses_the_task_by_name(machine: Machine) -> None:
    state = finished(machine, of_store(SETS))
    assert (state["over"], state["exit"]["ended_by"], state["started"]) == (True, "refusal", False)
    assert state["exit"]["message"] == (
        "s3://lab/sets is not mounted on this machine; "
        "a machine has what cloud.volumes named when it was rented"
    )
    assert not (machine.home / "said").exists()
    assert not (machine.dir / "secrets.json").exists()


def test_a_directory_that_nothing_is_mounted_on_is_no_bucket(machine: Machine) -> None:
    store_dir(machine, SETS)
    assert "s3://lab/sets is not mounted" in finished(machine, of_store(SETS))["exit"]["message"]


def test_a_link_in_a_store_does_not_lead_out_of_it(machine: Machine) -> None:
    (store_dir(machine, COPIED) / "way").symlink_to("/etc")
    state = finished(machine, of_store(COPIED, below="way/ssh"))
    assert state["exit"]["message"] == "way/ssh leads out of s3://lab/sets; mend subPath"


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
