"""Entry point of the agent: `python -I agent.pyz VERB`, on a machine that has nothing but a Python 3.9.

`exchange`, `retire`, `uploads`, `confirm` and `pull` take a request as JSON on stdin and answer with JSON on
stdout; the types are in `protocol.py`. So do `separate`, `close`, `give` and `pin`, which the agent asks of
itself as root. Other verbs are processes of their own: `run DIR HOW` is what an exchange starts for a task,
`supervise DIR` runs its command, `contain` is that command for a task with an image, `prefetch DIR` pulls an
image ahead of its task, `switch` is the machine's dead-man switch, and `enter JOB/ATTEMPT/RANK COMMAND…` is a
person's command beside a task, on the terminal of the login. Locks and files decide, so that a task that is
to start twice runs once.
"""

from __future__ import annotations

import json
import signal
import sys
from importlib import import_module

#: Where the function of a verb is. It is imported when it is asked for: exchanges are frequent, and modules
#: of an archive are compiled by every process anew.
ANSWERS = {
    "exchange": "starburst.clouds.sky.agent.exchange",
    "separate": "starburst.clouds.sky.agent.separation",
    "close": "starburst.clouds.sky.agent.containers.egress",
    "give": "starburst.clouds.sky.agent.containers.container_user",
    "pin": "starburst.clouds.sky.agent.containers.pinned",
    "retire": "starburst.clouds.sky.agent.dead_man_switch",
    "uploads": "starburst.clouds.sky.agent.containers.uploads",
    "confirm": "starburst.clouds.sky.agent.containers.confirm",
    "pull": "starburst.clouds.sky.agent.containers.prefetch",
}
PROCESSES = {
    "run": "starburst.clouds.sky.agent.run_task",
    "supervise": "starburst.runs.supervisor.supervisor",
    "contain": "starburst.clouds.sky.agent.containers.life",
    "prefetch": "starburst.clouds.sky.agent.containers.prefetch",
    "switch": "starburst.clouds.sky.agent.dead_man_switch",
    "enter": "starburst.clouds.sky.agent.enter_task",
}


def main() -> None:
    """Do what the command line names."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a login may ignore it: then no child has an exit code
    verb, *arguments = sys.argv[1:]
    if verb in PROCESSES:
        getattr(import_module(PROCESSES[verb]), verb)(*arguments)
    else:
        answer = getattr(import_module(ANSWERS[verb]), verb)(json.load(sys.stdin))
        json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
