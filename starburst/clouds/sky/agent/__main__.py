"""Entry point of the agent: `python -I agent.pyz VERB`, on a machine that has nothing but a Python 3.9.

`tend`, `submit` and `retire` take a request as JSON on stdin and answer with JSON on stdout; their types are
in `protocol.py`. The other verbs are processes of their own: `run DIR` is what a queue (Ray's or SkyPilot's)
starts for a task, `supervise DIR` runs its command, and `switch` is the machine's dead-man switch. Every verb
may be repeated: locks and files decide, so that a task which two queues start runs once.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from starburst.clouds.sky.agent import dead_man_switch, exchange, ray_queue, run_task
from starburst.runs.supervisor.supervisor import supervise

ANSWERS: dict[str, Callable[[Any], object]] = {
    "tend": exchange.tend,
    "submit": ray_queue.submit,
    "retire": dead_man_switch.retire,
}
PROCESSES: dict[str, Callable[[str], None]] = {"run": run_task.run, "supervise": supervise}


def main() -> None:
    """Do what the command line names."""
    verb = sys.argv[1]
    if verb == "switch":
        dead_man_switch.watch()
    elif verb in PROCESSES:
        PROCESSES[verb](sys.argv[2])
    else:
        json.dump(ANSWERS[verb](json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main()
