"""The whole of it, as a user meets it: a real scheduler, real processes, a clock that runs fast."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from starburst import Client, LocalClient
from starburst.client import JobFailedError
from tests.cli.conftest import Cli
from tests.cli.manifests import manifest
from tests.runs.harness import ending_what_is_left

pytestmark = pytest.mark.processes

PATIENCE_S = 20.0
#: As some service managers leave it.
NO_SIGCHLD = ["env", "--ignore-signal=CHLD"]
CONFIG = """
policy: {waiting: constant, factor: 0.5, returns: never}
cluster: {nodes: [{name: node, gpus: 2}]}
cloud: {offers: [{name: small, gpus: 2, cpus: 8, memory_gib: 61, usd_per_hour: 3.06, boot: 10s, setup: 20s}]}
clock: {speed: 100}
debug: {validate: true}
"""


def starburst(*words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """One command to its end, in a process of its own."""
    command = [sys.executable, "-m", "starburst", *map(str, words)]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


Told = Callable[..., str]


@pytest.fixture
def told(cli: Cli) -> Told:
    """What a command that goes well prints; run in this process, to be quick."""

    def told(*words: object, stdin: str = "") -> str:
        answer = cli(*words, stdin=stdin.encode())
        assert answer.code == 0, answer.err
        return answer.out

    return told


def until(look: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Wait until something is so."""
    give_up = time.monotonic() + patience_s
    while not look():
        assert time.monotonic() < give_up, "it never came to be"
        time.sleep(0.05)


@pytest.fixture
def up(home: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """`starburst up`, ready for work; what it leaves behind is ended."""
    (tmp_path / "starburst.yaml").write_text(CONFIG)
    log = tmp_path / "up.log"
    command = [sys.executable, "-m", "starburst", "up", "--config", str(tmp_path / "starburst.yaml")]
    with ending_what_is_left(home), log.open("w") as err:
        env = {**os.environ, "COLUMNS": "80"}
        process = subprocess.Popen([*NO_SIGCHLD, *command], stderr=err, text=True, env=env)
        try:
            until(lambda: log.read_text().count('"synced"') == 2 or process.poll() is not None)
            yield process
        finally:
            process.kill()
            process.wait()


def test_a_day_with_starburst(up: subprocess.Popen[str], told: Told, tmp_path: Path) -> None:
    go = tmp_path / "go"
    hold = f"echo begun; while [ ! -e {go} ]; do sleep 0.05; done; echo done"

    # One job to its end, and one that fails.
    ended = starburst("submit", "-", "--wait", stdin=manifest("hello", "echo", "hi"))
    assert ended.returncode == 0
    assert ended.stdout.splitlines()[1].split(": ")[0].endswith("succeeded")
    assert "no starburst runs" not in ended.stderr
    assert told("logs", "hello") == "hi\n"
    ended = starburst("submit", "-", "--wait", "-o", "name", stdin=manifest("bad", "sh", "-c", "exit 3"))
    assert ended.returncode == 1
    assert ended.stdout.startswith("job/bad-")
    assert "its command ended with exit code 3" in ended.stderr

    # The cluster is full; the next job waits, is told how long, and leaves for the cloud.
    told("submit", "-", stdin=manifest("holder", "sh", "-c", hold, gpus=2, cloud="never"))
    until(lambda: "running" in told("status", "holder", "-o", "json"))
    foretold = told(
        "submit", "-", "--dry-run", stdin=manifest("guest", "true", gpus=2, runtime_estimate="1h")
    )
    assert "waits for 2 GPUs on the cluster until" in foretold
    assert "1st in line for 2 GPUs; would then cost about $3.06 on small" in foretold
    told("submit", "-", stdin=manifest("guest", "sh", "-c", hold, gpus=2, cloud="only"))
    until(lambda: "in the cloud on i-000001 (small)" in told("explain", "guest"))
    assert [row["phase"] for row in json.loads(told("instances", "-o", "json"))] == ["ready"]

    # A third one is cancelled while it waits.
    told("submit", "-", stdin=manifest("unwanted", "true", gpus=2, cloud="never"))
    until(lambda: "1st in line" in told("explain", "unwanted"))
    assert "is being cancelled" in told("cancel", "unwanted")
    until(lambda: "cancelled by its user" in told("explain", "unwanted"))

    # Its lines come while it runs, and following ends when it does.
    command = [sys.executable, "-m", "starburst", "logs", "holder", "-f"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "begun\n"
        go.touch()
        assert follower.stdout.read() == "done\n"
        assert follower.wait(PATIENCE_S) == 0

    # The machine is given back, the bill stands, the log tells it all.
    until(lambda: told("instances", "-o", "name") == "")
    (line,) = json.loads(told("cost", "--by", "job", "-o", "json"))
    assert line["job"].startswith("guest-")
    assert line["cost_usd"] > 0 == line["running_usd"]
    kinds = [row["decision"] for row in json.loads(told("events", "guest", "-o", "json"))]
    assert kinds == ["offloaded", "started", "succeeded"]
    assert "bill $" in told("events", "i-000001")

    # It answers over HTTP as well, and says where.
    (url,) = [
        row["url"]
        for row in map(json.loads, (tmp_path / "up.log").read_text().splitlines())
        if row["event"] == "http"
    ]
    assert told("--server", url, "events", "-o", "json") == told("events", "-o", "json")
    told("--server", url, "submit", "-", stdin=manifest("far", "echo", "hello"))
    until(lambda: "succeeded" in told("--server", url, "status", "far"))
    assert told("--server", url, "logs", "far", "-f") == "hello\n"

    # Python starts jobs as well: at the server and at the store.
    for client in (Client(url), LocalClient(poll_s=0.05)):
        with client:
            starts_jobs(client)

    # It stops when it is told to, and says so.
    up.send_signal(signal.SIGTERM)
    assert up.wait(PATIENCE_S) == 0
    last = json.loads((tmp_path / "up.log").read_text().splitlines()[-1])
    assert (last["event"], last["running"], last["machines"]) == ("down", 0, 0)
    assert "no starburst runs in" in starburst("status").stderr


def test_one_home_has_one_scheduler_and_a_job_outlives_it(
    up: subprocess.Popen[str], told: Told, home: Path, tmp_path: Path
) -> None:
    second = starburst("up")
    assert second.returncode == 2
    assert second.stderr == (
        f"error: {home}: another starburst runs here (pid {up.pid}); stop it, or set STARBURST_HOME\n"
    )
    go = tmp_path / "go"
    hold = f"while [ ! -e {go} ]; do sleep 0.05; done; echo done"
    told("submit", "-", stdin=manifest("holder", "sh", "-c", hold))
    until(lambda: "running" in told("status", "holder", "-o", "json"))
    up.send_signal(signal.SIGINT)
    assert up.wait(PATIENCE_S) == 0
    down = json.loads((tmp_path / "up.log").read_text().splitlines()[-1])
    assert (down["event"], down["running"]) == ("down", 1)
    go.touch()
    until(lambda: told("logs", "holder") == "done\n")


def test_a_scheduler_that_waits_for_its_database_ends_on_sigterm(home: Path, tmp_path: Path) -> None:
    log = tmp_path / "up.log"
    with log.open("w") as err:
        env = {**os.environ, "STARBURST_STORE": "postgresql://nobody@127.0.0.1:1/none"}
        command = [sys.executable, "-m", "starburst", "up", "--log-format", "json"]
        process = subprocess.Popen(command, stderr=err, text=True, env=env)
        try:
            until(lambda: '"waits"' in log.read_text() or process.poll() is not None)
            process.terminate()  # a process without a handler would end by it, the first of a container not
            assert process.wait(PATIENCE_S) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()


def starts_jobs(client: Client | LocalClient) -> None:
    """A function in an array, a command that is cancelled, and one whose log is followed."""
    jobs = client.run(square, array="1-2", cloud="never", gpus=1, workdir=None)
    assert jobs.result(PATIENCE_S) == [1, 4]
    job = client.run("sleep 100", cloud="never", gpus=1, workdir=None)
    job.cancel()
    assert job.wait(PATIENCE_S)["phase"] == "cancelled"
    with pytest.raises(JobFailedError, match="cancelled by its user"):
        job.result()
    followed = client.run("echo here", cloud="never", gpus=1, workdir=None)
    assert "".join(followed.logs(follow=True)) == "here\n"


def square() -> int:
    """Runs in a job of an array."""
    return int(os.environ["STARBURST_ARRAY_INDEX"]) ** 2
