"""Options of `starburst submit`: those of any submission, and those about a job that is no manifest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated

import typer

from starburst.app.jobs.command_options import CommandOptions
from starburst.cli.output import Format, OutputOption
from translator.manifests.amounts import GPUS

#: Words of a command line behind --, in the metadata of its context.
COMMAND = "starburst.command"
_CONTAINER = "spec.template.spec.containers[0]"
#: Annotations starburst.io/… and the options that set them.
_HINTS: Mapping[str, str] = {
    "array": "--array",
    "runtime-estimate": "--estimate",
    "max-wait": "--max-wait",
    "after-ok": "--after",
    "queue": "--queue",
    "cloud": "--cloud",
    "priority": "--priority",
    "retries": "--retries",
    "checkpoint": "--checkpoint",
    "gpu-type": "--gpus",
}
#: Fields of the manifest that a command becomes, and the options that fill them in.
_OPTIONS: Mapping[str, str] = {
    "metadata.name": "--name",
    **{f'metadata.annotations["starburst.io/{hint}"]': option for hint, option in _HINTS.items()},
    **{f"starburst.io/{hint}": option for hint, option in _HINTS.items()},
    "spec.activeDeadlineSeconds": "--time",
    f"{_CONTAINER}.image": "--image",
    f"{_CONTAINER}.resources": "--cpus",
    f"{_CONTAINER}.resources.requests.cpu": "--cpus",
    f"{_CONTAINER}.resources.requests.memory": "--memory",
    **{f'{_CONTAINER}.resources.limits["{name}"]': "--gpus" for name in GPUS},
}
#: The command's source with its document, or the job's name, before the field.
_PLACE = re.compile(r"(?:command .*?, document 1|job [^:]*): ")


@dataclass(frozen=True)
class JobOptions(CommandOptions):
    """What a command, a batch script or a SkyPilot task is to have; a manifest says all of it itself."""

    name: Annotated[str, typer.Option(help="Name of the job.")] = ""
    gpus: Annotated[str, typer.Option(metavar="[TYPE:]N", help="GPUs of each task: 2, A100:2.")] = ""
    cpus: Annotated[str, typer.Option(metavar="N", help="CPUs of each task: 4, 500m.")] = ""
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory of each task: 16Gi.")] = ""
    image: Annotated[str, typer.Option(help="Container image; a Kubernetes cluster needs one.")] = ""
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env", metavar="NAME[=VALUE]", help="A variable; without a value your own. May be repeated."
        ),
    ] = None
    nodes: Annotated[
        int | None, typer.Option(min=1, max=1000, metavar="N", help="Tasks that start together, as a gang.")
    ] = None
    ray: Annotated[
        bool,
        typer.Option("--ray", help="Start a Ray on all tasks; the command runs in the first."),
    ] = False
    array: Annotated[
        str, typer.Option(metavar="FIRST-LAST[%N]", help="A job per index, N of them at a time.")
    ] = ""
    time: Annotated[str, typer.Option(metavar="T", help="Time limit of a run: 90s, 15m, 12h, 2d.")] = ""
    estimate: Annotated[str, typer.Option(metavar="T", help="How long it will run, as far as you know.")] = ""
    max_wait: Annotated[str, typer.Option(metavar="T", help="Leave for the cloud after this.")] = ""
    after: Annotated[
        list[str] | None,
        typer.Option("--after", metavar="JOB", help="Only once this job succeeded. May be repeated."),
    ] = None
    queue: Annotated[str, typer.Option(help="Queue of the job.")] = ""
    cloud: Annotated[
        str, typer.Option(metavar="auto|never|only", help="Whether it may leave for the cloud.")
    ] = ""
    priority: Annotated[
        int | None, typer.Option(metavar="N", help="Higher goes first, where the policy orders by priority.")
    ] = None
    retries: Annotated[int | None, typer.Option(min=0, metavar="N", help="Runs again after it failed.")] = (
        None
    )
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="It saves its state on SIGTERM and goes on from it.")
    ] = False

    def spelled(self, option: str) -> str:
        """How an option stands on the command line."""
        return f"--{option.replace('_', '-')}"

    def given(self) -> list[str]:
        """The options that stand on the command line."""
        return [self.spelled(each.name) for each in fields(self) if getattr(self, each.name) != each.default]


@dataclass(frozen=True)
class SubmitOptions:
    """All options of the command, in the order of `--help`."""

    context: typer.Context
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILES… | -- COMMAND…",
            help="Kubernetes YAML, SkyPilot tasks, sbatch scripts (- is standard input), or a command.",
        ),
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen; submit nothing.")] = False
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until all of them have ended; exit 1 if one failed.")
    ] = False
    follow: Annotated[
        bool,
        typer.Option("-f", "--follow", help="Show the log of the one job until it ends, as --wait does."),
    ] = False
    hold: Annotated[
        bool, typer.Option("--hold", help="Keep them out of the queue until starburst release.")
    ] = False
    allow_unsatisfiable: Annotated[
        bool, typer.Option("--allow-unsatisfiable", help="Also what no node and no offer could ever hold.")
    ] = False
    apply: Annotated[
        bool,
        typer.Option(
            "--apply-rest",
            help="Apply what is no job in the files to the cluster of your kubeconfig, with your own rights.",
        ),
    ] = False
    workdir: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory that goes along with a command or script.")
    ] = Path(".")
    no_workdir: Annotated[bool, typer.Option("--no-workdir", help="Take no directory along.")] = False
    job: JobOptions = field(default_factory=JobOptions)
    output: OutputOption = Format.TABLE

    @property
    def command(self) -> tuple[str, ...]:
        """The words behind --."""
        return tuple(self.context.meta.get(COMMAND, ()))


def by_option(line: str) -> str:
    """A problem or note with the option in place of the field; unchanged if no option fills the field in."""
    place = _PLACE.match(line)
    field, colon, rest = line[place.end() if place else 0 :].partition(": ")
    return f"{_OPTIONS[field]}{colon}{rest}" if field in _OPTIONS else line
