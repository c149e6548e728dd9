"""Options of `starburst simulate`: the simulated cluster and its policies."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from sim.run import ENGINES
from sim.spec import CHOICES, Spec
from starburst.app.errors import UserError
from starburst.cli.output import Format, OutputOption
from starburst.cli.tools.packed_options import PackedOptions
from starburst.cli.tools.traces import EstimatesOption, HistoryOption, JobsArgument, OnOption, known_estimates

DEFAULT = Spec()


def one_of(field: str) -> str:
    """A policy's choices, for help."""
    return "|".join(CHOICES[field])


@dataclass(frozen=True)
class SpecOptions:
    """The cluster, the policies and the cloud; hours unless said otherwise."""

    nodes: Annotated[int, typer.Option(help="Nodes of the cluster; 0 only with --packer.")] = DEFAULT.nodes
    gpus_per_node: Annotated[int, typer.Option(help="GPUs of a node.")] = DEFAULT.gpus_per_node
    cpus_per_node: Annotated[float, typer.Option(help="CPUs of a node.")] = DEFAULT.cpus_per_node
    memory_gib_per_node: Annotated[float, typer.Option(metavar="GIB", help="Memory of a node; GiB.")] = (
        DEFAULT.memory_gib_per_node
    )
    waiting: Annotated[str, typer.Option(metavar=one_of("waiting"), help="Policy by which jobs wait.")] = (
        DEFAULT.waiting
    )
    factor: Annotated[float | None, typer.Option(metavar="K", help="The policy's factor; hours.")] = None
    budget: Annotated[
        float | None,
        typer.Option(metavar="P", help="Budget P, from which the factor follows; percent [25]."),
    ] = None
    budget_mode: Annotated[
        str,
        typer.Option(metavar=one_of("budget_mode"), help="Whether the factor follows what is spent of P."),
    ] = DEFAULT.budget_mode
    hopeless: Annotated[
        str, typer.Option(metavar=one_of("hopeless"), help="What a job does that cannot start in time.")
    ] = DEFAULT.hopeless
    cpu_offload: Annotated[bool, typer.Option("--cpu-offload", help="Jobs without GPUs leave at once.")] = (
        False
    )
    no_short_jobs: Annotated[
        float, typer.Option(metavar="H", help="Shorter jobs leave at once; hours, 0 is off.")
    ] = DEFAULT.no_short_jobs_h
    t_max: Annotated[
        float | None, typer.Option(metavar="H", help="Runs in the cloud come home after this; hours.")
    ] = None
    max_wait: Annotated[float, typer.Option(metavar="H", help="Nothing waits longer; hours.")] = (
        DEFAULT.max_wait_h
    )
    max_slowdown: Annotated[
        float | None,
        typer.Option(metavar="X", help="No job waits so long that it takes X times its estimated run time."),
    ] = None
    order: Annotated[
        str, typer.Option(metavar=one_of("order"), help="Order of the queue; disciplines also place.")
    ] = DEFAULT.order
    out_of_order: Annotated[bool, typer.Option("--out-of-order", help="Skip jobs that do not fit.")] = False
    backfill: Annotated[bool, typer.Option("--backfill", help="Skip them if that delays none (EASY).")] = (
        False
    )
    backfill_rule: Annotated[
        str,
        typer.Option(metavar=one_of("backfill_rule"), help="Lifka's, or the published simulator's."),
    ] = DEFAULT.backfill_rule
    binpack: Annotated[
        str, typer.Option(metavar=one_of("binpack"), help="Rule by which a node is chosen.")
    ] = DEFAULT.binpack
    queue_cap: Annotated[int | None, typer.Option(metavar="Q", help="Longest queue; the last leaves.")] = None
    warmup: Annotated[int, typer.Option(metavar="N", help="Jobs at both ends that run but do not count.")] = (
        DEFAULT.warmup
    )
    runtime_estimates: EstimatesOption = None
    estimate_error: Annotated[
        float, typer.Option(metavar="PCT", help="Right estimates are off by up to this; percent.")
    ] = DEFAULT.estimate_error
    data_gravity: Annotated[
        float, typer.Option(metavar="H", help="A run in the cloud takes longer by this; hours.")
    ] = DEFAULT.data_gravity_h
    cloud_delay: Annotated[
        float, typer.Option(metavar="S", help="Start-up of a rented machine, billed; seconds.")
    ] = DEFAULT.cloud_delay_s
    price_per_gpu_hour: Annotated[float, typer.Option(metavar="D", help="Dollars.")] = (
        DEFAULT.price_per_gpu_hour
    )
    shares: Annotated[
        list[str] | None,
        typer.Option("--share", metavar="QUEUE=S", help="Its share under --order fair; may be repeated."),
    ] = None
    seed: Annotated[int, typer.Option(metavar="N", help="Same seed, same result.")] = DEFAULT.seed

    def spec(self, *, history: bool = False) -> Spec:
        """What is simulated; `history`: of this home's jobs, whose own estimates are known.

        Raises:
            UserError: options that exclude each other, or a share that is no number above 0.
        """
        if self.factor is not None and self.budget is not None and self.budget_mode != "calibrated":
            raise UserError("--factor: has no effect beside --budget; leave one out")
        return Spec(
            nodes=self.nodes,
            gpus_per_node=self.gpus_per_node,
            cpus_per_node=self.cpus_per_node,
            memory_gib_per_node=self.memory_gib_per_node,
            waiting=self.waiting,
            factor=self.factor,
            budget_percent=DEFAULT.budget_percent if self.budget is None else self.budget,
            budget_mode=self.budget_mode,
            hopeless=self.hopeless,
            cpu_offload=self.cpu_offload,
            no_short_jobs_h=self.no_short_jobs,
            t_max_h=self.t_max,
            max_wait_h=self.max_wait,
            max_slowdown=self.max_slowdown,
            order=self.order,
            out_of_order=self.out_of_order,
            backfill=self.backfill,
            backfill_rule=self.backfill_rule,
            binpack=self.binpack,
            queue_cap=self.queue_cap,
            warmup=self.warmup,
            runtime_estimates=self.runtime_estimates
            or known_estimates(history=history and not self.estimate_error),
            estimate_error=self.estimate_error,
            data_gravity_h=self.data_gravity,
            cloud_delay_s=self.cloud_delay,
            price_per_gpu_hour=self.price_per_gpu_hour,
            seed=self.seed,
            shares=tuple(map(_share, self.shares or ())),
        )


@dataclass(frozen=True)
class SimulateOptions:
    """All options of the command, in the order of `--help`."""

    context: typer.Context
    jobs: JobsArgument = None
    history: HistoryOption = False
    cluster: SpecOptions = field(default_factory=SpecOptions)
    engine: Annotated[str, typer.Option(metavar="|".join(ENGINES), help="Engine of the simulation.")] = "auto"
    outcomes: Annotated[Path | None, typer.Option(metavar="CSV", help="Write every job's story here.")] = None
    bound: Annotated[
        bool, typer.Option("--bound", help="How far from the best possible bill at the same delay.")
    ] = False
    axes: Annotated[
        list[str] | None,
        typer.Option("--sweep", metavar="OPTION=V,V,…", help="Simulate a grid of values; may be repeated."),
    ] = None
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the table and figures here.")] = None
    on: OnOption = ""
    packed: PackedOptions = field(default_factory=PackedOptions)
    output: OutputOption = Format.TABLE


def _share(text: str) -> tuple[str, float]:
    """A queue and its share."""
    queue, equals, share = text.rpartition("=")
    try:
        value = float(share)
    except ValueError:
        value = 0.0
    if not (queue and equals and 0 < value < math.inf):
        raise UserError(f"--share: {text!r}: write a queue and its share, a number above 0, as in research=3")
    return queue, value
