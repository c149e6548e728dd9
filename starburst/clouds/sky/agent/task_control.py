"""One task as the scheduler sees it: taken in, stopped, and looked at."""

from __future__ import annotations

import base64
import os
import signal
import stat
import zlib
from contextlib import suppress
from dataclasses import asdict
from typing import Any, cast

from starburst.clouds.sky.agent.protocol import TaskAnswer, TaskSpec
from starburst.clouds.sky.agent.task_dirs import (
    FILES,
    SECRETS,
    WAITS,
    facts,
    forget_secrets,
    kill_container,
    kill_group,
    kill_strays,
    private_umask,
    take_lock,
    touched,
    write_exit,
)
from starburst.runs.supervisor.exits import STOP, load_exit
from starburst.runs.supervisor.files import remove, write_json, write_reserved


def take_in(path: str, spec: TaskSpec) -> None:
    """Note what a task is to run, once; values of Secrets, logins and contents in files of their own."""
    os.makedirs(os.path.join(path, "work"), mode=0o700, exist_ok=True)
    noted = cast("dict[str, Any]", spec)
    secrets, logins, files = (noted.pop(key, None) for key in ("secrets", "logins", "files"))
    if facts(os.path.join(path, "spec.json")) is None:
        with private_umask():
            if secrets:  # first, for a task is known by its spec
                write_json(os.path.join(path, SECRETS), secrets)
            if logins:
                write_json(os.path.join(path, "logins.json"), {"logins": logins})
            if files:
                write_json(os.path.join(path, FILES), {"files": files})
            write_json(os.path.join(path, "spec.json"), noted)


def stop(path: str, grace_s: float) -> None:
    """End a task within its grace; a later stop can only shorten it. A task that never began cannot begin.

    Raises:
        OSError: the stop cannot be noted; a task that had not begun cannot begin all the same.
    """
    os.makedirs(path, exist_ok=True)
    lock = take_lock(path)
    if lock is None:
        tell(path, grace_s)
        return
    if not touched(path) and not kill_strays(path):  # its job may have removed what shows that it ran
        forget_secrets(path)
        try:
            write_exit(path, STOP, "stopped before it began")
        except OSError:  # a full disk: a task without a spec cannot begin
            remove(os.path.join(path, "spec.json"))
    os.close(lock)


def tell(path: str, grace_s: float) -> None:
    """Have a task's supervisor end it: by `stop.json`, which a SIGTERM makes it read."""
    told = (facts(os.path.join(path, "stop.json")) or {}).get("grace_s")
    if not isinstance(told, (int, float)) or told > grace_s:
        write_reserved(os.path.join(path, "stop.json"), {"grace_s": grace_s})
    supervisor = (facts(os.path.join(path, "started.json")) or {}).get("shim")
    if isinstance(supervisor, int) and supervisor > 1:
        with suppress(ProcessLookupError, PermissionError, OverflowError):
            os.kill(supervisor, signal.SIGTERM)  # the lock is held, so the number is still its own


def look(path: str, seen: int | None, max_bytes: int) -> TaskAnswer:
    """How a task stands, with its output from byte `seen` on; `more` when that is not all."""
    found = state(path)  # first, so that the output of a task that is over is complete
    log, more = (b"", False) if seen is None else read_log(os.path.join(path, "log"), seen, max_bytes)
    found["log"], found["more"] = _packed(log), more
    return found


def state(path: str) -> TaskAnswer:
    """How a task stands, without its output; `over` once nothing of it is alive.

    A free lock means that its supervisor is gone. Without an exit it was killed, so what it left behind is
    killed here; with one, only the task's control group, for the job may have written the exit itself.
    """
    lock = take_lock(path)
    alive = lock is None
    exit_ = load_exit(os.path.join(path, "exit.json"))
    over = not alive and touched(path)
    if over:
        over = not (kill_strays(path) if exit_ is None else kill_group(path) or kill_container(path))
    if over:  # what would have removed them may have been killed
        forget_secrets(path)
    if lock is not None and lock >= 0:
        os.close(lock)
    found = unknown_state(over=over)
    found["known"] = os.path.exists(os.path.join(path, "spec.json"))
    found["began"] = alive or touched(path)
    waits = facts(os.path.join(path, WAITS))
    found["started"] = waits is None and os.path.exists(os.path.join(path, "started.json"))
    found["waits"] = str((waits or {}).get("why", "")) if exit_ is None else ""
    found["exit"] = None if exit_ is None else asdict(exit_)
    return found


def unknown_state(*, over: bool) -> TaskAnswer:
    """The state of a task whose files tell nothing; it counts as begun, so that it cannot start again."""
    return {
        "known": False,
        "began": True,
        "started": False,
        "over": over,
        "exit": None,
        "log": _packed(b""),
        "more": False,
        "report": None,
        "trouble": "",
        "waits": "",
    }


def read_log(path: str, seen: int, max_bytes: int) -> tuple[bytes, bool]:
    """Output from byte `seen` on, and whether there is more; nothing if its job put no plain file there."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b"", False
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return b"", False
        found = os.pread(file, max_bytes + 1, seen)
        return found[:max_bytes], len(found) > max_bytes
    finally:
        os.close(file)


def _packed(log: bytes) -> str:
    return base64.b64encode(zlib.compress(log, 1)).decode()
