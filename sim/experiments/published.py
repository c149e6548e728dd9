"""Our runs beside published numbers: policies as the published scripts set them, savings, commands, pages."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from sim.experiments.shared import RESULTS
from sim.outcomes import Result
from sim.run import run
from sim.spec import Spec, option
from sim.sweep import no_wait
from sim.trace import Trace
from starburst.policy.waiting import STAR_X

#: Hours: Star-Wait's T_max in the published scripts, and the run time below which a job is a short one.
T_MAX_H = 0.25


@dataclass(frozen=True, slots=True)
class Compared:
    """One simulation, and No-Wait on the same cluster."""

    spec: Spec
    result: Result
    no_wait: Result

    @property
    def saved(self) -> float:
        """Percent of No-Wait's cloud cost; negative if it costs more."""
        base = self.no_wait.cloud_cost
        return 100 * (1 - self.result.cloud_cost / base) if base else 0.0

    @property
    def longer(self) -> float:
        """By how many percent the mean JCT is longer than under No-Wait."""
        return 100 * (self.result.mean_jct_h / self.no_wait.mean_jct_h - 1)

    def __str__(self) -> str:
        """As the paper writes it: saving (change of JCT); a dash where No-Wait pays nothing."""
        if not self.no_wait.cloud_cost:
            return "–"
        return f"{self.saved:.1f} % ({self.longer:+.1f} %)"


def compare(trace: Trace, specs: Mapping[str, Spec]) -> dict[str, Compared]:
    """Simulate all, and No-Wait once for every cluster among them; the array engine where it can."""
    bases: dict[Spec, Result] = {}
    done = {}
    for name, spec in specs.items():
        alone = no_wait(spec)
        if alone not in bases:
            bases[alone] = run(trace, alone).result
        result = bases[alone] if spec == alone else run(trace, spec).result
        done[name] = Compared(spec, result, bases[alone])
    return done


def paper_policies(
    base: Spec, *, constant_h: float, alpha: float, beta_r_h: float, queue_cap: int
) -> dict[str, Spec]:
    """The policies of figure 7 with the factors of the artifact's script for it (`fig7.sh`).

    `beta_r_h`: hours per GPU; β = X·β_r. The cap holds for Star-Wait and Compute-Wait, as in that script.
    """
    constant = replace(base, waiting="constant", factor=constant_h)
    ours = replace(base, out_of_order=True, queue_cap=queue_cap)
    return {
        "No-Wait": no_wait(base),
        "Constant-Wait": constant,
        "Constant-Wait + No-Short-Jobs": replace(constant, no_short_jobs_h=T_MAX_H),
        "Star-Wait": replace(ours, waiting="star", factor=STAR_X * beta_r_h, t_max_h=T_MAX_H),
        "Compute-Wait": replace(ours, waiting="compute", factor=alpha),
        "Compute-Wait, no cap": replace(ours, waiting="compute", factor=alpha, queue_cap=None),
    }


def equal_budget(trace: Trace, base: Spec, waiting: str, percent: float) -> Spec:
    """A policy whose waits, if all were sat out, sum to B = P/100 · Σt; for Star-Wait β = X·β_r.

    Paper, section "Wait budget". Its α = P/(100·E[r]) takes sizes and run times as independent; here it is
    B/Σ(r·t), which the factors in its scripts are.
    """
    budget_h = percent / 100 * float(np.sum(trace.duration_h))
    weight = {
        "constant": float(len(trace)),
        "runtime": float(np.sum(trace.duration_h)),
        "resource": float(np.sum(trace.gpus)),
        "star": float(np.sum(trace.gpus)) / STAR_X,
        "compute": float(np.dot(trace.gpus, trace.duration_h)),
    }[waiting]
    t_max_h = T_MAX_H if waiting == "star" else None
    return replace(base, waiting=waiting, factor=budget_h / weight, t_max_h=t_max_h)


def command(spec: Spec, file: str) -> str:
    """The command line that simulates a spec."""
    words = ["starburst simulate", file]
    for field in fields(Spec):
        value: Any = getattr(spec, field.name)
        if value is True:
            words.append(option(field.name))
        elif value != field.default:
            words.append(
                f"{option(field.name)} {value:.10g}"
                if isinstance(value, float)
                else f"{option(field.name)} {value}"
            )
    return " ".join(words)


def commands(specs: Sequence[Spec], file: str) -> str:
    """Their command lines as a block of a page."""
    return "\n".join(["```console", *(f"$ {command(spec, file)}" for spec in specs), "```"])


def progress(what: str) -> None:
    """A line that says what is done next, after the CPU seconds that went so far."""
    print(f"{time.process_time():7.1f} CPU s  {what}", flush=True)


def write_page(name: str, parts: Sequence[str]) -> None:
    """Write docs/results/NAME.md."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    progress(f"docs/results/{name}.md is written")
