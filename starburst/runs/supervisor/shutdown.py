"""What becomes of tasks when their machine shuts down: all that runs gets SIGTERM, supervisors included.

A task that this ends has not ended by itself, whatever its exit code: one that saves its state exits with 0.
A cloud that takes a spot machine back with notice, a reboot and `sky stop` end tasks this way; after a reboot
the exit is still on the disk.
"""

from __future__ import annotations

import signal
import time

#: Seconds that a shutdown lasts at most: systemd gives each service 90. Who lives on was meant alone.
LASTS_S = 300.0
#: Seconds by which a task may hear of a shutdown before its supervisor does.
APART_S = 2.0


class ShutdownSignal:
    """Whether a supervisor, which gets SIGTERM for each stop, too, was told to end by the system.

    The number has to be blocked in the calling thread.
    """

    def __init__(self) -> None:
        self._heard_at: float | None = None

    def wait(self, wakers: set[signal.Signals], seconds: float) -> None:
        """Wait for one of these signals."""
        self._take(signal.sigtimedwait(wakers, seconds))

    def explains(self, exit_code: int) -> bool:
        """Whether a shutdown ended a task that ended just now; `exit_code` as Python has it.

        One that was ended by a SIGTERM may have had it first: then its supervisor's is waited for.
        """
        ended_so = exit_code in (-signal.SIGTERM, 128 + signal.SIGTERM)
        self._take(signal.sigtimedwait({signal.SIGTERM}, APART_S if ended_so else 0))
        return self._heard_at is not None and time.monotonic() - self._heard_at < LASTS_S

    def _take(self, signal_: signal.struct_siginfo | None) -> None:
        # Jobs run as others, or as users who are not root; what asks for stops says so in a file, too.
        if signal_ is not None and signal_.si_signo == signal.SIGTERM and signal_.si_uid == 0:
            self._heard_at = time.monotonic()
