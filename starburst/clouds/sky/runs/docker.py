"""Jobs with an image on a machine that several jobs share: the command line of `docker run`.

A SkyPilot cluster has one image, so a job's own image is run by the machine's container engine, with the
GPUs, CPUs and memory of its task. Values that only the machine knows are written as @NAME@ and filled in
there (`agent/containers.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starburst.clouds.sky.agent.protocol import ContainerSpec
from starburst.domain.job import Workload
from starburst.domain.resources import Resources
from starburst.runs.supervisor.progress_report import FILE_NAME, VARIABLE

#: The directory of the job's checkpoints in a container.
CHECKPOINTS = "/starburst/checkpoints"
#: The directory of its progress report; not the file, which is replaced by a rename each time.
REPORT = "/starburst/report"


def container(name: str, workload: Workload, resources: Resources, env: Mapping[str, str]) -> ContainerSpec:
    """The container of one task with an image, without volumes."""
    assert workload.image is not None
    options = ["docker", "run", "--rm", "--name", name, "--network", "host"]
    if resources.gpus:
        options += ["--gpus", '"device=@GPUS@"']  # read as CSV by the client: quotes keep the commas
    if resources.cpu_milli:
        options += ["--cpus", f"{resources.cpus:g}"]
    if resources.memory_mib:
        options += ["--memory", f"{resources.memory_mib}m"]
    options += ["--env-file", "@DIR@/env", "-v", f"@CHECKPOINTS@:{CHECKPOINTS}"]
    options += ["-v", f"@REPORT@:{REPORT}"]
    rest = what_runs(workload.image, workload.working_dir, workload.command)
    env_file, long = variables(env)
    return {
        "name": name,
        "image": workload.image,
        "options": options,
        "rest": rest,
        "env_file": env_file,
        "env": long,
        "volumes": [],
    }


def what_runs(image: str, working_dir: str | None, command: Sequence[str]) -> list[str]:
    """The end of the command line: working directory, image and command. No part can act as an option."""
    rest = [f"--workdir={working_dir}"] if working_dir else []
    if command:
        rest.append(f"--entrypoint={command[0]}")
    return [*rest, "--", image, *command[1:]]


def variables(env: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """A container's environment: lines of an env file, and variables that have line ends in them."""
    ours = {"STARBURST_CHECKPOINT_DIR": CHECKPOINTS, VARIABLE: f"{REPORT}/{FILE_NAME}"}
    env = {**env, **ours}
    long = {key: value for key, value in env.items() if "\n" in value or "\r" in value}
    return "".join(f"{key}={value}\n" for key, value in env.items() if key not in long), long


def runs_in_container(workload: Workload) -> bool:
    """Whether a workload has an image and does not ask to run on the host."""
    return workload.image is not None and not workload.on_host
