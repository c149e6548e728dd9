"""Jobs with an image on a machine that several share: the command line of `docker run`.

A cluster of SkyPilot's has one image, so an image of a job's own is run by the machine's container engine,
with the GPUs, CPUs and memory of its task. What only the machine knows stands as @NAME@ and is filled in
there (`agent/containers.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starburst.domain.job import Workload
from starburst.domain.resources import Resources
from starburst.runs.supervisor.progress_report import FILE_NAME, VARIABLE

#: Where a container finds the job's checkpoints.
CHECKPOINTS = "/starburst/checkpoints"
#: And where it says what its progress is: a directory, for the file is replaced each time.
REPORT = "/starburst/report"


@dataclass(frozen=True, slots=True)
class Container:
    """How one task runs in a container."""

    name: str
    image: str
    #: The command line up to single variables; has @DIR@, @GPUS@, @CHECKPOINTS@ and @REPORT@ in it.
    options: list[str]
    #: The rest of it, as the user wrote it.
    rest: list[str]
    #: The environment, a line per variable: on the command line every user of the machine could read it.
    env_file: str
    #: Variables that no line can hold; the client hands them on.
    env: dict[str, str]


def container(name: str, workload: Workload, resources: Resources, env: Mapping[str, str]) -> Container:
    """The container of one task with an image."""
    assert workload.image is not None
    options = ["docker", "run", "--rm", "--name", name, "--network", "host"]
    if resources.gpus:
        options += ["--gpus", '"device=@GPUS@"']  # the client reads it as CSV: the comma needs the quotes
    if resources.cpu_milli:
        options += ["--cpus", f"{resources.cpus:g}"]
    if resources.memory_mib:
        options += ["--memory", f"{resources.memory_mib}m"]
    options += ["--env-file", "@DIR@/env", "-v", f"@CHECKPOINTS@:{CHECKPOINTS}"]
    options += ["-v", f"@REPORT@:{REPORT}"]
    rest = what_runs(workload.image, workload.working_dir, workload.command)
    return Container(name, workload.image, options, rest, *variables(env))


def what_runs(image: str, working_dir: str | None, command: Sequence[str]) -> list[str]:
    """The end of the command line: where, which image, and what of it. None of it can be an option."""
    rest = [f"--workdir={working_dir}"] if working_dir else []
    if command:
        rest.append(f"--entrypoint={command[0]}")
    return [*rest, "--", image, *command[1:]]


def variables(env: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The environment of a container as lines of a file, and what no line can hold."""
    ours = {"STARBURST_CHECKPOINT_DIR": CHECKPOINTS, VARIABLE: f"{REPORT}/{FILE_NAME}"}
    env = {**env, **ours}
    long = {key: value for key, value in env.items() if "\n" in value or "\r" in value}
    return "".join(f"{key}={value}\n" for key, value in env.items() if key not in long), long


def runs_in_container(workload: Workload) -> bool:
    """Whether a workload has an image and does not ask for the host."""
    return workload.image is not None and not workload.on_host
