"""Variables and words of programs that differ between the roles of an operator's job, chosen by a shell."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from starburst.domain.job import Submission
from tests.translator.kinds.test_operators import outputs, problems, read, replicas, shell, training

WORKER = "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0]"


def variables(**values: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def test_a_reference_is_filled_in_with_the_roles_own_value() -> None:
    """Of a variable of one role, of one made of such a one, and of one of all roles with a quote in it."""
    run = {"args": ["$(LR) $(URL) $(SAY) $$(LR) $(NOBODY)"]}
    document = training(
        Master=replicas(1, shell("echo $0 $URL"), env=variables(SAY="it's", LR="0.1", URL="at-$(LR)"), **run),
        Worker=replicas(1, shell("echo $0 $URL"), env=variables(SAY="it's", LR="0.2", URL="at-$(LR)"), **run),
    )
    assert outputs(read(document)) == [f"{lr} at-{lr} it's $(LR) $(NOBODY) at-{lr}" for lr in ("0.1", "0.2")]


def test_a_reference_to_the_master_is_filled_in_for_several_tasks_too() -> None:
    words = {"args": ["$(MASTER_ADDR):$(MASTER_PORT)"]}
    document = training(
        Master=replicas(1, shell("echo $0"), **words), Worker=replicas(1, shell("echo $0 $0"), **words)
    )
    assert outputs(read(document)) == ["10.0.0.1:2000", "10.0.0.1:2000 10.0.0.1:2000"]


def test_a_reference_to_a_secret_stays_for_the_reader_of_the_job_to_judge() -> None:
    token = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    document = training(
        Master=replicas(1, shell("a"), env=[token], args=["$(TOKEN)"]),
        Worker=replicas(1, shell("b"), env=[token]),
    )
    found = read(document, native=True)
    assert "'$(TOKEN)'" in found.workload.command[2]
    assert found.job.stays


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"command": "python train.py"}, '.command: "python train.py": must be a list; begin each'),
        ({"args": ["--lr", 0.1]}, ".args[1]: 0.1: must be text; put it in quotes"),
        ({"args": "--lr 0.1"}, '.args: "--lr 0.1": must be a list'),
        ({"env": [{"name": "LR", "value": 0}]}, ".env[0].value: 0: must be text; put it in quotes"),
        ({"env": [{"name": "LR", "valeu": "0"}]}, ".env[0].valeu: is not a field of an environment variable"),
        ({"env": ["LR=0"]}, '.env[0]: "LR=0": must be a mapping'),
        ({"env": [{"name": "log.level", "value": "x"}]}, '.env[0].name: "log.level": is no name for a shell'),
        ({"env": [{"value": "x"}]}, ".env[0].name: is no name for a shell"),
    ],
)
def test_words_and_variables_of_one_role_are_checked_as_those_of_a_job(
    change: dict[str, Any], line: str
) -> None:
    worker = replicas(1, shell("b"))
    worker["template"]["spec"]["containers"][0] |= change
    found = problems(training(Master=replicas(1, shell("a")), Worker=worker))
    assert any(each.startswith(f"{WORKER}{line}") for each in found), found


def test_each_job_of_an_array_runs_its_one_task_though_its_index_is_not_0() -> None:
    """JOB_COMPLETION_INDEX is the index of the job in the array then, and no rank."""
    document = training(Master=replicas(1, shell("echo $RANK of $WORLD_SIZE, $JOB_COMPLETION_INDEX")))
    document["metadata"]["annotations"] = {"starburst.io/array": "5-7"}
    assert ran(read(document), "6") == (0, "0 of 1, 6\n")


def test_a_task_that_no_role_has_does_not_succeed_with_nothing_done() -> None:
    found = read(training(Master=replicas(1, shell("true")), Worker=replicas(1, shell("true"))))
    assert ran(found, "1") == (0, "")
    assert ran(found, "2") == (127, "")


def ran(item: Submission, index: str) -> tuple[int, str]:
    """Exit code and output of a task with this index, of a gang at localhost."""
    own = {"JOB_COMPLETION_INDEX": index, "MASTER_ADDR": "localhost"}
    env = {"PATH": os.environ["PATH"], **dict(item.workload.env), **own}
    done = subprocess.run(
        item.workload.command, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("processes", ["²", "9" * 5000, ["1"], "two", 0, True])
def test_processes_of_a_node_are_what_torchrun_takes(processes: Any) -> None:
    document = training(Master=replicas(1, shell("echo $PET_NPROC_PER_NODE $WORLD_SIZE")))
    for given, told in ((2, "2 2"), ("gpu", "gpu 1"), ("", "auto 1"), (None, "auto 1")):
        document["spec"]["nprocPerNode"] = given
        assert outputs(read(document)) == [told]
    document["spec"]["nprocPerNode"] = processes
    (line,) = problems(document)
    assert line.startswith("spec.nprocPerNode: ")
    assert line.endswith("must be a number of processes, or auto, cpu or gpu")


def test_a_number_that_is_too_long_for_an_index_is_no_name_of_a_pod() -> None:
    pod = f"train-worker-{'9' * 5000}"
    assert outputs(read(training(Worker=replicas(1, ["echo", pod])))) == [pod]
