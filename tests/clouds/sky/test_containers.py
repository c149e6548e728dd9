"""The life of a container, with a stand-in for the engine: pull, rights, output, ends and orphans."""

from __future__ import annotations

import base64
import errno
import json
import time
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest

from starburst.clouds.sky.agent.containers import container_user, image, life
from starburst.clouds.sky.agent.containers import options as options_
from starburst.clouds.sky.agent.containers.engine import Engine
from starburst.clouds.sky.agent.containers.life import ContainerLife
from starburst.clouds.sky.agent.containers.options import limits
from starburst.clouds.sky.agent.containers.removal import remove, remove_container
from starburst.clouds.sky.agent.protocol import ContainerSpec
from starburst.clouds.sky.agent.separation import RootRefusedError
from starburst.domain.resources import Resources
from starburst.runs.supervisor.files import reserve, write_json
from tests.clouds.sky.container_task import ContainerTask, Told
from tests.clouds.sky.fake_engine import FakeEngine

DENIED = "pull access denied for me/train, repository does not exist or may require 'docker login'"


def refused(*_args: object, **_more: object) -> None:
    raise RootRefusedError


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerTask:
    made = ContainerTask(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", made.engine.path)
    monkeypatch.setattr(container_user, "ask_root", refused)
    for module, names in ((life, ("ENGINE_S", "AGAIN_S", "LOOK_S")), (image, ("FIRST_PAUSE_S", "LOOK_S"))):
        for name in names:
            monkeypatch.setattr(module, name, 0.05)
    return made


def options(call: list[str], *names: str) -> list[str]:
    """The values of some options, in order."""
    return [value for name, value in pairwise(call) if name in names]


# --- the run ----------------------------------------------------------------------------------------------


def test_its_output_goes_to_the_log_and_its_exit_code_is_the_tasks(
    task: ContainerTask, capfd: pytest.CaptureFixture[str]
) -> None:
    task.engine.runs("echo hello; echo there >&2", 3)
    assert task.run() == 3
    assert capfd.readouterr() == ("hello\n", "there\n")
    verbs = dict.fromkeys(call[0] for call in task.engine.said)
    assert list(verbs) == ["image", "ps", "info", "create", "start", "container", "rm"]
    assert not (task.dir / "verdict.json").exists()
    assert not (task.dir / "waits.json").exists(), "it has run"


@pytest.mark.parametrize("verb", ["create", "run"])
def test_a_container_for_which_the_machine_has_no_room_is_lost_and_not_the_jobs_fault(
    task: ContainerTask, verb: str
) -> None:
    full = "mkdir /var/lib/docker/x: no space left on device"
    task.engine.put("begun", task.engine.state("created", error=full))
    task.engine.put(verb, f"echo 'Error response from daemon: {full}' >&2; exit 1")
    assert task.run() == 1
    ended_by, message = task.verdict
    assert ended_by == "loss"
    assert full in message


def test_why_a_container_ended_is_told_on_a_full_disk_too(
    task: ContainerTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve(str(task.dir / "verdict.json"))
    task.engine.runs("true", 137, oom=True)

    def nothing_fits(*_what: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("starburst.runs.supervisor.files.write_json", nothing_fits)
    assert task.run() == 137
    assert task.verdict == ("", "OOMKilled: a process ran out of memory")
    reserve(str(task.dir / "verdict.json"))
    monkeypatch.setattr(life, "write_json", nothing_fits)
    assert task.run() == 1
    assert task.verdict[0] == "loss", "it did not begin"


def test_a_container_has_its_task_as_a_label_and_few_rights(task: ContainerTask) -> None:
    task.run()
    call = task.engine.called("create")
    assert options(call, "--name", "--label", "--network") == ["sb-a-1-0", "starburst.io/run=a/1/0", "host"]
    assert options(call, "--cap-drop", "--security-opt") == ["ALL", "no-new-privileges"]
    assert options(call, "--cap-add") == [
        *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"),
    ]
    assert options(call, "--log-driver", "--pids-limit") == ["none", "32768"]
    assert not {"--user", "--read-only", "--privileged", "--pid", "--ipc"} & set(call)


def test_user_rights_and_root_are_those_of_its_manifest(task: ContainerTask) -> None:
    capabilities = {"drop": ["ALL"], "add": ["CAP_IPC_LOCK", "SYS_ADMIN"]}
    task.manifest["pod"] = {"runAsUser": 1, "runAsGroup": 2, "fsGroup": 3, "supplementalGroups": [4]}
    own = {"runAsUser": 7, "readOnlyRootFilesystem": True, "allowPrivilegeEscalation": True}
    task.manifest["securityContext"] = {**own, "capabilities": capabilities}
    task.run()
    call = task.engine.called("create")
    assert options(call, "--user") == ["7:2"]
    assert options(call, "--group-add") == ["4", "3"]
    assert options(call, "--cap-add") == ["IPC_LOCK"]
    assert "--read-only" in call
    assert "--security-opt" not in call


@pytest.mark.parametrize(("user", "ends"), [("", "refusal"), ("root:users", "refusal"), ("1000", "")])
def test_run_as_non_root_is_asked_of_the_image(task: ContainerTask, user: str, ends: str) -> None:
    task.manifest["securityContext"] = {"runAsNonRoot": True}
    task.engine.put("user", f"{user}\n")
    task.run()
    assert (task.dir / "verdict.json").exists() is bool(ends)
    if ends:
        assert task.verdict[1] == (
            "CreateContainerConfigError: container has runAsNonRoot and image will run as root; set runAsUser"
        )


def test_its_limits_are_those_of_a_node_without_core_files(
    task: ContainerTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options_, "root_raises_limits", lambda: True)
    task.run()
    limits = ["core=0:0", "nofile=1048576:1048576", "memlock=8388608:8388608"]
    assert options(task.engine.called("create"), "--ulimit") == limits


def test_where_limits_cannot_be_raised_they_are_the_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    box, by_root = cast("ContainerSpec", {"options": []}), Engine("podman", ("sudo", "-n", "podman"))
    for can, engine, expected in (
        (True, by_root, 6),
        (True, Engine("podman", ("podman",)), 2),
        (False, by_root, 0),
        (False, Engine("docker", ("docker",)), 2),
    ):
        monkeypatch.setattr(options_, "root_raises_limits", lambda can=can: can)
        assert len(limits(engine, box)) == expected
    assert limits(engine, box) == ["--ulimit", "core=0:0"]


def test_a_container_that_may_lock_memory_locks_any_as_any_user(
    task: ContainerTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options_, "root_raises_limits", lambda: True)
    capabilities = {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    task.manifest["securityContext"] = {"capabilities": capabilities}
    task.run()
    assert options(task.engine.called("create"), "--ulimit")[-1] == "memlock=-1:-1"


def test_gpus_cpus_and_memory_are_its_own(task: ContainerTask) -> None:
    task.resources, task.gpus = Resources.of(2, 1.5, 16), "1,3"
    write_json(task.dir / "devices.json", {"gpus": [1, 3], "cpus": [4, 5]})
    task.run()
    call = task.engine.called("create")
    assert options(call, "--gpus", "--cpus", "--memory", "--memory-swap", "--cpuset-cpus") == [
        *("1.5", "16384m", "16384m", "4,5", '"device=1,3"'),
    ]


def test_without_gpus_an_image_that_asks_for_all_sees_none(task: ContainerTask) -> None:
    task.run(env={"NVIDIA_VISIBLE_DEVICES": "all"})
    call = task.engine.called("create")
    assert options(call, "-e") == ["NVIDIA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES=void"]


@pytest.mark.parametrize(
    ("code", "oom", "message"), [(137, False, None), (137, True, "OOM"), (0, True, None)]
)
def test_a_kill_for_memory_is_told_apart(
    task: ContainerTask, code: int, oom: bool, message: str | None
) -> None:
    task.resources = Resources.of(0, 1, 0.5)
    task.engine.runs("true", code, oom=oom)
    assert task.run() == code
    if message:
        assert task.verdict == ("", "OOMKilled: a process ran out of its memory limit")
    else:
        assert not (task.dir / "verdict.json").exists()


def test_a_program_that_is_not_in_the_image_is_refused_in_the_engines_words(task: ContainerTask) -> None:
    error = 'exec: "train": executable file not found in $PATH'
    task.engine.put("begun", task.engine.state("created", 127, error=error))
    task.engine.put("run", "exit 127")
    task.run()
    assert task.verdict == ("refusal", f"RunContainerError: {error}")


def test_what_the_engine_makes_no_container_of_is_refused(task: ContainerTask) -> None:
    task.engine.put("create", 'echo "Error response from daemon: invalid mount" >&2; exit 1')
    task.run()
    assert task.verdict == (
        "refusal",
        "CreateContainerError: Error response from daemon: invalid mount",
    )


def test_a_sigterm_is_handed_on_by_the_engine(task: ContainerTask) -> None:
    waits_for_it = f'while [ ! -e "{task.engine.bin}/stopped" ]; do sleep 0.02; done'
    task.engine.runs(waits_for_it, 143)
    assert task.run(Told(2)) == 143
    assert task.engine.called("stop") == ["stop", "-t", "86400", "sb-a-1-0"]


# --- the image --------------------------------------------------------------------------------------------


def absent(task: ContainerTask, pull: str) -> None:
    (task.engine.bin / "image").unlink()
    task.engine.put("pull", pull)


def test_an_image_that_is_missing_is_pulled_with_its_progress_told(task: ContainerTask) -> None:
    layers = "echo '0123456789ab: Pull complete'; echo 'ba9876543210: Downloading'; sleep 0.5"
    absent(task, layers)
    told: list[str] = []

    class Listens(Told):
        def wait(self, seconds: float) -> None:
            if (task.dir / "waits.json").exists():
                told.append(json.loads((task.dir / "waits.json").read_text())["why"])
            super().wait(seconds)

    assert task.run(Listens(), name="me/train:2") == 0
    assert told[0].startswith('Pulling image "me/train:2"')
    assert 'Pulling image "me/train:2": 1 of 2 layers are here' in told


@pytest.mark.parametrize(
    ("name", "policy", "pulled"),
    [
        ("me/train", None, True),
        ("me/train:latest", None, True),
        ("me/train:2", None, False),
        ("localhost:5000/me/train@sha256:" + "0" * 64, None, False),
        ("me/train:2", "Always", True),
        ("me/train", "IfNotPresent", False),
        ("me/train", "Never", False),
    ],
)
def test_an_image_that_is_there_is_pulled_as_its_policy_says(
    task: ContainerTask, name: str, policy: str | None, pulled: bool
) -> None:
    task.manifest["imagePullPolicy"] = policy
    assert task.run(name=name) == 0
    assert any(call[0] == "pull" for call in task.engine.said) is pulled


def test_an_image_that_may_not_be_pulled_and_is_not_there_is_refused(task: ContainerTask) -> None:
    absent(task, "")
    task.manifest["imagePullPolicy"] = "Never"
    task.run()
    assert task.verdict[1].startswith('ErrImageNeverPull: the image "me/train:2" is not on the machine')


def test_a_registry_that_says_no_is_asked_three_times_with_growing_pauses(
    task: ContainerTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(image, "FIRST_PAUSE_S", 0.06)
    real = ContainerLife.wait
    monkeypatch.setattr(ContainerLife, "wait", lambda self, s: (pauses.append(s), real(self, 0.01))[1])
    absent(task, f'echo "Error response from daemon: {DENIED}" >&2; exit 1')
    task.run()
    back_off = 'ImagePullBackOff: Back-off pulling image "me/train:2"'
    why = f"{back_off}: ErrImagePull: Error response from daemon: {DENIED}"
    assert task.verdict == ("refusal", why)
    assert [s for s in pauses if s > image.LOOK_S] == [0.06, 0.12]


def test_a_registry_that_is_down_is_asked_until_the_limit(
    task: ContainerTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image, "LIMIT_S", 0.7)
    absent(task, 'echo "Get https://r.io/v2/: dial tcp: connection refused" >&2; exit 1')
    task.run()
    assert "ErrImagePull: Get https://r.io/v2/: dial tcp: connection refused" in task.verdict[1]
    assert len([call for call in task.engine.said if call[0] == "pull"]) >= 2


def test_an_invalid_name_is_refused_at_once_and_a_full_disk_is_the_machines(task: ContainerTask) -> None:
    absent(task, 'echo "invalid reference format" >&2; exit 1')
    task.run()
    assert task.verdict[1].startswith('InvalidImageName: Failed to apply default image tag "me/train:2"')
    absent_again = 'echo "failed to register layer: no space left on device" >&2; exit 1'
    task.engine.put("pull", absent_again)
    task.run()
    assert task.verdict[0] == "loss"


def test_a_task_that_is_told_to_end_during_its_pull_ends_it(task: ContainerTask) -> None:
    absent(task, "sleep 60")
    before = time.monotonic()
    assert task.run(Told(3)) == 143
    assert time.monotonic() - before < 40
    assert not any(call[0] == "create" for call in task.engine.said)


def test_logins_are_tried_in_turn_from_a_directory_of_the_users_alone_which_goes(task: ContainerTask) -> None:
    (task.engine.bin / "image").unlink()
    count = f'"{task.engine.bin}/logins"'
    task.engine.put("pull", f'[ "$(wc -l <{count})" = 2 ] || {{ echo "unauthorized" >&2; exit 1; }}')
    logins = [{"registry": "r.io", "username": "ann", "password": word} for word in ("old", "new")]
    write_json(task.dir / "logins.json", {"logins": logins})
    assert task.run(name="r.io/train:1") == 0
    auths = [
        json.loads(line)["auths"] for line in (task.engine.bin / "logins").read_text().splitlines() if line
    ]
    passwords = [base64.b64decode(auth["r.io"]["auth"]).decode() for auth in auths]
    assert passwords == ["ann:old", "ann:new"]
    assert not (task.dir / "registry").exists()
    assert not (task.dir / "logins.json").exists()


# --- engines ----------------------------------------------------------------------------------------------


def test_an_engine_that_comes_back_is_waited_for_and_one_that_stays_dead_loses_the_run(
    task: ContainerTask,
) -> None:
    task.engine.put("dead", "")
    task.run()
    ended_by, message = task.verdict
    assert ended_by == "loss"
    assert message.startswith("Cannot connect to the Docker daemon")


@pytest.mark.parametrize("code", [137, 143, 0])
def test_a_container_that_ended_with_its_engine_did_not_end_by_itself(
    code: int, task: ContainerTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that is told to end stops its containers: one that saves its state exits with 0."""
    monkeypatch.setattr(life, "ENGINE_S", 5.0)
    dead = task.engine.bin / "dead"
    task.engine.runs(f'touch "{dead}"; (sleep 0.2; rm "{dead}") & exec >/dev/null 2>&1', code)
    task.run()
    assert task.verdict == ("loss", "docker died, and its container with it")


def test_podman_is_used_where_there_is_no_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ContainerTask(tmp_path, "podman")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{made.engine.bin}:/bin:/usr/bin")
    monkeypatch.setattr("shutil.which", lambda name: name if name == "podman" else None)
    made.gpus = "0,2"
    made.manifest["imagePullPolicy"] = "Always"
    assert made.run() == 0
    pulled, created = made.engine.called("pull"), made.engine.called("create")
    assert pulled == ["pull", "docker.io/me/train:2"]
    assert options(created, "--device") == ["nvidia.com/gpu=0", "nvidia.com/gpu=2"]


def test_podman_kills_before_it_removes_without_an_option_that_old_ones_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`podman rm --time` came with 4.0; without it a removal gives the container ten seconds first."""
    engine = FakeEngine(tmp_path / "bin", "podman")
    monkeypatch.setenv("PATH", f"{engine.bin}:/bin:/usr/bin")
    podman = Engine("podman", ("podman",))
    engine.put("state", engine.state("running"))
    assert remove(podman, "sb-a-1-0")
    assert remove(podman, "sb-a-1-0"), "it is gone already"
    assert engine.said == [["kill", "sb-a-1-0"], ["rm", "-f", "-v", "sb-a-1-0"]] * 2


def test_containers_whose_tasks_are_over_are_removed(task: ContainerTask) -> None:
    task.engine.put("containers", "sb-old-1-0 old/1/0\nsb-a-1-0 a/1/0\n")
    task.run()
    removed = [call[-1] for call in task.engine.said if call[0] == "rm"]
    assert removed[:2] == ["sb-old-1-0", "sb-a-1-0"]


def test_a_container_is_gone_only_if_its_engine_says_so(task: ContainerTask) -> None:
    box = {"name": "sb-a-1-0"}
    assert remove_container(str(task.dir), box), "there was none"
    assert remove_container(str(task.dir), None), "it is none's"
    write_json(task.dir / "container.json", {"id": "e" * 64})
    task.engine.put("dead", "")
    assert remove_container(str(task.dir), box), "its engine is dead, and no process is in its group"
