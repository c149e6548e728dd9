"""The file with the addresses of a gang's tasks, one a line by rank, as mpirun and its like read it."""

from __future__ import annotations

import os
from collections.abc import Sequence

#: The variable with its path, and its name beside the task's progress report.
VARIABLE, NAME = "STARBURST_HOSTS_FILE", "hosts"


def write_hosts(report_dir: str | os.PathLike[str], hosts: Sequence[str]) -> None:
    """Write it before the task starts; the task may run in an account of its own and reads it."""
    if not hosts:
        return
    path = os.path.join(report_dir, NAME)
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with open(number, "w", encoding="utf-8") as file:
        os.fchmod(number, 0o644)
        file.writelines(f"{host}\n" for host in hosts)
