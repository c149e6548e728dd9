"""The process in which the compiled copy simulates: a trace, estimates and a spec in, the outcomes out."""

from __future__ import annotations

import pickle
import sys
from dataclasses import fields
from typing import Any

from sim.engines import core_engine
from sim.spec import Spec
from sim.trace import Trace

#: Run with the directory of the copy as argument: its packages go before those that are installed.
PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from sim.compiled.worker import main; main()"


def plain(record: Any) -> dict[str, Any]:
    """The fields of a record, by name: its class is another one on the other side."""
    return {each.name: getattr(record, each.name) for each in fields(record)}


def main() -> None:
    """Pickles between two processes of one program, over pipes."""
    trace, estimate_h, spec = pickle.load(sys.stdin.buffer)
    outcomes = core_engine.simulate(Trace(**trace), estimate_h, Spec(**spec))
    pickle.dump(plain(outcomes), sys.stdout.buffer)
