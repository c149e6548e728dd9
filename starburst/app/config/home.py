"""Where state lives on disk."""

from __future__ import annotations

import errno
import os
import pwd
import stat
import time
from dataclasses import dataclass
from pathlib import Path

import structlog

from starburst.app.daemon.home_lock import HomeLock, LockHolder, lock_holder, lock_home
from starburst.app.errors import UserError

log = structlog.get_logger()

#: How long to try for the lock: whoever asks who runs here holds it for a moment too.
LOCK_S = 0.5
FULL = (errno.ENOSPC, errno.EDQUOT)


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

    def lock(self) -> HomeLock:
        """Become the one scheduler of this home; held until what is returned is closed or the process ends.

        Others than its owner then have no business in it.

        Raises:
            UserError: another process holds it, it is another user's, or it cannot be used.
        """
        self.make()
        self._make_private()
        give_up = time.monotonic() + LOCK_S
        while True:
            try:
                held = lock_home(self.root)
            except OSError as error:
                mend = "free some room there" if error.errno in FULL else "look at its owner and mode"
                raise UserError(f"{self.root}: cannot be locked ({error.strerror}); {mend}") from None
            if held is not None:
                return held
            if time.monotonic() > give_up:
                pid = self.scheduler_pid() or "?"
                raise UserError(
                    f"{self.root}: another starburst runs here (pid {pid}); stop it, or set STARBURST_HOME"
                )
            time.sleep(LOCK_S / 20)

    def scheduler_pid(self) -> int | None:
        """The pid of the scheduler that holds this home, 0 if it cannot be told; None if none does."""
        said = self.scheduler()
        return None if said is None else said.pid

    def scheduler(self) -> LockHolder | None:
        """What the scheduler that holds this home says of itself; None if none does."""
        try:
            return lock_holder(self.root)
        except OSError as error:
            return LockHolder(
                0, "the home is out of reach", f"{self.root}: cannot be looked at ({error.strerror})"
            )

    def exposed(self) -> str:
        """To whom else the home is open, a sentence with the mend; "" if to nobody.

        Raises:
            UserError: it is another user's.
        """
        found = self.root.stat()
        if found.st_uid not in (os.geteuid(), 0):  # root's, such as a mounted volume: root reads all anyway
            raise UserError(
                f"{self.root}: belongs to the user {user_name(found.st_uid)}; "
                "set STARBURST_HOME to a directory of yours"
            )
        mode = stat.S_IMODE(found.st_mode)
        if not mode & 0o077:
            return ""
        return f"{self.root}: others may look into it (mode {mode:04o}); run: chmod 700 {self.root}"

    def _make_private(self) -> None:
        """Close an open home to others, where it is ours to do so; new files in it are private anyway."""
        if not self.exposed():
            return
        try:
            self.root.chmod(0o700)
        except OSError:
            return  # root's: `doctor` says it
        log.warning("home-closed", home=str(self.root), note="it was open to other users of this machine")


def user_name(uid: int) -> str:
    """A user's name, or number if there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
