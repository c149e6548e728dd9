"""The core engine compiled by mypyc: the same sources, in a process of its own."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

from sim.compiled import build
from sim.compiled.worker import PROGRAM, plain
from sim.errors import SimulationError
from sim.outcomes import Outcomes
from sim.parallel import KILLED
from sim.spec import Spec
from sim.trace import Floats, Trace

#: With fewer jobs the process takes longer to start than the core takes in this one.
FEWEST_JOBS = 5_000


def simulate(trace: Trace, estimate_h: Floats, spec: Spec, tree: Path | None = None) -> Outcomes:
    """Run all jobs of the trace to their end, as `core_engine.simulate` does; `tree`: another copy.

    Raises:
        SimulationError: the copy cannot be made, or the system killed the process.
    """
    where = build.made() if tree is None else tree
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(where)],
        input=pickle.dumps((plain(trace), estimate_h, plain(spec))),
        stdout=subprocess.PIPE,
        cwd=where,
        check=False,
        start_new_session=True,  # Ctrl-C is for this process, which ends it
    )
    if done.returncode < 0:
        raise SimulationError(KILLED)
    done.check_returncode()
    return Outcomes(**pickle.loads(done.stdout))
