"""Whether this machine keeps its tasks apart, from each other and from its user; looked at once per boot.

It takes root, by a sudo without a password, and a kernel that lets root make namespaces, which it does not in
most containers. Where that is not to be had, tasks run as the machine's user, and each exchange says why.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from starburst.clouds.sky.agent import firewall
from starburst.clouds.sky.agent.protocol import Separation
from starburst.clouds.sky.agent.task_account import LAST_ID, plan_of
from starburst.clouds.sky.agent.task_dirs import base, facts
from starburst.runs.supervisor import seclusion
from starburst.runs.supervisor.files import write_json
from starburst.runs.supervisor.lease import boot_id

#: Seconds for root to find out.
TRIAL_S = 20.0


class RootRefusedError(Exception):
    """Root did not do what it was asked for."""


def as_root(*command: str, **env: str) -> list[str]:
    """A command line that root runs, with these variables; they are all that sudo lets through."""
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    pairs = {"HOME": os.path.expanduser("~"), **env}
    return [*sudo, "env", *(f"{key}={value}" for key, value in pairs.items()), *command]


def known() -> Separation | None:
    """What was found out; None if nothing in this boot."""
    found = facts(_path())
    if found is None or found.get("boot") != boot_id():
        return None
    tasks, network = str(found.get("tasks", "")), str(found.get("network", ""))
    return {"boot": boot_id(), "tasks": tasks, "network": network}


def separation() -> Separation:
    """What was found out in this boot, now at the latest.

    Raises:
        OSError: it cannot be found out now, or not written down.
    """
    found = known()
    if found is None:
        tasks, network = _find_out()
        found = {"boot": boot_id(), "tasks": tasks, "network": network}
        write_json(_path(), found)
    return found


def ask_root(verb: str, request: dict[str, Any], *, seconds: float = TRIAL_S) -> dict[str, Any]:
    """What this agent answers to a verb as root.

    Raises:
        RootRefusedError: the machine's user cannot become root, or root failed.
        OSError: root does not answer in time; it may be busy.
    """
    agent = [sys.executable, "-I", os.path.abspath(sys.argv[0])]
    argv = as_root(*agent, verb, PATH=os.environ.get("PATH", os.defpath))
    text = json.dumps(request)
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:  # nothing is found out by that
        raise OSError(f"root does not answer within {seconds:g} s") from error
    except OSError as error:
        raise RootRefusedError(f"its user cannot become root: {error}") from error
    if done.returncode != 0:
        why = done.stderr.strip().rpartition("\n")[2] or "sudo failed"
        raise RootRefusedError(f"its user cannot become root: {why}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _find_out() -> tuple[str, str]:
    try:
        said = ask_root("separate", {})
    except RootRefusedError as error:
        return str(error), ""
    return str(said["tasks"]), str(said["network"])


def separate(_request: dict[str, Any]) -> dict[str, str]:
    """As root: why tasks cannot be kept apart, and why not from what listens here; "" where they can."""
    tasks = _trial()
    return {"tasks": tasks, "network": "" if tasks else firewall.close()}


def _trial() -> str:
    """Why this kernel does not let a task be kept apart; "" if a process without a task was."""
    with tempfile.TemporaryDirectory(dir=base()) as folder:
        plan = plan_of(LAST_ID, [os.path.join(folder, "own")], [], os.path.join(folder, "tmp"))
        heard, said = os.pipe()
        trial = os.fork()
        if trial == 0:
            os.dup2(said, 2)
            seclusion.attempt(json.dumps(plan))
        os.close(said)
        with open(heard, "rb") as answer:
            why = answer.read().decode(errors="replace")
        status = os.waitpid(trial, 0)[1]
    return "" if status == 0 else why or "a trial was killed"


def _path() -> str:
    return os.path.join(base(), "separation.json")
