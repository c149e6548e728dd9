"""Submitting what is no manifest: a command, a batch script, a SkyPilot task."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from starburst.app.config import parse_config
from starburst.domain.job import Submission
from tests.cli.conftest import Cli
from tests.cli.manifests import manifest
from tests.cli.past import Past

EXAMPLES = Path(__file__).parents[2] / "configs" / "examples"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which the user is, with one file."""
    path = tmp_path / "here"
    path.mkdir()
    (path / "train.py").write_text("print(1)\n")
    monkeypatch.chdir(path)
    return path


def test_a_command_is_a_job_with_the_directory_it_was_typed_in(cli: Cli, past: Past, here: Path) -> None:
    words = ["--gpus", "A100:2", "--cpus", "4", "--memory", "8Gi", "--env", "LR=0.1", "--max-wait", "1h"]
    words += ["--time", "2h", "--retries", "2", "--priority", "7", "--image", "me/train"]
    told = cli("submit", "--allow-unsatisfiable", *words, "--", "python", "train.py", "--epochs", "3")
    assert told.code == 0
    assert told.err.startswith(f"taking along {here}: 1 file, ")
    (request,) = past.store.requests(9)
    job, workload = request.submission.job, request.submission.workload
    assert (job.name, job.tasks[0].gpus, job.tasks[0].gpu_type, job.retries) == ("train", 2, "A100", 2)
    assert (job.priority, job.max_wait_s, workload.time_limit_s) == (7, 3600.0, 7200)
    assert workload.image == "me/train"
    assert workload.command[-4:] == ("python", "train.py", "--epochs", "3")
    assert dict(workload.env).keys() == {"LR", "STARBURST_FILES_0"}


def test_without_its_directory_a_command_is_run_as_it_is(cli: Cli, past: Past) -> None:
    assert cli("submit", "--no-workdir", "--cpus", "1", "--", "python", "-c", "print($(A))").code == 0
    (request,) = past.store.requests(9)
    assert request.submission.workload.command == ("python", "-c", "print($(A))")
    assert request.submission.job.name == "python"


def all_jobs(past: Past) -> Sequence[Submission]:
    """The jobs of arrays that the store has."""
    return past.store.array_jobs(100, lambda _array, _at_once: 100).submissions


def test_a_command_comes_after_another_and_as_an_array(cli: Cli, past: Past) -> None:
    cli("submit", "--name", "prep", "--no-workdir", "--", "true")
    told = cli("submit", "--after", "prep", "--array", "0-3%2", "--no-workdir", "-o", "name", "--", "true")
    assert [line.rsplit("-", 1)[1] for line in told.out.splitlines()] == ["0", "1", "2", "3"]
    last = all_jobs(past)[-1].job
    assert (last.after_ok[0][:4], last.array and last.array.at_once) == ("prep", 2)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--", ""], "submit: name a file, or a command behind --, as in submit --gpus 1 -- python train.py"),
        (
            ["--", " "],
            "submit: name a file, or a command behind --, as in submit --gpus 1 -- python train.py",
        ),
        ([], "submit: name a file, or a command behind --, as in submit --gpus 1 -- python train.py"),
        (["--gpus", "two:x", "--", "a"], "--gpus: 'two:x': write a number of GPUs, a type, or both"),
        (["--memory", "8GB", "--", "a"], "--memory: '8GB': not a Kubernetes quantity; write 8Gi or 8G"),
        (["--time", "5", "--", "a"], "--time: '5': a duration needs a unit"),
        (["--time", "0s", "--", "a"], "--time: '0s': a time limit must be longer than 0"),
        (["--env", "NOT_SET_HERE", "--", "a"], "--env: 'NOT_SET_HERE': is not set here"),
        (["--workdir", "nowhere", "--", "a"], "--workdir: 'nowhere': is no directory"),
        (
            ["--gpus", "1", "job.yaml"],
            "job.yaml: --gpus: is for a command, a batch script or a SkyPilot task",
        ),
        (["job.yaml", "--", "x"], "job.yaml: words behind -- are for a batch script"),
        (["--dry-run", "-f", "--", "a"], "--follow: a dry run submits nothing to wait for"),
    ],
)
def test_a_bad_option_is_one_line(cli: Cli, here: Path, words: list[str], line: str) -> None:
    (here / "job.yaml").write_text(manifest("a", "true"))
    told = cli("submit", *words)
    assert told.code == 2
    (only,) = told.err.splitlines()
    assert only.startswith(f"error: {line}")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--name", "My Job"], '--name: "My Job": must be lower-case letters'),
        (["--estimate", "5"], '--estimate: "5": a duration needs a unit'),
        (["--max-wait", "-5m"], '--max-wait: "-5m": a duration cannot be negative'),
        (["--array", "5-1"], '--array: "5-1": write the first and last index'),
        (["--queue", "a b"], '--queue: "a b": a queue is named by'),
        (["--cloud", "maybe"], '--cloud: "maybe": must be auto or never or only'),
        (["--after", "nosuch"], "--after: there is no job 'nosuch'"),
    ],
)
def test_a_problem_of_a_command_names_the_option_that_was_written(
    cli: Cli, past: Past, words: list[str], line: str
) -> None:
    told = cli("submit", "--no-workdir", "--gpus", "1", *words, "--", "true")
    assert (told.code, told.out) == (2, "")
    (only,) = told.err.splitlines()
    assert only.startswith(f"error: {line}")


def test_a_note_on_a_command_names_the_option_and_one_on_a_manifest_the_field(
    cli: Cli, past: Past, here: Path
) -> None:
    told = cli("submit", "--no-workdir", "--", "true")
    assert "  note: --cpus: asks for no CPU and no GPU; it gets 1 CPU\n" in told.err
    text = manifest("a", "true", gpus=0).replace('"cpu": "100m"', '"memory": "1Gi"')
    (here / "job.yaml").write_text(text)
    told = cli("submit", "job.yaml")
    assert "  note: spec.template.spec.containers[0].resources: asks for no CPU and no GPU" in told.err


def test_a_kubernetes_cluster_needs_an_image(cli: Cli, past: Past) -> None:
    config = parse_config({"cluster": {"kind": "kubernetes"}}, "test")
    past.store.set_fact("config", config.model_dump(mode="json"))
    told = cli("submit", "--no-workdir", "--", "true")
    assert told.code == 2
    assert (
        "command true, job true: containers[0].image: is missing; a Kubernetes cluster runs images"
        in told.err
    )
    assert cli("submit", "--no-workdir", "--dry-run", "--image", "busybox", "--", "true").code == 0


def test_what_of_a_script_is_not_kept_is_a_note_of_its_job(cli: Cli, past: Past, here: Path) -> None:
    (here / "train.sbatch").write_text("#!/bin/bash\n#SBATCH -p gpu -G 1 -a 1-2\necho $1\n")
    told = cli("submit", "train.sbatch", "-o", "json", "--", "arg")
    rows = json.loads(told.out)
    assert [len(row["notes"]) for row in rows] == [1, 0]
    assert rows[0]["notes"][0].startswith("line 2, --partition: partitions are not used")
    assert all_jobs(past)[0].workload.command[-2:] == ("train.sbatch", "arg")


@pytest.mark.parametrize("file", ["array.sbatch", "sky-task.yaml"])
def test_the_examples_are_taken_with_their_files(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.chdir(EXAMPLES)
    assert cli("submit", "--dry-run", file).code == 0


def test_a_command_about_one_job_says_that_an_array_is_several(cli: Cli, past: Past) -> None:
    words = ("submit", "--no-workdir", "--gpus", "1", "--array", "3-5", "--name", "sweep", "--", "true")
    assert cli(*words).code == 0
    line = "error: sweep is an array of 3 jobs; name one, such as 'sweep[3]'\n"
    assert cli("logs", "sweep").err == line
    assert cli("exec", "sweep", "--", "true").err == line
    assert cli(*words).code == 0
    told = cli("logs", "sweep").err
    assert told.count("sweep-") == 2  # the ids of the two arrays
    assert told.endswith("; give the whole id\n")
