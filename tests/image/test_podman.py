"""Jobs with an image in a real podman, started by the agent as on a rented machine."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.runs.docker import container
from starburst.domain.job import Workload
from starburst.domain.resources import Resources
from tests.clouds.sky.agent_machine import Machine, spec, text
from tests.image.podman import IMAGE, Podman

pytestmark = [pytest.mark.image, pytest.mark.processes]

LINES = 200_000
#: Saves when it is told to end.
SAVING = "trap 'echo saving; exit 0' TERM; echo began; while :; do sleep 0.1; done"
HOSTILE = """
[ -e /root ] && echo "sees the machine"
for pid in /proc/[0-9]*; do
    grep -aq neighbours-[t]oken $pid/environ 2>/dev/null && echo "reads $pid"
done
kill -9 -1 2>/dev/null
echo over
"""


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """With the image in it."""
    made = Podman(tmp_path_factory.mktemp("podman"))
    made.make_image()
    yield made
    made.end()


@pytest.fixture
def machine(tmp_path: Path, podman: Podman) -> Machine:
    """One whose only engine is that podman."""
    made = Machine(tmp_path / "home")
    made.program("podman", podman.script)
    made.program("docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    return made


def begin(
    machine: Machine, task: str, script: str, *, image: str = IMAGE, memory: float = 1.0, **more: Any
) -> None:
    """Start a shell script in a container."""
    name = f"sb-{task.replace('/', '-')}"
    made = container(name, Workload(("sh", "-c", script), image=image), Resources.of(0, 1, memory), {})
    machine.exchange(lease_s=1000, specs={task: {**spec(docker=made), **more}}, look={})
    machine.start(task)


def end(machine: Machine, task: str) -> tuple[dict[str, Any], str]:
    """The exit of a task and its output."""
    machine.wait(task)
    state = machine.exchange(task, look={task: 0})
    return state["exit"], text(state)


def test_output_is_whole_and_the_exit_code_its_own(machine: Machine, podman: Podman) -> None:
    begin(machine, "talks/1/0", f'echo "$IMAGE_SAYS"; seq 1 {LINES}; exit 7')
    machine.wait("talks/1/0")
    log = (machine.home / "starburst" / "runs" / "talks" / "1" / "0" / "log").read_text()
    assert log == "hello\n" + "".join(f"{number}\n" for number in range(1, LINES + 1))
    assert end(machine, "talks/1/0")[0]["exit_code"] == 7
    assert podman.containers() == ""


def test_memory_is_limited_and_a_kill_from_outside_is_no_lack_of_it(machine: Machine, podman: Podman) -> None:
    begin(machine, "large/1/0", "tail /dev/zero", memory=0.0625)
    begin(machine, "killed/1/0", "echo began; sleep 600")
    await_word(machine, "killed/1/0", "began")
    podman.ask("kill", "-s", "KILL", "sb-killed-1-0")
    large, killed = end(machine, "large/1/0")[0], end(machine, "killed/1/0")[0]
    assert (large["exit_code"], killed["exit_code"]) == (137, 137)
    assert "OOMKilled" not in killed["message"]


def test_a_stop_leaves_time_to_save(machine: Machine, podman: Podman) -> None:
    begin(machine, "saves/1/0", SAVING)
    await_word(machine, "saves/1/0", "began")
    machine.exchange(stops={"saves/1/0": 30.0}, look={})
    exit_, said = end(machine, "saves/1/0")
    assert (exit_["ended_by"], said) == ("stop", "began\nsaving\n")
    assert podman.containers() == ""


def test_one_that_does_not_hear_is_killed_after_its_grace(machine: Machine, podman: Podman) -> None:
    begin(machine, "deaf/1/0", "trap '' TERM; echo began; while :; do sleep 0.1; done")
    await_word(machine, "deaf/1/0", "began")
    machine.exchange(stops={"deaf/1/0": 2.0}, look={})
    assert end(machine, "deaf/1/0")[0]["ended_by"] == "stop"
    assert podman.containers() == ""


def test_a_secret_is_a_variable_and_in_no_file(machine: Machine) -> None:
    begin(machine, "reads/1/0", 'echo "$TOKEN"', secrets={"TOKEN": "s3cret"}, logins=[])
    assert end(machine, "reads/1/0")[1] == "s3cret\n"
    left = [path for path in machine.home.rglob("*") if path.is_file() and path.name != "log"]
    assert not any(b"s3cret" in path.read_bytes() for path in left)


def test_a_job_reaches_nothing_of_its_neighbour(machine: Machine) -> None:
    begin(machine, "neighbour/1/0", "echo began; sleep 600", secrets={"TOKEN": "neighbours-token"}, logins=[])
    await_word(machine, "neighbour/1/0", "began")
    begin(machine, "hostile/1/0", HOSTILE)
    assert end(machine, "hostile/1/0")[1] == "over\n"
    assert machine.exchange("neighbour/1/0", look={"neighbour/1/0": 0})["over"] is False
    machine.exchange(stops={"neighbour/1/0": 0.0}, look={})
    assert end(machine, "neighbour/1/0")[0]["ended_by"] == "stop"


def test_of_a_task_whose_agent_is_killed_no_container_is_left(machine: Machine, podman: Podman) -> None:
    begin(machine, "orphan/1/0", "echo began; sleep 600")
    await_word(machine, "orphan/1/0", "began")
    kill_agent_of(machine, "orphan/1/0")
    give_up = time.monotonic() + 60.0
    while not machine.exchange("orphan/1/0", look={"orphan/1/0": 0})["over"]:
        assert time.monotonic() < give_up
    assert podman.containers() == ""


def test_an_image_that_cannot_be_had_is_told_as_kubernetes_tells_it(machine: Machine) -> None:
    begin(machine, "refused/1/0", "true", image="localhost:1/no/such:1")
    while not (waits := machine.exchange("refused/1/0", look={"refused/1/0": 0})["waits"]).startswith(
        "ImagePull"
    ):
        assert machine.runners("refused/1/0"), waits
    assert 'ImagePullBackOff: Back-off pulling image "localhost:1/no/such:1": ErrImagePull: ' in waits
    assert "connection refused" in waits
    machine.exchange(stops={"refused/1/0": 0.0}, look={})
    assert end(machine, "refused/1/0")[0]["ended_by"] == "stop"


def await_word(machine: Machine, task: str, word: str) -> None:
    """Wait until a task has written a word."""
    log = machine.home / "starburst" / "runs" / task / "log"
    machine.until_exists(log)
    while word not in log.read_text():
        assert machine.runners(task), log.read_text()


def kill_agent_of(machine: Machine, task: str) -> None:
    """SIGKILL all of the agent that has to do with a task."""
    directory = str(machine.home / "starburst" / "runs" / task).encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone meanwhile
            if directory in (process / "cmdline").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)
