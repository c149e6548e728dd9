"""The title of a figure: which jobs, and on which cluster."""

from __future__ import annotations

from collections.abc import Sequence

from sim.spec import Spec
from sim.trace import Trace


def title_of(trace: Trace, specs: Sequence[Spec]) -> str:
    """One line: "trace.csv: 1,200 jobs on 64 × 8 GPUs"."""
    sizes = {f"{spec.nodes} × {spec.gpus_per_node} GPUs" for spec in specs}
    cluster = "several clusters" if len(sizes) > 1 else min(sizes)
    return f"{trace.name}: {len(trace):,} jobs on {cluster}".removeprefix(": ")
