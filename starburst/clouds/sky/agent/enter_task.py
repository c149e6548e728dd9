"""A command of a person beside a task of this machine, on the terminal of the login.

It has what the task has: in a container its image and account, else its namespaces, variables and account.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from starburst.clouds.sky.agent.containers.engine import EngineSilentError, NoEngineError, find_engine
from starburst.clouds.sky.agent.separation import as_root
from starburst.clouds.sky.agent.task_dirs import WAITS, facts, is_free, rank_dir
from starburst.runs.supervisor import enter as supervised

#: The exit code of a command that could not be run beside the task, as container engines have it.
NOT_ENTERED = 125


def enter(name: str, *command: str) -> NoReturn:
    """Run a command beside the task named job/attempt/rank, and exit with its code."""
    path = rank_dir(name)
    spec = facts(os.path.join(path, "spec.json"))
    if spec is None or is_free(path):
        _refuse("it does not run now")
    if spec["docker"] is not None:
        _in_container(path, str(spec["docker"]["name"]), command)
    if spec.get("seclusion") and os.geteuid() != 0:
        agent = [sys.executable, "-I", os.path.abspath(sys.argv[0]), "enter", name, *command]
        terminal = {key: os.environ[key] for key in ("PATH", "TERM") if key in os.environ}
        _become(as_root(*agent, **terminal))
    try:
        sys.exit(supervised.enter(Path(path), command))
    except supervised.EnterError as error:
        _refuse(str(error))


def _in_container(path: str, name: str, command: tuple[str, ...]) -> NoReturn:
    if os.path.exists(os.path.join(path, WAITS)):
        _refuse("its container does not run yet")
    try:
        engine = find_engine()
    except (NoEngineError, EngineSilentError) as error:
        _refuse(str(error))
    terminal = ["-t"] if sys.stdin.isatty() else []
    _become(engine.command("exec", "-i", *terminal, name, *command))


def _become(argv: list[str]) -> NoReturn:
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        _refuse(f"{argv[0]}: {error.strerror}")


def _refuse(why: str) -> NoReturn:
    print(f"error: {why}", file=sys.stderr)
    sys.exit(NOT_ENTERED)
