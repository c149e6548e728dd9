"""Jobs with an image on a machine that several jobs share: what makes the container of a task.

A SkyPilot cluster has one image, so a job's own image is run by the machine's container engine, with the
GPUs, CPUs and memory of its task. Values that only the machine knows are written as @NAME@ and filled in
there (`agent/containers`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from starburst.clouds.sky.agent.protocol import ContainerSpec
from starburst.domain.job import Workload
from starburst.domain.resources import Resources
from starburst.runs.supervisor.progress_report import FILE_NAME, VARIABLE
from translator.tasks.containers.settings import ContainerSettings, settings_of

#: The directory of the job's checkpoints in a container.
CHECKPOINTS = "/starburst/checkpoints"
#: The directory of its progress report; not the file, which is replaced by a rename each time.
REPORT = "/starburst/report"
#: Processes and threads of a container at most: one that forks without end must not stop its neighbours.
MAX_PROCESSES = 32_768


def container(name: str, workload: Workload, resources: Resources, env: Mapping[str, str]) -> ContainerSpec:
    """The container of one task with an image, without volumes."""
    assert workload.image is not None
    settings = (
        ContainerSettings() if workload.manifest is None else settings_of(json.loads(workload.manifest))
    )
    options = ["--network", "host", "--pids-limit", str(MAX_PROCESSES)]
    if resources.cpu_milli:
        options += ["--cpus", f"{resources.cpus:g}"]
    if resources.memory_mib:  # and no swap, as on Kubernetes
        options += ["--memory", f"{resources.memory_mib}m", "--memory-swap", f"{resources.memory_mib}m"]
    options += rights(settings)
    options += ["--env-file", "@DIR@/env", "-v", f"@CHECKPOINTS@:{CHECKPOINTS}"]
    options += ["-v", f"@REPORT@:{REPORT}"]
    rest = what_runs(workload.image, workload.working_dir, workload.command, workload.args)
    env_file, long = variables(env)
    return {
        "name": name,
        "image": workload.image,
        "pull": settings.pull_policy(workload.image),
        "non_root": settings.non_root and settings.user is None,
        "options": options,
        "rest": rest,
        "env_file": env_file,
        "env": long,
        "volumes": [],
    }


def rights(settings: ContainerSettings) -> list[str]:
    """The options for the user of a container and for what its processes may do."""
    options = ["--cap-drop", "ALL"]
    options += [part for name in settings.capabilities for part in ("--cap-add", name)]
    if not settings.may_escalate:
        options += ["--security-opt", "no-new-privileges"]
    if settings.read_only_root:
        options += ["--read-only"]
    if settings.user is not None:
        group = "" if settings.group is None else f":{settings.group}"
        options += ["--user", f"{settings.user}{group}"]
    options += [part for group in settings.groups for part in ("--group-add", str(group))]
    return options


def what_runs(
    image: str, working_dir: str | None, command: Sequence[str], args: Sequence[str] = ()
) -> list[str]:
    """The end of the command line: working directory, image and command. No part can act as an option.

    Without a `command`, `args` go to the image's own entry point, and without both the image runs as it is.
    """
    rest = [f"--workdir={working_dir}"] if working_dir else []
    if command:
        rest.append(f"--entrypoint={command[0]}")
    return [*rest, "--", image, *(command[1:] or args)]


def variables(env: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """A container's environment: lines of an env file, and variables that have line ends in them."""
    ours = {"STARBURST_CHECKPOINT_DIR": CHECKPOINTS, VARIABLE: f"{REPORT}/{FILE_NAME}"}
    env = {**env, **ours}
    long = {key: value for key, value in env.items() if "\n" in value or "\r" in value}
    return "".join(f"{key}={value}\n" for key, value in env.items() if key not in long), long


def runs_in_container(workload: Workload) -> bool:
    """Whether a workload has an image and does not ask to run on the host."""
    return workload.image is not None and not workload.on_host
