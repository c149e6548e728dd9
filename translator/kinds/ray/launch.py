"""A program on a Ray of its own: started on all tasks of the job, and ended with the program."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from translator.kinds.command_job import CommandJob
from translator.kinds.gangs.carried import LAUNCHER, secret, with_launcher
from translator.kinds.prelude import Prelude
from translator.quantity import quantity

RAY = "starburst-ray"
OPTIONS = "STARBURST_RAY_OPTIONS"
#: How the program is run: beside the head of Ray, by Ray's job submission, or not at all.
RUN, SUBMIT, SERVE = "run", "submit", "serve"


def with_ray(prelude: Prelude) -> Prelude:
    """The prelude with the programs that start Ray on the tasks of a gang."""
    return with_launcher(replace(prelude, programs={**prelude.programs, RAY: _script()}))


def on_ray(job: CommandJob, prelude: Prelude) -> CommandJob:
    """The job with its program run beside the head of Ray, to which it connects by RAY_ADDRESS."""
    prelude = with_ray(prelude)
    command = prelude.wrap(ray_command(RUN, job.command))
    own = ray_variables([(job.tasks, options(job.gpus, job.cpus))])
    return replace(job, command=command, env={**job.env, **prelude.env, **own})


def ray_command(mode: str, program: Sequence[str] = (), runtime_env: str = "") -> tuple[str, ...]:
    """What each task runs; `runtime_env` is JSON, "" is none."""
    return (LAUNCHER, RAY, mode, runtime_env, *program)


def ray_variables(groups: Iterable[tuple[int, str]]) -> dict[str, str]:
    """Variables of the tasks, given in the order of ranks their numbers and options of `ray start`."""
    return {OPTIONS: "\n".join(f"{count} {words}" for count, words in groups), **secret()}


def options(gpus: int, cpus: str = "") -> str:
    """Options of `ray start` by which Ray counts what a task has, not what its machine has."""
    words = [f"--num-gpus={gpus}"]
    if cpus:
        words.append(f"--num-cpus={max(1, int(quantity(cpus)))}")
    return shlex.join(words)


@cache
def _script() -> str:
    return (Path(__file__).parent / "ray.sh").read_text(encoding="utf-8").rstrip("\n")
