"""Where state lives on disk."""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from starburst.app.errors import UserError

#: How long to try for the lock: whoever asks who runs here holds it for a moment too.
LOCK_S = 0.5


@dataclass(frozen=True, slots=True)
class Home:
    """The directory of one Starburst: its store, and the embedded cluster's and cloud's own truth."""

    root: Path

    @classmethod
    def default(cls) -> Home:
        """STARBURST_HOME, else `starburst` in the XDG state directory.

        Raises:
            UserError: there is no home directory to put it in.
        """
        named = os.environ.get("STARBURST_HOME")
        state = os.environ.get("XDG_STATE_HOME", "")
        try:
            if named:
                return cls(Path(named).expanduser().absolute())
            # A relative path there is to be ignored, says the XDG specification.
            base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
        except RuntimeError:
            raise UserError("no home directory is known for this user; set STARBURST_HOME") from None
        return cls(base / "starburst")

    @property
    def database(self) -> Path:
        """The default store."""
        return self.root / "starburst.db"

    @property
    def cluster(self) -> Path:
        """Runs of the embedded cluster."""
        return self.root / "cluster"

    @property
    def cloud(self) -> Path:
        """Machines and runs of the embedded cloud."""
        return self.root / "cloud"

    @property
    def machines(self) -> Path:
        """The machines alone."""
        return self.cloud / "instances"

    @property
    def checkpoints(self) -> Path:
        """One directory per job, kept over attempts and sites."""
        return self.root / "checkpoints"

    def make(self) -> None:
        """Make the directory if there is none, for its owner only.

        Raises:
            UserError: it cannot be made or used.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        except FileExistsError:
            raise UserError(f"{self.root}: is not a directory; set STARBURST_HOME to one") from None
        except OSError as error:
            raise UserError(
                f"{self.root}: cannot be made ({error.strerror}); set STARBURST_HOME to a directory of yours"
            ) from None
        if not os.access(self.root, os.R_OK | os.W_OK | os.X_OK):
            raise UserError(
                f"{self.root}: cannot be read and written; set STARBURST_HOME to a directory of yours"
            )

    def lock(self) -> IO[str]:
        """Become the one scheduler of this home; held until the returned file is closed or the process ends.

        Raises:
            UserError: another process holds it, or the home cannot be used.
        """
        self.make()
        try:
            file = open(self._lock_path, "a+", opener=_private)  # noqa: SIM115 - closing it gives the lock up
        except OSError as error:
            raise UserError(f"{self._lock_path}: cannot be opened ({error.strerror}); remove it") from None
        give_up = time.monotonic() + LOCK_S
        while not _try_lock(file, fcntl.LOCK_EX):
            if time.monotonic() > give_up:
                file.seek(0)
                holder = file.read().strip() or "?"
                file.close()
                raise UserError(
                    f"{self.root}: another starburst runs here (pid {holder}); stop it, or set STARBURST_HOME"
                )
            time.sleep(LOCK_S / 20)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        return file

    def scheduler_pid(self) -> int | None:
        """The pid of the scheduler that holds this home; None if none does."""
        try:
            with self._lock_path.open() as file:
                return None if _try_lock(file, fcntl.LOCK_SH) else int(file.read().strip() or 0)
        except FileNotFoundError:
            return None

    @property
    def _lock_path(self) -> Path:
        return self.root / "scheduler.lock"


def _try_lock(file: IO[str], mode: int) -> bool:
    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
