"""The Unix account of a run and what it sees of the machine (`run_as` of the embedded sites).

`self` is the scheduler's own account, for sites that trust every submitter. The other modes keep users apart
(`supervisor/seclusion.py` carries them out): `submitter` by the submitters' own Unix accounts and `pool` by
an id per user, both of which need a scheduler that is root; `sandbox` by namespaces of the kernel alone, for
one that is not. `auto` keeps apart all but admins, by `pool` or `sandbox`, if the machine can.
"""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from starburst.domain.job import Job, Workload
from starburst.runs.files import directory_name
from starburst.runs.ports import Run
from starburst.runs.supervisor import seclusion
from starburst.runs.supervisor.id_pool import IdPool, PoolUsedUpError

#: User ids below this belong to the system.
LEAST_UID = 1000
#: Where programs of an account have their sockets, systemd's own of that user among them.
RUNTIME = "/run/user/{}"
#: Seconds for a trial of a seclusion.
TRIAL_S = 20.0


class NoAccountError(Exception):
    """A run may not start: there is no account for it, or none that it may use. The message has the mend."""


@dataclass(frozen=True, slots=True)
class TaskDirs:
    """The directories of one task, made for its account alone and visible to it."""

    work: Path
    home: Path
    report: Path
    checkpoints: Path
    #: Mounted as /tmp where tasks of several users run as one account.
    tmp: Path

    def made(self) -> list[str]:
        """Paths of all but `tmp`."""
        return [str(path) for path in (self.work, self.home, self.report, self.checkpoints)]


@dataclass(frozen=True, slots=True)
class RunAccount:
    """The account of a task."""

    #: HOME, USER and LOGNAME.
    env: dict[str, str]
    #: The plan for `seclusion.enter`; None: the scheduler's own rights and view.
    seclusion: dict[str, Any] | None = None


class RunAs(Protocol):
    """A rule that gives runs their accounts."""

    def account(self, run: Run, dirs: TaskDirs) -> RunAccount:
        """The account of a task of this run.

        Raises:
            NoAccountError: there is none for it.
            OSError: the accounts cannot be read at the moment.
        """


@dataclass(frozen=True, slots=True)
class RunAsSelf:
    """The scheduler's own account: a submitter can do whatever the scheduler can."""

    def account(self, run: Run, dirs: TaskDirs) -> RunAccount:
        """See `RunAs`."""
        known = ("HOME", "USER", "LOGNAME")
        return RunAccount({"HOME": "/"} | {key: os.environ[key] for key in known if key in os.environ})


@dataclass(frozen=True, slots=True)
class RunAsByRole:
    """The scheduler's account for admins, who can do what it can anyway; `others` for everybody else."""

    others: RunAs

    def account(self, run: Run, dirs: TaskDirs) -> RunAccount:
        """See `RunAs`."""
        chosen = RunAsSelf() if run.workload.submitter.admin else self.others
        return chosen.account(run, dirs)


@dataclass(frozen=True, slots=True)
class RunAsSandbox:
    """The scheduler's own account in namespaces: no files, processes or temporary files of other runs.

    The account's home directory is hidden, too, since the scheduler's keys and tokens are there; and so are
    the sockets by which others of this account, or root, run something outside of the namespaces.
    """

    home: Path

    def account(self, run: Run, dirs: TaskDirs) -> RunAccount:
        """See `RunAs`."""
        plan = {
            "uid": None,
            "gid": None,
            "groups": [],
            "own": [*dirs.made(), str(dirs.tmp)],
            "hide": outermost([str(self.home), *_homes_of_this_account(), RUNTIME.format(os.geteuid())]),
            "keep": dirs.made(),
            "private": [[place, str(dirs.tmp)] for place in ("/tmp", "/var/tmp") if os.path.isdir(place)],
            "memory": seclusion.shared_memory(),
            "without": seclusion.engine_sockets(),
            "no_new_privs": True,
        }
        return RunAccount({"HOME": str(dirs.home), **_called(run)}, plan)


@dataclass(frozen=True, slots=True)
class RunAsSubmitter:
    """The submitter's own Unix account."""

    home: Path

    def account(self, run: Run, dirs: TaskDirs) -> RunAccount:
        """See `RunAs`."""
        user = run.job.user
        if run.workload.adopted is not None:
            raise NoAccountError(
                "run_as: submitter: the user of a job that was found in a cluster is anybody's to write; "
                "submit it with starburst, or set run_as: pool"
            )
        try:
            entry = pwd.getpwnam(user)
        except (KeyError, ValueError):
            raise NoAccountError(
                f"run_as: submitter: this machine has no account {user[:64]!r}; make one, or set run_as: pool"
            ) from None
        if entry.pw_uid < LEAST_UID:
            raise NoAccountError(
                f"run_as: submitter: {user!r} is an account of the system; submit as another"
            )
        groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
        plan = as_another(self.home, dirs, entry.pw_uid, entry.pw_gid, groups)
        env = {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}
        return RunAccount(env, plan | {"no_new_privs": False})


@dataclass(frozen=True)
class RunAsPool:
    """A user id per user, from `first` to `last`, kept in files of `records` for good."""

    home: Path
    records: Path
    first: int
    last: int

    def account(self, run: Run, dirs: TaskDirs) -> RunAccount:
        """See `RunAs`."""
        adopted = run.workload.adopted
        # The user of an adopted job is a text that anybody who may write in its namespace can choose.
        user = f"user {run.job.user}" if adopted is None else f"namespace {adopted.namespace}"
        try:
            id_ = self._pool.id_of(directory_name(user))
        except PoolUsedUpError:
            raise NoAccountError(
                f"run_as: pool: all ids of pool, {self.first}-{self.last}, are users' already; widen it"
            ) from None
        plan = as_another(self.home, dirs, id_, id_, [])
        return RunAccount({"HOME": str(dirs.home), **_called(run)}, plan | {"no_new_privs": True})

    @cached_property
    def _pool(self) -> IdPool:
        return IdPool(self.records, self.first, self.last)


def why_not(make: Callable[[Path], RunAs]) -> str:
    """Why this machine cannot run jobs by the rule that `make` gives for a home; "" if a trial succeeds."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        dirs = TaskDirs(*(home / part for part in ("work", "home", "report", "checkpoints", "tmp")))
        try:
            account = make(home).account(Run(Job("trial", "trial", ()), 1, (), Workload()), dirs)
            return "" if account.seclusion is None else seclusion_problem(account.seclusion)
        except (OSError, subprocess.TimeoutExpired, NoAccountError) as error:
            return str(error)


def seclusion_problem(plan: dict[str, Any]) -> str:
    """Why this machine cannot carry out a seclusion; "" if a trial process can enter it.

    Raises:
        OSError, subprocess.TimeoutExpired: the trial itself failed.
    """
    program = (
        "import sys; sys.path.append(sys.argv[1]); "
        "from starburst.runs.supervisor.seclusion import attempt; attempt(sys.argv[2])"
    )
    tried = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(Path(__file__).parents[2]), json.dumps(plan)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TRIAL_S,
        check=False,
    )
    return "" if tried.returncode == 0 else tried.stderr.strip().rpartition("\n")[2] or "it was killed"


def as_another(home: Path, dirs: TaskDirs, uid: int, gid: int, groups: Sequence[int]) -> dict[str, Any]:
    """The plan for another account, which sees only its own directories of the home; lacks `no_new_privs`."""
    return {
        "uid": uid,
        "gid": gid,
        "groups": list(groups),
        "own": dirs.made(),
        "hide": [str(_first_closed(home, uid, {gid, *groups}))],
        "keep": dirs.made(),
        "private": [],
    }


def _called(run: Run) -> dict[str, str]:
    name = run.job.user or "starburst"
    return {"USER": name, "LOGNAME": name}


def _first_closed(home: Path, uid: int, groups: set[int]) -> Path:
    """The home, or the topmost directory above it that this account may not enter."""
    for path in reversed(home.parents):
        there = path.stat()
        bit = 0o100 if there.st_uid == uid else 0o010 if there.st_gid in groups else 0o001
        if not there.st_mode & bit:
            return path
    return home


def _homes_of_this_account() -> list[str]:
    """Home directories of this account, which hold its keys; a service may have none, or "/", which stays."""
    try:
        entry = pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        entry = "/"
    found = {os.path.realpath(path) for path in (entry, os.environ.get("HOME", "/"))}
    return [path for path in found if path.count("/") > 1 or path == "/root"]


def outermost(paths: Sequence[str]) -> list[str]:
    """Existing directories of `paths` that are below no other one of them."""
    kept: list[str] = []
    for path in sorted({os.path.realpath(path) for path in paths if os.path.isdir(path)}):
        if not any(os.path.commonpath([path, above]) == above for above in kept):
            kept.append(path)
    return kept
