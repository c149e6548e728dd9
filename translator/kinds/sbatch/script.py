"""Reads a batch script as a job: what it asks for, and what of it is not kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TypeVar

from starburst.domain.gpu_types import either, gpu_type, memory_gib
from translator.errors import ManifestError
from translator.field import ManifestReport, did_you_mean
from translator.kinds.command_job import CommandJob, job_name
from translator.kinds.gangs.carried import LAUNCHER, secret, with_launcher
from translator.kinds.gpu_request import GpuRequest
from translator.kinds.local_files import LocalFiles
from translator.kinds.overrides import Overrides
from translator.kinds.prelude import Prelude
from translator.kinds.sbatch import values
from translator.kinds.sbatch.directives import BatchScript, SbatchOption
from translator.kinds.sbatch.environment import environment
from translator.kinds.sbatch.options import HARMLESS, NOTED, READ, REFUSED
from translator.kinds.workdir import with_directory

V = TypeVar("V")

#: Programs of Slurm that a job finds on its PATH if its script names them.
_PROGRAMS = ("srun", "scontrol")
_SHELL = re.compile(r"(?:ba|da|a|k|z)?sh")
_PYTHON = re.compile(r"python[\d.]*")
_OPTIONS = sorted((*READ, *HARMLESS, *NOTED, *REFUSED))


@dataclass(frozen=True, slots=True)
class NodeShare:
    """What a script asks for on each of its nodes; sizes in MiB, 0 is unsaid."""

    nodes: int
    #: Of all nodes together.
    tasks: int
    cpus: int
    cpus_per_task: int
    gpus: GpuRequest
    gpus_per_task: int
    memory_mib: int


@dataclass(slots=True)
class SbatchReader:
    """The options of one script; a later one of a name replaces an earlier one, as for sbatch."""

    script: BatchScript
    report: ManifestReport
    _found: dict[str, SbatchOption] = field(init=False)

    def __post_init__(self) -> None:
        self._found = {each.name: each for each in self.script.directives}

    def job(self, local: LocalFiles, overrides: Overrides) -> CommandJob:
        """The job; problems and notes go to the report."""
        self._judge()
        if overrides.array:
            self._found["array"] = SbatchOption("array", overrides.array, 0)
        array, share = self._value("array", values.array), self._share(overrides.tasks)
        chdir = self._text("chdir")
        text, name = self.script.text, Path(self.report.source).name
        job = overrides.applied(
            CommandJob(
                name=job_name(self._text("job-name") or Path(name).stem, "sbatch"),
                command=self._command(name, overrides.arguments),
                env=self._exported(local),
                image=self._text("container-image").replace("#", "/"),
                working_dir=chdir if chdir.startswith("/") else "",
                gpus=share.gpus.count,
                gpu_type=share.gpus.type,
                cpus=str(share.cpus or ""),
                memory=f"{share.memory_mib}Mi" if share.memory_mib else "",
                tasks=share.nodes,
                time_limit_s=self._value("time", values.seconds),
                hints=self._hints({} if array is None else {"array": array.hint}),
            )
        )
        if not job.image:
            self._refuse_containers_of_srun()
        named = self._text("job-name")
        if named and job.name != named and not overrides.name:
            self._note("job-name", f"{named}: the job is named {job.name}")
        names = {"SLURM_JOB_NAME": named or job.name, "SLURM_JOB_PARTITION": self._text("partition") or None}
        lines = environment(_variables(job, share) | names, array)
        programs = {each: _program(each) for each in _PROGRAMS if re.search(rf"\b{each}\b", text)}
        prelude = Prelude(programs=programs, lines=f"{_entering(chdir)}{lines}")
        command, env = job.command, job.env
        if job.tasks > 1:
            prelude, command, env = with_launcher(prelude), (LAUNCHER, *command), {**env, **secret()}
        if not chdir.startswith("/"):
            prelude = self._with_directory(prelude, local)
        return replace(job, command=prelude.wrap(command), env={**env, **prelude.env})

    def _with_directory(self, prelude: Prelude, local: LocalFiles) -> Prelude:
        if not local.reads:
            self.report.notes.append(
                "the directory of the script stays where it is; starburst submit takes it along"
            )
        return prelude if self.report.errors else with_directory(prelude, local)

    def _judge(self) -> None:
        """Note or refuse each option that is not read."""
        for each in self.script.directives:
            if each.name in REFUSED:
                self._refuse(each.name, REFUSED[each.name])
            elif each.name in NOTED:
                self.report.notes.append(f"{_place(each)}: {NOTED[each.name]}")
            elif each.name not in READ and each.name not in HARMLESS:
                self._refuse(each.name, f"is no option of sbatch; {did_you_mean(each.name, _OPTIONS)}")
        for line in self.script.late:
            self.report.notes.append(
                f"line {line}: stands below the first command, where sbatch reads no options"
            )

    def _refuse_containers_of_srun(self) -> None:
        """Refuse programs that srun would start in a container; the whole job may run in one."""
        for number, line in enumerate(self.script.text.split("\n"), 1):
            if "--container-image" in line.partition("#")[0] and "srun" in self.script.text:
                mend = "srun starts no containers; name the image of the job by submit --image"
                place = f"line {number}, --container-image"
                self.report.errors.append(ManifestError(self.report.source, 0, place, None, mend))

    def _share(self, nodes: int | None) -> NodeShare:
        """Of each node; `nodes` is their number if the command line says it."""
        per_node = self._value("ntasks-per-node", values.count)
        asked = self._value("ntasks", values.count)
        nodes = nodes or self._value("nodes", _least) or self._nodes_of_counts(asked, per_node)
        tasks = asked or nodes * (per_node or 1)
        nodes = min(nodes, tasks)  # as Slurm has it
        on_node = -(-tasks // nodes)
        gpus, gpus_per_task = self._gpus(nodes, on_node)
        per_gpu = self._value("ntasks-per-gpu", values.count)
        if per_gpu and not (asked or per_node):
            on_node = max(per_gpu * gpus.count, 1)
            tasks = nodes * on_node
        elif per_gpu and not gpus.count:
            gpus = GpuRequest(-(-on_node // per_gpu))
        if per_gpu == 1:
            gpus_per_task = gpus_per_task or 1
        elif per_gpu:
            self._note("ntasks-per-gpu", "each process sees all GPUs of its node, not one of them")
        kind = self._gpu_type_of_constraint(gpus.count)
        gpus = replace(gpus, type=gpus.type or kind)
        cpus_per_task = self._value("cpus-per-task", values.count)
        said = cpus_per_task or asked or per_node or per_gpu
        cpus = on_node * (cpus_per_task or 1) if said else 0
        cpus = max(cpus, (self._value("cpus-per-gpu", values.count) or 0) * gpus.count)
        memory = self._value("mem", values.mebibytes) or (
            (self._value("mem-per-cpu", values.mebibytes) or 0) * max(cpus, 1)
            or (self._value("mem-per-gpu", values.mebibytes) or 0) * gpus.count
        )
        if self._text("mem") == "0":
            self._note("mem", "the memory of a whole node is not asked for; write how much it needs")
        return NodeShare(nodes, tasks, cpus, cpus_per_task or 0, gpus, gpus_per_task, memory)

    def _gpus(self, nodes: int, tasks: int) -> tuple[GpuRequest, int]:
        """GPUs of each node, which has this many tasks, and of each task (0 is unsaid)."""
        per_task = self._value("gpus-per-task", values.gpus)
        total = self._value("gpus", values.gpus)
        if total is not None and total.count % nodes:
            self._refuse("gpus", f"must be a multiple of the {nodes} nodes, which are alike here")
        asked = {
            "gpus": total and GpuRequest(total.count // nodes, total.type),
            "gpus-per-node": self._value("gpus-per-node", values.gpus),
            "gres": self._value("gres", values.gres),
            "gpus-per-task": per_task and GpuRequest(per_task.count * tasks, per_task.type),
        }
        said = {name: each for name, each in asked.items() if each is not None}
        name, gpus = next(iter(said.items()), ("", GpuRequest()))
        for other, each in said.items():
            if each.count != gpus.count or (each.type and gpus.type and each.type != gpus.type):
                self._note(other, f"is not used: --{name} says {gpus.count} GPUs of each node")
        kind = next((each.type for each in said.values() if each.type), "")
        return replace(gpus, type=kind), per_task.count if per_task else 0

    def _nodes_of_counts(self, tasks: int | None, per_node: int | None) -> int:
        """The nodes that numbers of tasks or GPUs come to, where --nodes is not given."""
        total = self._value("gpus", values.gpus)
        each = self._value("gpus-per-node", values.gpus) or self._value("gres", values.gres)
        per_gpu = self._value("ntasks-per-gpu", values.count)
        if each and per_gpu:
            per_node = per_node or each.count * per_gpu
        if tasks and per_node:
            return -(-tasks // per_node)
        if total and each and each.count:
            return -(-total.count // each.count)
        if tasks and tasks > 1:
            self._note("ntasks", f"all {tasks} run on one node; for several give --nodes")
        return 1

    def _gpu_type_of_constraint(self, gpus: int) -> str:
        """The types of GPUs that --constraint names, as many clusters use it; other features are noted."""
        parts = dict.fromkeys(filter(None, re.split(r"[|&,()*\[\]]+", self._text("constraint"))))
        known = {part: gpu_type(part) for part in parts if gpus and memory_gib(gpu_type(part)) is not None}
        kinds = list(dict.fromkeys(known.values()))
        if len(kinds) > 1 and "|" not in self._text("constraint"):
            self._note("constraint", f"{kinds[0]} is asked for; no node has GPUs of several types")
            del kinds[1:]
        if others := [part for part in parts if part not in known and not part.isdigit()]:
            self._note(
                "constraint",
                f"{', '.join(others)}: features of Slurm's nodes are not known; it may run on any node",
            )
        return either(kinds)

    def _hints(self, hints: dict[str, str]) -> dict[str, str]:
        hints |= self._value("dependency", values.dependencies) or {}
        if "hold" in self._found:
            hints["hold"] = "true"
        return hints

    def _exported(self, local: LocalFiles) -> dict[str, str]:
        """The variables that --export names; of the submitting environment only those named one by one."""
        env: dict[str, str] = {}
        for part in filter(None, self._text("export").split(",")):
            name, equals, value = part.partition("=")
            if equals:
                env[name] = value
            elif name in local.environ and name not in ("ALL", "NIL", "NONE"):
                env[name] = local.environ[name]
            elif name not in ("ALL", "NIL", "NONE"):
                self._note("export", f"{name} is not set where it is submitted")
            elif name == "ALL":
                self._note("export", "the variables of your shell do not go along; name those that it needs")
        return env

    def _command(self, name: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
        words, text = self.script.interpreter, self.script.text
        own = words[1:] if words and PurePosixPath(words[0]).name == "env" else words
        own = own[1:] if own[:1] == ("-S",) else own
        program = PurePosixPath(own[0]).name if own else ""
        if _SHELL.fullmatch(program):
            return (*words, "-c", text, name, *arguments)
        if _PYTHON.fullmatch(program):
            return (*words, "-c", text, *arguments)
        mend = "begin the script with #!/bin/bash, another shell, or python"
        self.report.errors.append(ManifestError(self.report.source, 0, "line 1", " ".join(words), mend))
        return ("true",)

    def _text(self, name: str) -> str:
        return self._found[name].value if name in self._found else ""

    def _value(self, name: str, read: Callable[[str], V]) -> V | None:
        """The value of an option; one that cannot be read is refused."""
        if name not in self._found:
            return None
        try:
            return read(self._found[name].value)
        except ValueError as bad:
            self._refuse(name, str(bad))
            return None

    def _refuse(self, name: str, mend: str) -> None:
        place = _place(self._found[name]) if name in self._found else f"--{name}"
        error = ManifestError(self.report.source, 0, place, self._text(name) or None, mend)
        if error.line not in {each.line for each in self.report.errors}:
            self.report.errors.append(error)

    def _note(self, name: str, text: str) -> None:
        self.report.notes.append(f"{_place(self._found[name])}: {text}")


def _place(directive: SbatchOption) -> str:
    return f"line {directive.line}, --{directive.name}" if directive.line else f"--{directive.name}"


def _least(text: str) -> int:
    """The least number of nodes: 2, or 2-4."""
    return values.count(text.partition("-")[0])


def _entering(chdir: str) -> str:
    """Lines that enter a directory of the submitted one."""
    if not chdir or chdir.startswith("/"):
        return ""
    word = "'" + chdir.replace("'", "'\\''") + "'"
    return f"cd {word} || exit 1\n"


@cache
def _program(name: str) -> str:
    return (Path(__file__).parent / f"{name}.sh").read_text(encoding="utf-8").rstrip("\n")


def _variables(job: CommandJob, share: NodeShare) -> dict[str, object]:
    """The values of SLURM_* that are known at submission; None is left out."""
    cpus, gpus = job.cpus or 1, job.gpus or None
    nodes, on_node = job.tasks, -(-share.tasks // job.tasks)
    return {
        "SLURM_NNODES": nodes,
        "SLURM_JOB_NUM_NODES": nodes,
        "SLURM_NODEID": 0,
        "SLURM_PROCID": 0,
        "SLURM_LOCALID": 0,
        "SLURM_NTASKS": share.tasks,
        "SLURM_NPROCS": share.tasks,
        "SLURM_TASKS_PER_NODE": values.by_node(share.tasks, nodes),
        "SLURM_NTASKS_PER_NODE": on_node,
        "SLURM_CPUS_PER_TASK": share.cpus_per_task or None,
        "SLURM_CPUS_ON_NODE": cpus,
        "SLURM_JOB_CPUS_PER_NODE": cpus if nodes == 1 else f"{cpus}(x{nodes})",
        "SLURM_GPUS": gpus and gpus * nodes,
        "SLURM_GPUS_ON_NODE": gpus,
        "SLURM_GPUS_PER_NODE": gpus,
        "SLURM_GPUS_PER_TASK": share.gpus_per_task or None,
        "SLURM_MEM_PER_NODE": share.memory_mib or None,
    }
