"""The command line of jobs with an image."""

from __future__ import annotations

import pytest

from starburst.clouds.sky.agent.protocol import ContainerSpec
from starburst.clouds.sky.runs.docker import container, runs_in_container
from starburst.domain.job import Workload
from starburst.domain.resources import Resources

CHECKPOINTS, REPORT = "@CHECKPOINTS@:/starburst/checkpoints", "@REPORT@:/starburst/report"
KEPT = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
RIGHTS = ["--cap-drop", "ALL", *(part for name in KEPT for part in ("--cap-add", name))]
ALWAYS = [
    *(*RIGHTS, "--security-opt", "no-new-privileges"),
    *("--env-file", "@DIR@/env", "-v", CHECKPOINTS, "-v", REPORT),
]
START = ["--network", "host", "--pids-limit", "32768"]


def boxed(workload: Workload, resources: Resources, **env: str) -> ContainerSpec:
    return container("sb-a-1-0", workload, resources, env)


def test_a_task_gets_its_cpus_and_memory_and_no_more() -> None:
    made = boxed(Workload(("python", "train.py", "--lr", "1"), image="me/train:2"), Resources.of(2, 7.5, 16))
    limits = ["--cpus", "7.5", "--memory", "16384m", "--memory-swap", "16384m"]
    assert made["options"] == [*START, *limits, *ALWAYS]
    assert made["rest"] == ["--entrypoint=python", "--", "me/train:2", "train.py", "--lr", "1"]


def test_what_is_not_asked_for_is_not_limited() -> None:
    assert boxed(Workload(image="busybox"), Resources())["options"] == [*START, *ALWAYS]


def test_arguments_without_a_command_are_for_the_images_own() -> None:
    made = boxed(Workload(args=("--lr", "1"), image="busybox"), Resources())
    assert made["rest"] == ["--", "busybox", "--lr", "1"]


def test_without_a_command_the_image_runs_its_own() -> None:
    assert boxed(Workload(image="busybox"), Resources())["rest"] == ["--", "busybox"]


def test_the_working_directory_is_the_users() -> None:
    made = boxed(Workload(("ls",), working_dir="/@DIR@/src", image="busybox"), Resources())
    assert made["rest"] == ["--workdir=/@DIR@/src", "--entrypoint=ls", "--", "busybox"]
    assert "/@DIR@/src" not in made["options"]


def test_the_environment_is_in_a_file_and_lines_in_values_go_by_the_client() -> None:
    made = boxed(Workload(image="busybox"), Resources(), TOKEN="s3cret = $x", KEY="-----\nline\n")
    assert made["env_file"].splitlines() == [
        "TOKEN=s3cret = $x",
        "STARBURST_CHECKPOINT_DIR=/starburst/checkpoints",
        "STARBURST_REPORT=/starburst/report/report.json",
    ]
    assert made["env"] == {"KEY": "-----\nline\n"}
    assert not any("s3cret" in part or "line" in part for part in made["options"] + made["rest"])


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (Workload(), False),
        (Workload(image="busybox"), True),
        (Workload(image="busybox", on_host=True), False),
    ],
)
def test_a_job_runs_in_a_container_if_it_has_an_image_and_does_not_ask_for_the_host(
    workload: Workload, expected: bool
) -> None:
    assert runs_in_container(workload) is expected
