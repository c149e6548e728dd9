"""Buckets: the task that we launch mounts them as SkyPilot does; and what is uploaded is in the bucket.

The bucket is one of the laboratory's S3 (moto). Debian's rclone mounts it here, with SkyPilot's options.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
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
from starburst.clouds.sky.agent.containers.confirm import confirm
from starburst.clouds.sky.agent.task_account import why_not_written
from starburst.clouds.sky.runs.storage import all_mounts, place
from tests.debian import RCLONE, require
from tests.kube.lab import skip
from translator.carried import Bucket

pytestmark = [pytest.mark.sky, pytest.mark.filterwarnings("ignore")]

MODES = ("MOUNT", "COPY", "MOUNT_CACHED")
SIZE = 24 << 20
HALF = b"half" * 4096
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


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """Where a bucket can be mounted."""
    require(*RCLONE)
    if not Path("/dev/fuse").exists():
        skip("mounting a bucket needs /dev/fuse")
    made = tmp_path / "mounted"
    made.mkdir()
    return made


def test_what_is_said_to_be_uploaded_is_in_the_bucket(
    bucket: str, there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "LOGS", str(tmp_path / "logs"))
    with cached(bucket, there, tmp_path):
        assert (there / "data" / "first").read_text() == "1"
        body = os.urandom(1 << 20) * (SIZE >> 20)
        (there / "checkpoint").write_bytes(body)
        assert uploads.uploads({"wait_s": 0.0})["left"], "it cannot be known yet"
        until = time.monotonic() + UPLOAD_S
        while left := uploads.uploads({"wait_s": 5.0})["left"]:
            assert time.monotonic() < until, left
        assert content(bucket, "checkpoint") == body


def test_a_checkpoint_is_confirmed_if_it_is_in_the_bucket_and_only_then(bucket: str, there: Path) -> None:
    where = there / "checkpoints" / "job"
    with uncached(bucket, there):
        where.mkdir(parents=True)
        assert why_not_written(str(where), os.getuid()) == "", "as the agent tries before a job starts"
        body = os.urandom(SIZE)
        (where / "model").write_bytes(body)
        killed_while_it_writes(where / "half")
        assert confirmed(there, where) == {"left": "", "busy": True}
        assert content(bucket, "checkpoints/job/model") == body
        assert content(bucket, "checkpoints/job/half") == HALF
        boto3.client("s3").delete_object(Bucket=bucket, Key="checkpoints/job/model")
        assert confirmed(there, where) == {"left": "checkpoints/job/model: Input/output error", "busy": False}
        (where / "model").write_bytes(body)
        assert confirmed(there, where)["left"] == ""
        found = boto3.client("s3").list_objects_v2(Bucket=bucket, Prefix="checkpoints/")["Contents"]
        assert [one["Key"].rpartition("/")[2] for one in found] == ["half", "model"], "no trial file is left"


def test_a_mount_that_hangs_or_died_confirms_nothing(bucket: str, there: Path) -> None:
    where = there / "checkpoints" / "job"
    with uncached(bucket, there) as rclone:
        where.mkdir(parents=True)
        (where / "model").write_bytes(HALF)
        rclone.send_signal(signal.SIGSTOP)
        assert confirmed(there, where, 2.0) == {"left": "the bucket has not answered for 2 s", "busy": False}
        rclone.send_signal(signal.SIGCONT)
        assert confirmed(there, where)["left"] == ""
        rclone.kill()
        rclone.wait(60)
        assert confirmed(there, where) == {"left": "the bucket is not mounted any more", "busy": False}


def confirmed(there: Path, where: Path, wait_s: float = 60.0) -> dict[str, Any]:
    return confirm({"bucket": str(there), "checkpoints": str(where), "wait_s": wait_s})


def content(bucket: str, key: str) -> bytes:
    body: bytes = boto3.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    return body


def killed_while_it_writes(path: Path) -> None:
    """A process that wrote `HALF` and has not closed the file when it is killed."""
    script = f"file = open({str(path)!r}, 'wb', 0); file.write({HALF!r}); print(flush=True); input()"
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        writer.kill()


@contextmanager
def cached(bucket: str, there: Path, root: Path) -> Iterator[None]:
    """A bucket mounted as MOUNT_CACHED, by the options that SkyPilot gives rclone; its log is in `logs`."""
    task, paths = launched(bucket, "MOUNT_CACHED")
    (store,) = task.storage_mounts[paths["MOUNT_CACHED"]].stores.values()
    options = options_of(store.mount_cached_command(str(there)), " > ")
    (root / "logs").mkdir()
    ours = {"--log-file": str(root / "logs" / "mount.log"), "--cache-dir": str(root / "cache")}
    words = [ours.get(before, word) for before, word in zip(["", *options], options, strict=False)]
    begin = words.index("--daemon")
    del words[begin : begin + 3]  # with --daemon-wait 10
    with mounted(bucket, there, words):
        yield


@contextmanager
def uncached(bucket: str, there: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A bucket mounted as MOUNT by rclone, as SkyPilot does it on ARM; else by goofys, which Debian lacks."""
    task, _paths = launched(bucket)
    (store,) = task.storage_mounts[BUCKET].stores.values()
    words = options_of(store.mount_command(str(there)), "; else ")
    words.remove("--daemon")
    # What is sent in parts is of version "null" in moto, which it then does not find.
    with mounted(bucket, there, [*words, "--streaming-upload-cutoff", "64M"]) as rclone:
        yield rclone


def options_of(command: str, end: str) -> list[str]:
    """The options after what is mounted where, up to the end of the call of rclone."""
    return shlex.split(command[command.index("rclone mount ") :].partition(end)[0])[4:]


@contextmanager
def mounted(bucket: str, there: Path, words: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A bucket mounted by rclone with these options."""
    remote = f":s3,provider=Other,env_auth,endpoint='{os.environ['AWS_ENDPOINT_URL']}':{bucket}"
    env = {key: value for key, value in os.environ.items() if key != "AWS_CA_BUNDLE"}  # it takes no bundle
    rclone = subprocess.Popen(["rclone", "mount", remote, str(there), *words], env=env)
    try:
        until = time.monotonic() + UPLOAD_S
        while not os.path.ismount(there):
            assert rclone.poll() is None, words
            assert time.monotonic() < until, words
            time.sleep(0.2)
        yield rclone
    finally:
        subprocess.run(["fusermount3", "-uz", there], check=False)
        rclone.wait(60)
