"""Checks of home, store and config, and the result type of all checks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import httpx
from sqlalchemy.exc import SQLAlchemyError

from starburst.app.config import Config, load_config, trust_problem
from starburst.app.config.home import Home, user_name
from starburst.app.config.sites import runs_users_here
from starburst.app.config.tracing import TracingConfig
from starburst.app.errors import UserError
from starburst.app.leadership.status import is_shared, leader_of
from starburst.app.wiring.stored import stored_config
from starburst.app.wiring.tracing import need_otel
from starburst.store.errors import StoreError
from starburst.store.listings import queries
from starburst.store.store import Store

#: Timeout of the tracing collector, wall seconds.
COLLECTOR_S = 3.0


class CheckStatus(str, Enum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"  # Starburst works, with restrictions
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """A check: its subject, the finding, and the remedy."""

    check: str
    status: CheckStatus
    found: str
    #: "" if there is no problem, or the finding includes the remedy.
    mend: str = ""
    #: The subject did not answer, or refuses what it took before: with jobs at work, a start goes on.
    may_pass: bool = False

    @property
    def line(self) -> str:
        """The check as a line without its status."""
        return f"{self.check}: {self.found}{'; ' if self.mend else ''}{self.mend}"


def ok(check: str, found: str) -> DoctorCheck:
    """A check without a problem."""
    return DoctorCheck(check, CheckStatus.OK, found)


def warn(check: str, found: str, mend: str = "") -> DoctorCheck:
    """A check with a restriction."""
    return DoctorCheck(check, CheckStatus.WARN, found, mend)


def fail(check: str, found: str, mend: str = "") -> DoctorCheck:
    """A failed check."""
    return DoctorCheck(check, CheckStatus.FAIL, found, mend)


def silent(check: str, found: str, mend: str) -> DoctorCheck:
    """A check whose subject did not answer."""
    return DoctorCheck(check, CheckStatus.FAIL, found, mend, may_pass=True)


def failed(check: str, error: Exception) -> list[DoctorCheck]:
    """A failed check per line of an error."""
    parts = (line.partition("; ") for line in str(error).splitlines())
    return [fail(check, found, mend) for found, _, mend in parts]


def home_checks(home: Home) -> list[DoctorCheck]:
    """The home is usable, and the store writable."""
    try:
        home.make()
    except UserError as error:
        return failed("home", error)
    try:
        exposed = home.exposed()
    except UserError as error:
        return failed("home", error)
    said = home.scheduler()
    running = "no scheduler runs" if said is None else f"a scheduler runs (pid {said.pid or '?'})"
    checks = [ok("home", f"{home.root}, {running}")]
    if exposed:
        found, _, mend = exposed.partition("; ")
        checks.append(warn("home", found, mend))
    if said is not None and said.detail:
        found, _, mend = said.detail.partition("; ")
        checks.append(fail("scheduler", f"waits: {found}", mend))
    return [*checks, *_store_checks(home)]


def _store_checks(home: Home) -> list[DoctorCheck]:
    try:
        with Store.open(home.store) as store:
            store.try_write()
            jobs = sum(queries.summary(store).jobs.values())
            led = _leader_checks(store)
    except StoreError as error:
        return failed("store", error)
    except SQLAlchemyError as error:
        problem = getattr(error, "orig", None) or error
        return [fail("store", f"{home.store_name}: {problem}")]
    return [ok("store", f"{home.store_name}, {jobs} job{'' if jobs == 1 else 's'}"), *led]


def _leader_checks(store: Store) -> list[DoctorCheck]:
    """Which replica leads; nothing if there is one scheduler only."""
    if not is_shared(store):
        return []
    record = leader_of(store)
    if record is None:
        return [warn("leader", "no replica leads now", "start one: starburst up --standby")]
    where = f" at {record.address}" if record.address else ""
    return [ok("leader", f"{record.holder}{where}, epoch {record.epoch}, renewed {record.age_s:.1f} s ago")]


def trust_checks(config: Config) -> list[DoctorCheck]:
    """Users who can run commands on this machine through the cluster."""
    if not runs_users_here(config.cluster, config.cloud):
        return []
    problem = trust_problem(config)
    if problem:
        found, _, mend = problem.partition("; ")
        return [fail("trust", found, mend)]
    user = user_name(os.geteuid())
    return [
        warn(
            "trust",
            f"whoever may create Jobs in the cluster runs commands on this machine, as {user}",
            "leave cloud out of the config unless all of them may (cloud.trust_users)",
        )
    ]


def with_store_of(home: Home, file: Path | None) -> Home:
    """The home with the store that a config file names, as `starburst up` has it."""
    try:
        return home if file is None else home.keeping(load_config(file).store.url)
    except UserError:
        return home  # reported by the config's check


def config_checks(home: Home, file: Path | None) -> tuple[list[DoctorCheck], Config | None]:
    """Checks of a config file, or of the config of the last `starburst up`; None if it is invalid."""
    source = str(file)
    try:
        if file is not None:
            config = load_config(file)
            home.keeping(config.store.url)
        else:
            with Store.open(home.store) as store:
                config = stored_config(store)
                source = "as starburst up last ran with it" if store.fact("config") else "the default"
    except UserError as error:
        return failed("config", error), None
    except (StoreError, SQLAlchemyError):
        return [], None  # reported by the store's check
    kind = config.cluster.kind
    found = [ok("config", f"{source}, cluster.kind: {kind}")]
    if file is not None and config.has_idle_budget:
        unused = f"{source}: policy.budget_percent has no effect beside policy.factor"
        found.append(warn("config", unused, "leave out one of them"))
    return [*found, *_tracing_checks(config.tracing)], config


def _tracing_checks(tracing: TracingConfig) -> list[DoctorCheck]:
    """The tracing collector accepts an empty message."""
    if tracing.endpoint is None:
        return []
    try:
        need_otel()
    except UserError as error:
        return failed("extra", error)
    try:
        headers = {**tracing.headers(), "Content-Type": "application/x-protobuf"}
        status = httpx.post(tracing.endpoint, content=b"", headers=headers, timeout=COLLECTOR_S).status_code
    except UserError as error:
        return failed("tracing", error)
    except httpx.HTTPError as error:
        found, mend = f"does not answer ({error or type(error).__name__})", "start the collector"
        return [warn("tracing", f"{tracing.endpoint} {found}", f"{mend}; until then spans are lost")]
    if status >= 300:
        mend = "put what it asks for into tracing.headers_file" if status in (401, 403) else "check the path"
        return [warn("tracing", f"{tracing.endpoint} answers {status}", mend)]
    return [ok("tracing", f"{tracing.endpoint} takes spans")]
