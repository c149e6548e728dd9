"""CPUs of a task's own, on a machine that several tasks share."""

from __future__ import annotations

import fcntl
import os

from starburst.clouds.sky.agent.task_dirs import base, facts, is_free, task_dirs
from starburst.runs.supervisor.files import write_json


def bind_cpus(path: str, count: int) -> None:
    """Bind this process and its children to `count` CPUs that no other task has, if so many are free."""
    own = sorted(os.sched_getaffinity(0))
    guard = os.open(os.path.join(base(), "cpus.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(guard, fcntl.LOCK_EX)
    try:
        taken = set()
        for other in task_dirs():
            cpus = cpus_of(other)
            if cpus and other != path and not is_free(other):
                taken.update(cpus)
        free = [cpu for cpu in own if cpu not in taken]
        chosen = free[:count] if 0 < count <= len(free) else []
        write_json(os.path.join(path, "cpus.json"), {"cpus": chosen})
        if chosen:
            os.sched_setaffinity(0, chosen)
    finally:
        os.close(guard)


def cpus_of(path: str) -> list[int]:
    """The CPUs that a task was bound to; none if its job has put something else there."""
    cpus = (facts(os.path.join(path, "cpus.json")) or {}).get("cpus")
    return [cpu for cpu in cpus if isinstance(cpu, int)] if isinstance(cpus, list) else []
