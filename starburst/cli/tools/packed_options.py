"""Options of `starburst simulate --packer`, and which of them make sense together."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from sim.packing.demands import Share
from sim.spec import Spec, option
from starburst.app.errors import UserError
from starburst.policy.packing.registry import PACKERS

SHARE = Share()

#: Options that mean something without a cluster.
_PACKED = {
    *("packer", "catalog", "workloads", "colocation", "cpu_column", "period", "estimates"),
    *("known_colocation", "migration_delay", "uniform_throughput", "compare"),
}
_BEHIND = {"cpus_per_gpu", "memory_per_gpu"}
_ALWAYS = {"jobs", "nodes", "seed", "outcomes", "output"}
_ESTIMATES = "with nodes the scheduler itself says how long jobs run, and to every packer; leave it out"
_RETURNS = "no job comes back from a packed cloud, whose bill cannot be told apart by jobs"
#: What cannot be had with a packer, and why.
_NOT_PACKED = {
    "axes": "is for clouds without --packer; simulate one after the other",
    "bound": "is known of clouds without --packer, where each job has its own bill; leave it out",
    "out": "draws clouds without --packer; for the jobs of a packed one give --outcomes",
    "t_max": f"{_RETURNS}; leave it out",
    "data_gravity": "--workloads says how long jobs fetch what they need; leave it out",
    "cloud_delay": "--catalog says how long machines take to start; leave it out",
    "price_per_gpu_hour": "--catalog has the prices; leave it out",
}


@dataclass(frozen=True, slots=True)
class Packing:
    """What was asked for; `packer` is one of PACKERS. The fields are keys of `-o json`."""

    packer: str
    catalog: Path
    workloads: Path
    colocation: Path | None
    cpu_column: str | None
    period_s: float
    estimates: bool
    known_colocation: bool
    migration_delay: float
    uniform_throughput: float | None
    cpus_per_gpu: float
    memory_per_gpu: float
    compare: bool

    @property
    def title(self) -> str:
        """In a few words, for people."""
        return f"packed by {self.packer} every {self.period_s:g} s"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


@dataclass(frozen=True)
class PackedOptions:
    """The options of a packed cloud."""

    packer: Annotated[
        str | None,
        typer.Option(metavar="|".join(PACKERS), help="Policy that packs jobs onto shared rented machines."),
    ] = None
    catalog: Annotated[Path | None, typer.Option(metavar="CSV", help="Packed: what can be rented.")] = None
    workloads: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Packed: paces of workloads, and how long moves take.")
    ] = None
    colocation: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Packed: how fast workloads run beside each other.")
    ] = None
    cpu_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Packed: the catalog's column of CPUs [cpu, else vcpu]."),
    ] = None
    period: Annotated[float, typer.Option(metavar="S", help="Packed: from plan to plan; seconds.")] = 300.0
    estimates: Annotated[
        bool | None,
        typer.Option(
            "--estimates/--no-estimates", help="Packed: the packer knows how long jobs run [stratus does]."
        ),
    ] = None
    known_colocation: Annotated[
        bool | None,
        typer.Option(
            "--known-colocation/--learn-colocation",
            help="Packed: it knows --colocation, or learns it on the way [owl knows it].",
        ),
    ] = None
    migration_delay: Annotated[
        float, typer.Option(metavar="X", help="Packed: moves take so many times as long.")
    ] = 1.0
    uniform_throughput: Annotated[
        float | None,
        typer.Option(metavar="T", help="Packed: every pair runs at T of its pace, instead of --colocation."),
    ] = None
    cpus_per_gpu: Annotated[
        float, typer.Option(metavar="N", help="Packed: CPUs of a job in the cloud whose trace has none.")
    ] = SHARE.cpus
    memory_per_gpu: Annotated[
        float, typer.Option(metavar="GIB", help="Packed: its memory, if the trace has none.")
    ] = SHARE.memory_gib
    compare: Annotated[
        bool, typer.Option("--compare", help="Packed: simulate No-Packing too, and tell what is saved.")
    ] = False

    def packing(self, given: Collection[str], spec: Spec) -> Packing | None:
        """The options, checked; None if no packed cloud is asked for. `given`: the options that were typed.

        Raises:
            UserError: they make no sense together.
        """
        if self.packer is None:
            _check_unpacked(given, spec)
            return None
        packing = self._filled(self.packer)
        if spec.nodes:
            if "estimates" in given:
                raise UserError(f"--estimates: {_ESTIMATES}")
            packing = replace(packing, estimates=True)
        _check_values(packing)
        _check_together(given, packing, spec)
        return packing

    def _filled(self, packer: str) -> Packing:
        if packer not in PACKERS:
            close = get_close_matches(packer, PACKERS, 1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise UserError(f"--packer: {packer!r}: {hint}choose one of {', '.join(PACKERS)}")
        if self.catalog is None:
            raise UserError("--packer: needs to know what can be rented; give --catalog CSV")
        if self.workloads is None:
            raise UserError("--packer: needs to know how long moves take; give --workloads CSV")
        return Packing(
            packer=packer,
            catalog=self.catalog,
            workloads=self.workloads,
            colocation=self.colocation,
            cpu_column=self.cpu_column,
            period_s=self.period,
            estimates=packer == "stratus" if self.estimates is None else self.estimates,
            known_colocation=packer == "owl" if self.known_colocation is None else self.known_colocation,
            migration_delay=self.migration_delay,
            uniform_throughput=self.uniform_throughput,
            cpus_per_gpu=self.cpus_per_gpu,
            memory_per_gpu=self.memory_per_gpu,
            compare=self.compare,
        )


def _check_unpacked(given: Collection[str], spec: Spec) -> None:
    if stray := sorted((_PACKED | _BEHIND) & {*given}):
        raise UserError(f"{option(stray[0])}: is for a packed cloud; give --packer too, or leave it out")
    if spec.nodes == 0:
        raise UserError("--nodes: 0: without a cluster all jobs are in the cloud; give --packer, which packs")


def _check_values(packing: Packing) -> None:
    for name, more_than_0, most in (
        ("period_s", True, 1e9),
        ("migration_delay", False, 1e9),
        ("uniform_throughput", True, 1.0),
        ("cpus_per_gpu", False, 1e9),
        ("memory_per_gpu", False, 1e9),
    ):
        value = getattr(packing, name)
        if value is not None and not (0 <= value <= most and (value or not more_than_0)):
            least = "more than 0" if more_than_0 else "at least 0"
            raise UserError(f"{option(name)}: {value}: must be {least} and at most {most:g}")


def _check_together(given: Collection[str], packing: Packing, spec: Spec) -> None:
    for name, why in _NOT_PACKED.items():
        if name in given:
            raise UserError(f"{'--sweep' if name == 'axes' else option(name)}: {why}")
    if spec.waiting == "star":
        raise UserError(f"--waiting: star: {_RETURNS}; choose another policy")
    if packing.colocation is None and packing.uniform_throughput is None:
        raise UserError(
            "--packer: needs to know who slows whom; give --colocation CSV or --uniform-throughput T"
        )
    if packing.colocation is not None and packing.uniform_throughput is not None:
        raise UserError("--colocation: has no effect beside --uniform-throughput; leave one out")
    if packing.compare and packing.packer == "none":
        raise UserError("--compare: none is what the others are compared with; leave it out")
    if spec.nodes == 0 and (stray := sorted({*given} - _PACKED - _ALWAYS)):
        raise UserError(
            f"{option(stray[0])}: has no effect with --nodes 0, where all jobs are in the packed cloud; "
            "leave it out"
        )
