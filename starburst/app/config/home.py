"""The home: the directory of all state."""

from __future__ import annotations

import errno
import os
import pwd
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkstemp

from starburst.app.daemon.home_lock import HomeLock, LockHolder, lock_holder
from starburst.app.errors import UserError

#: Wall seconds to try for the lock: a process that asks for the scheduler holds it for a moment, too.
LOCK_S = 0.5
FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Home:
    """The directory of one Starburst: its store, and the state of the embedded cluster and cloud."""

    root: Path
    #: The URL of the store if it is not the home's own file, as STARBURST_STORE or a config says; None: see
    #: `store`.
    url: str | None = None

    @classmethod
    def default(cls) -> Home:
        """STARBURST_HOME, otherwise `starburst` in the XDG state directory; with the store STARBURST_STORE.

        Raises:
            UserError: the user has no home directory, or STARBURST_STORE is no URL of PostgreSQL.
        """
        named, url = os.environ.get("STARBURST_HOME"), os.environ.get("STARBURST_STORE") or None
        if url is not None and not _is_postgres(url):
            raise UserError("STARBURST_STORE: is no URL such as postgresql://USER@HOST/DATABASE; correct it")
        state = os.environ.get("XDG_STATE_HOME", "")
        try:
            if named:
                return cls(Path(named).expanduser().absolute(), url)
            # The XDG specification ignores relative paths.
            base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
        except RuntimeError:
            raise UserError("no home directory is known for this user; set STARBURST_HOME") from None
        return cls(base / "starburst", url)

    @property
    def database(self) -> Path:
        """The SQLite file of the store."""
        return self.root / "starburst.db"

    @property
    def url_file(self) -> Path:
        """Names the store to all commands on this home, if that is not `database`."""
        return self.root / "store.url"

    @property
    def store(self) -> Path | str:
        """The store: a database URL, or the SQLite file."""
        if self.url is not None:
            return self.url
        with suppress(FileNotFoundError, NotADirectoryError):
            return self.url_file.read_text().strip()
        return self.database

    @property
    def store_name(self) -> str:
        """The store in messages, without a password."""
        if self.store == self.database:
            return str(self.database)
        from starburst.store.engine import store_url  # noqa: PLC0415 - slow to import, and rarely needed

        return repr(store_url(self.store))

    @property
    def has_store(self) -> bool:
        """Whether there is a store, as far as that is known without opening it."""
        return isinstance(self.store, str) or self.database.exists()

    def keeping(self, url: str | None) -> Home:
        """This home with the store that a config names.

        Raises:
            UserError: STARBURST_STORE names another one, or the home has a store of its own already.
        """
        if url is not None and self.url not in (None, url):
            raise UserError("store.url: STARBURST_STORE names another database; take one of them away")
        home = self if url is None else replace(self, url=url)
        if isinstance(home.store, str) and self.database.exists():
            raise UserError(
                f"{self.database}: holds this home's jobs, and {home.store_name} is to be the store; run: "
                f"starburst migrate-store {self.database} URL; or move that file away, which forgets its jobs"
            )
        return home

    def remember_store(self) -> None:
        """Write the URL of the store into the home, for the other commands on it."""
        if self.url is None or (self.url_file.exists() and self.url_file.read_text() == self.url + "\n"):
            return
        staging, new = mkstemp(prefix=f"{self.url_file.name}.", dir=self.root)  # replicas start together
        with open(staging, "w") as file:
            file.write(self.url + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.url_file)

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
        """Machines of the embedded cloud."""
        return self.cloud / "instances"

    @property
    def checkpoints(self) -> Path:
        """Checkpoints: a directory per job, shared by its attempts on all sites."""
        return self.root / "checkpoints"

    def make(self) -> None:
        """Create the directory with mode 0700 if it is missing.

        Raises:
            UserError: it cannot be created or used.
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
        """Lock the home as its only scheduler until the result is closed or the process ends.

        Open permissions of the home are removed.

        Raises:
            UserError: another process holds the lock, another user owns the home, or it cannot be used.
        """
        held = self.try_lock()
        give_up = time.monotonic() + LOCK_S
        while not held.held:
            if time.monotonic() > give_up:
                pid = self.scheduler_pid() or "?"
                raise UserError(
                    f"{self.root}: another starburst runs here (pid {pid}); stop it, or set STARBURST_HOME"
                )
            time.sleep(LOCK_S / 20)
            held = self.try_lock()
        return held

    def try_lock(self) -> HomeLock:
        """As `lock`, but if another process holds the lock the result is one that can be taken later.

        Raises:
            UserError: another user owns the home, or it cannot be used.
        """
        self.make()
        self._make_private()
        held = HomeLock(self.root)
        try:
            held.take()
        except OSError as error:
            mend = "free some room there" if error.errno in FULL else "look at its owner and mode"
            raise UserError(f"{self.root}: cannot be locked ({error.strerror}); {mend}") from None
        return held

    def scheduler_pid(self) -> int | None:
        """The pid of the scheduler of this home, 0 if unknown; None if none runs."""
        said = self.scheduler()
        return None if said is None else said.pid

    def scheduler(self) -> LockHolder | None:
        """What the scheduler of this home has published about itself; None if none runs."""
        try:
            return lock_holder(self.root)
        except OSError as error:
            return LockHolder(
                0, "the home is out of reach", f"{self.root}: cannot be looked at ({error.strerror})"
            )

    def exposed(self) -> str:
        """A sentence with the remedy if other users can read the home; "" otherwise.

        Raises:
            UserError: another user owns it.
        """
        found = self.root.stat()
        if found.st_uid not in (
            os.geteuid(),
            0,
        ):  # root's, for example a mounted volume: root can read everything anyway
            raise UserError(
                f"{self.root}: belongs to the user {user_name(found.st_uid)}; "
                "set STARBURST_HOME to a directory of yours"
            )
        mode = stat.S_IMODE(found.st_mode)
        if not mode & 0o077:
            return ""
        return f"{self.root}: others may look into it (mode {mode:04o}); run: chmod 700 {self.root}"

    def _make_private(self) -> None:
        """Remove open permissions; new files are private in any case."""
        if not self.exposed():
            return
        try:
            self.root.chmod(0o700)
        except OSError:
            return  # root's: `doctor` reports it
        import structlog  # noqa: PLC0415 - slow to import, and commands that list do not log

        log = structlog.get_logger()
        log.warning("home-closed", home=str(self.root), note="it was open to other users of this machine")


def _is_postgres(url: str) -> bool:
    from starburst.store.engine import is_postgres  # noqa: PLC0415 - slow to import, and rarely needed

    return is_postgres(url)


def user_name(uid: int) -> str:
    """The name of a user, or its number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
