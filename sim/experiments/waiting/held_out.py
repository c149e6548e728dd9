"""The wait budget on traces that its control was not designed on; the protocol: docs/results/held-out.md."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sim.experiments.shared import SHARED, gpu_jobs
from sim.readers.formats import read
from sim.readers.published.dlrm import read_dlrm
from sim.run import chosen, estimates
from sim.spec import Spec
from sim.trace import Trace

COMMAND = "python -m sim.experiments.waiting.held_out"
PERCENTS = (5.0, 10.0, 25.0, 50.0)
#: Budgets of a rival's curve, percent; fewer of those that only the core simulates.
CURVE = tuple(float(percent) for percent in np.geomspace(2, 1000, 22))
LEAVE_CURVE = CURVE[::3]
SHORT_H = 1 / 6
#: What the scheduler is told of run times, by the names of the page.
ESTIMATES: dict[str, dict[str, Any]] = {
    "right": {},
    "wrong": {"estimate_error": 100.0},
    "given": {"runtime_estimates": "given"},
    "uncorrected": {"runtime_estimates": "given"},
    "none": {"runtime_estimates": "none"},
    "limits": {"runtime_estimates": "limits"},
    "limits-alone": {"runtime_estimates": "limits"},
}
#: Where the logs lie; RICC has to be put there (https://www.cs.huji.ac.il/labs/parallel/workload/l_ricc/).
TRACES = Path(os.environ.get("STARBURST_TRACES") or SHARED / "cases" / "traces")


@dataclass(frozen=True, slots=True)
class HeldOutCase:
    """A trace at one size."""

    file: str
    #: No-Wait's share of GPU-hours in the cloud that the size was chosen for, percent.
    sends: int
    nodes: int
    gpus_per_node: int
    #: Factor of the arrival times.
    pace: float = 1.0
    #: The jobs from this number to before that one; None is the end of the log.
    first: int = 0
    last: int | None = None
    #: Of the DLRM log: instances that ask for no GPU; each is one slot.
    is_cn: bool = False

    @property
    def name(self) -> str:
        """The trace and the share that No-Wait sends away."""
        part = f" from job {self.first:,}" if self.first else ""
        return f"{NAMES[self.file]}{' CN' * self.is_cn}{part} {self.sends} %"

    def trace(self) -> Trace:
        """Jobs that ask for GPUs and ran, without demands for CPUs and memory."""
        path = TRACES / self.file
        whole = read_dlrm(path, None, "CN")[0] if self.is_cn else read(path).trace
        kept = np.flatnonzero((self.is_cn | (whole.gpus > 0)) & (whole.duration_h > 0))[
            self.first : self.last
        ]
        gpus = np.ones(len(kept), np.int64) if self.is_cn else whole.gpus[kept]
        arrival_h = whole.arrival_h[kept]
        trace = gpu_jobs((arrival_h - arrival_h[0]) * self.pace, whole.duration_h[kept], gpus)
        return replace(
            trace,
            estimate_h=None if whole.estimate_h is None else whole.estimate_h[kept],
            users=None if whole.users is None else [whole.users[at] for at in kept],
        )

    def spec(self) -> Spec:
        """The cluster, and a calibrated budget."""
        return Spec(
            nodes=self.nodes,
            gpus_per_node=self.gpus_per_node,
            binpack="best-fit",
            out_of_order=True,
            budget_mode="calibrated",
        )


NASA, DLRM, LORA = (
    "NASA-iPSC-1993-3.1-cln.swf.gz",
    "disaggregated_DLRM_trace.csv.gz",
    "lora_request_trace.csv.gz",
)
OPENB, LCG, RICC = "openb_pod_list_default.csv.gz", "LCG.swf.gz", "RICC-2010-2.swf.gz"
PHILLY = "../philly.csv"
NAMES = {PHILLY: "Philly", NASA: "NASA", DLRM: "DLRM", LORA: "LoRA", OPENB: "openb", LCG: "LCG", RICC: "RICC"}


def _part(file: str, first: int, *nodes: int) -> list[HeldOutCase]:
    """10,000 jobs of a log from this one on, at the sizes for 10, 30 and 60 %."""
    return [
        HeldOutCase(file, sends, n, 8, first=first, last=first + 10_000)
        for sends, n in zip((10, 30, 60), nodes, strict=True)
    ]


#: The final run; openb is one of the traces of the design.
CASES = {
    "dlrm": [HeldOutCase(DLRM, sends, nodes, 1) for sends, nodes in ((10, 145), (30, 94), (60, 47))],
    "cn": [HeldOutCase(DLRM, at, nodes, 1, is_cn=True) for at, nodes in ((10, 466), (30, 315), (60, 166))],
    "nasa": [HeldOutCase(NASA, at, 16, 8, pace) for at, pace in ((10, 0.9993), (30, 0.9255), (60, 0.3675))],
    "lora": [HeldOutCase(LORA, sends, nodes, 1) for sends, nodes in ((10, 4), (30, 2), (60, 1))],
    "lcg-20": _part(LCG, 20_000, 143, 105, 54),
    "lcg-40": _part(LCG, 40_000, 102, 82, 51),
    "lcg": _part(LCG, 60_000, 81, 46, 23),
    "lcg-80": _part(LCG, 80_000, 193, 120, 65),
    "lcg-100": _part(LCG, 100_000, 93, 67, 37),
    "lcg-120": _part(LCG, 120_000, 100, 72, 42),
    "lcg-140": _part(LCG, 140_000, 182, 134, 56),
    "lcg-160": _part(LCG, 160_000, 96, 53, 25),
    "philly-10": _part(PHILLY, 10_000, 66, 51, 26),
    "philly-20": _part(PHILLY, 20_000, 71, 40, 17),
    "philly-30": _part(PHILLY, 30_000, 69, 47, 28),
    "philly-40": _part(PHILLY, 40_000, 80, 56, 30),
    "philly-50": _part(PHILLY, 50_000, 65, 43, 23),
    "philly-60": _part(PHILLY, 60_000, 49, 34, 18),
    "philly-70": _part(PHILLY, 70_000, 60, 39, 19),
    "lcg-0": _part(LCG, 0, 86, 58, 26),
    "lcg-50": _part(LCG, 50_000, 189, 138, 68),
    "lcg-170": _part(LCG, 170_000, 230, 162, 76),
    "ricc-0": _part(RICC, 0, 2399, 1104, 429),
    "ricc-50": _part(RICC, 50_000, 2391, 1263, 452),
    "ricc-100": _part(RICC, 100_000, 1370, 1036, 475),
    "ricc-150": _part(RICC, 150_000, 652, 474, 232),
    "ricc-200": _part(RICC, 200_000, 335, 262, 150),
    "ricc-250": _part(RICC, 250_000, 202, 75, 43),
    "ricc-300": _part(RICC, 300_000, 3616, 2719, 1952),
    "ricc-350": _part(RICC, 350_000, 1507, 995, 427),
    "ricc-400": _part(RICC, 400_000, 2436, 1620, 716),
    "openb": [HeldOutCase(OPENB, sends, nodes, 8) for sends, nodes in ((10, 5), (30, 3), (60, 1))],
}


@dataclass(frozen=True, slots=True)
class HeldOutRun:
    """One simulation: realised increase of mean JCT, percent; cost, GPU-hours; p99 of the slowdowns."""

    case: str
    policy: str
    estimates: str
    percent: float
    increase: float
    cost: float
    p99: float


def simulated(case: HeldOutCase, trace: Trace, spec: Spec, policy: str, kind: str = "right") -> HeldOutRun:
    """Run it, by the faster engine that can."""
    spec = replace(spec, **ESTIMATES[kind])
    guess_h = estimates(trace, spec)
    if kind not in ("given", "limits"):  # whose they are tells the core what they are worth
        trace = replace(trace, users=None)
    out = chosen("auto", trace, guess_h, spec)[1](trace, guess_h, spec)
    taken_h = out.end_h - trace.arrival_h
    increase = 100 * float((taken_h - trace.duration_h).sum() / trace.duration_h.sum())
    p99 = float(np.percentile(taken_h / np.maximum(trace.duration_h, SHORT_H), 99))
    return HeldOutRun(case.name, policy, kind, spec.budget_percent, increase, float(out.charged.sum()), p99)


def controlled(case: HeldOutCase, kind: str) -> Iterator[HeldOutRun]:
    """The control under every budget."""
    trace, spec = case.trace(), case.spec()
    for percent in PERCENTS:
        yield simulated(case, trace, replace(spec, budget_percent=percent), "control", kind)


def ends(case: HeldOutCase) -> Iterator[HeldOutRun]:
    """What no job's waiting costs, and what can be spent at most."""
    trace, loose = case.trace(), replace(case.spec(), budget_mode="open")
    for waiting in ("no-wait", "infinite"):
        yield simulated(case, trace, replace(loose, waiting=waiting), waiting)


def curve(
    case: HeldOutCase, hopeless: str, percents: tuple[float, ...], kind: str = "right"
) -> Iterator[HeldOutRun]:
    """A rival whose budget is chosen in hindsight: open loop, sitting hopeless waits out or leaving."""
    trace, loose = case.trace(), replace(case.spec(), budget_mode="open", hopeless=hopeless)
    for percent in percents:
        yield simulated(case, trace, replace(loose, budget_percent=percent), f"open, {hopeless}", kind)


STAGES: dict[str, Callable[[HeldOutCase], Iterator[HeldOutRun]]] = {
    "right": lambda case: controlled(case, "right"),
    "ends": ends,
    "open": lambda case: curve(case, "wait", CURVE),
    "wrong": lambda case: controlled(case, "wrong"),
    "leave": lambda case: curve(case, "leave", LEAVE_CURVE),
    "given": lambda case: controlled(case, "given"),
    "uncorrected": lambda case: controlled(case, "uncorrected"),
    "none": lambda case: controlled(case, "none"),
}


def main() -> None:
    """A line of JSON per run; arguments are names of traces and of stages, all if none is named."""
    names, stages = ([word for word in sys.argv[1:] if word in known] or known for known in (CASES, STAGES))
    for stage in stages:
        for name in names:
            for case in CASES[name]:
                for run in STAGES[stage](case):
                    print(json.dumps(asdict(run)), flush=True)


if __name__ == "__main__":
    main()
