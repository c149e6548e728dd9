"""Buckets: the task that we launch mounts them as SkyPilot does; and what is uploaded is in the bucket.

The bucket is one of the laboratory's S3 (moto). Its machines cannot install what mounts buckets, so a real
rclone mounts one here, with SkyPilot's options, where this host has rclone and FUSE.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest

from starburst.clouds.sky.access.ports import BUCKET, LaunchSpec
from starburst.clouds.sky.access.sdk import load, task_of
from starburst.clouds.sky.agent.containers import uploads
from starburst.clouds.sky.runs.storage import all_mounts, place
from translator.carried import Bucket

pytestmark = [pytest.mark.sky, pytest.mark.filterwarnings("ignore")]

MODES = ("MOUNT", "COPY", "MOUNT_CACHED")
SIZE = 24 << 20
#: Wall seconds until rclone has certainly said how far it is.
UPLOAD_S = 120.0


@pytest.fixture
def bucket() -> Iterator[str]:
    """The name of a bucket with one file."""
    name, s3 = f"starburst-{uuid4().hex[:12]}", boto3.client("s3")
    s3.create_bucket(Bucket=name)
    s3.put_object(Bucket=name, Key="data/first", Body=b"1")
    yield name
    for found in s3.list_objects_v2(Bucket=name).get("Contents", ()):
        s3.delete_object(Bucket=name, Key=found["Key"])
    s3.delete_bucket(Bucket=name)


def launched(bucket: str, *modes: str) -> tuple[Any, dict[str, str]]:
    """SkyPilot's task of a launch with this bucket for checkpoints and in these modes; paths by mode."""
    sky, _sdk = load()
    stores = {mode: Bucket(f"s3://{bucket}", mode) for mode in modes}
    resources = ("one", "aws/us-east-1", "c7i.xlarge", False, (), 5)
    spec = LaunchSpec(*resources, bucket=f"s3://{bucket}", mounts=all_mounts(stores))
    task = sky.Task.from_yaml_config(task_of(spec))
    task.sync_storage_mounts()  # as its API server does in a launch: it looks for each bucket
    return task, {mode: place(store) for mode, store in stores.items()}


def test_a_machine_is_rented_with_every_bucket_mounted_in_its_mode(bucket: str) -> None:
    task, paths = launched(bucket, *MODES)
    mounts = {path: storage.mode.value for path, storage in task.storage_mounts.items()}
    assert mounts == {BUCKET: "MOUNT", **{path: mode for mode, path in paths.items()}}
    assert task.file_mounts == {paths["COPY"]: f"s3://{bucket}"}  # SkyPilot downloads it
    (store,) = task.storage_mounts[paths["MOUNT_CACHED"]].stores.values()
    assert "rclone mount" in store.mount_cached_command(paths["MOUNT_CACHED"])
    assert "goofys" in store.mount_command(BUCKET)


def test_what_is_said_to_be_uploaded_is_in_the_bucket(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (shutil.which("rclone") and shutil.which("fusermount3") and Path("/dev/fuse").exists()):
        pytest.skip("mounting a bucket needs rclone, fuse3 and /dev/fuse")
    monkeypatch.setattr(uploads, "LOGS", str(tmp_path / "logs"))
    there = tmp_path / "mounted"
    there.mkdir()
    with mounted(bucket, there, tmp_path):
        assert (there / "data" / "first").read_text() == "1"
        body = os.urandom(1 << 20) * (SIZE >> 20)
        (there / "checkpoint").write_bytes(body)
        assert uploads.uploads({"wait_s": 0.0})["left"], "it cannot be known yet"
        until = time.monotonic() + UPLOAD_S
        while left := uploads.uploads({"wait_s": 5.0})["left"]:
            assert time.monotonic() < until, left
        found = boto3.client("s3").get_object(Bucket=bucket, Key="checkpoint")
        assert found["Body"].read() == body


@contextmanager
def mounted(bucket: str, there: Path, root: Path) -> Iterator[None]:
    """A bucket mounted by rclone with the options that SkyPilot gives it; its log is in `logs`."""
    task, paths = launched(bucket, "MOUNT_CACHED")
    (store,) = task.storage_mounts[paths["MOUNT_CACHED"]].stores.values()
    command = store.mount_cached_command(str(there))
    options = shlex.split(command[command.index("rclone mount ") :].partition(" > ")[0])[4:]
    (root / "logs").mkdir()
    ours = {"--log-file": str(root / "logs" / "mount.log"), "--cache-dir": str(root / "cache")}
    words = [ours.get(before, word) for before, word in zip(["", *options], options, strict=False)]
    begin = words.index("--daemon")
    del words[begin : begin + 3]  # with --daemon-wait 10
    remote = f":s3,provider=Other,env_auth,endpoint='{os.environ['AWS_ENDPOINT_URL']}':{bucket}"
    env = {key: value for key, value in os.environ.items() if key != "AWS_CA_BUNDLE"}  # it takes no bundle
    rclone = subprocess.Popen(["rclone", "mount", remote, str(there), *words], env=env)
    try:
        until = time.monotonic() + UPLOAD_S
        while not os.path.ismount(there):
            assert rclone.poll() is None, words
            assert time.monotonic() < until, words
            time.sleep(0.2)
        yield
    finally:
        subprocess.run(["fusermount3", "-uz", there], check=False)
        rclone.wait(60)
