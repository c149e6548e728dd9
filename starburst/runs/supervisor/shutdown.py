"""What becomes of tasks when their machine shuts down: its system ends all that runs, with SIGTERM first.

A task that this ends has not ended by itself, whatever its exit code: one that saves its state exits with 0.
A cloud that takes a spot machine back with notice, a reboot and `sky stop` end tasks this way; after a reboot
the exit is still on the disk. Tasks and supervisors need not be told at the same time, nor both of them: a
container and a control group of a task's own are in other units than what runs the task.
"""

from __future__ import annotations

import os
import signal

#: Seconds by which a task may hear of a shutdown before its supervisor does; for systemd to answer.
APART_S, ANSWER_S = 0.5, 5.0
#: What is there while systemd runs; its name as a process, which a user's own systemd has, too.
SYSTEMD, NAME = "/run/systemd/system", "systemd"
#: Both say how the system stands; the first needs a bus, which may be down already.
ASKS = (["systemctl", "is-system-running"], ["sudo", "-n", "systemctl", "is-system-running"])


class Shutdown:
    """Whether the system ends its tasks, as far as one supervisor can tell.

    SIGTERM has to be blocked in the calling thread. What asks for a stop sends it, too; the system's is told
    from that by its sender.
    """

    def __init__(self) -> None:
        #: The system has sent SIGTERM.
        self.heard = False

    def wait(self, wakers: set[signal.Signals], seconds: float) -> None:
        """Wait for one of these signals."""
        self._take(signal.sigtimedwait(wakers, seconds))

    def explains(self, exit_code: int) -> bool:
        """Whether a shutdown ended a task that ended just now; `exit_code` as Python has it."""
        by_sigterm = exit_code in (-signal.SIGTERM, 128 + signal.SIGTERM)
        self._take(signal.sigtimedwait({signal.SIGTERM}, APART_S if by_sigterm else 0))
        return self.heard or is_stopping()

    def _take(self, told: signal.struct_siginfo | None) -> None:
        if told is not None and told.si_signo == signal.SIGTERM:
            self.heard = self.heard or _is_system(told.si_pid)


def is_stopping() -> bool:
    """Whether systemd says that the machine shuts down; False where no systemd runs, or none answers."""
    import subprocess  # noqa: PLC0415 - not at the start of each task

    if not os.path.isdir(SYSTEMD):
        return False
    for ask in ASKS:
        try:
            done = subprocess.run(
                ask,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=ANSWER_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):  # the next one
            continue
        if said := done.stdout.strip():
            return said == b"stopping"
    return False


def _is_system(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return pid == 1 or file.read().strip() == NAME
    except OSError:
        return pid == 1
