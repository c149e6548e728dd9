"""`starburst up`: the scheduler in the foreground."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated

import structlog
import typer

from starburst.app.config import Config, load_config
from starburst.app.config.home import Home
from starburst.app.daemon.home_lock import HomeLock
from starburst.app.daemon.process_resources import keep_memory_flat, raise_file_limit
from starburst.app.daemon.shortages import ShortageRetry
from starburst.app.doctor.doctor import CheckStatus, trust_checks
from starburst.app.errors import UserError
from starburst.app.wiring.build import BUSY_MS
from starburst.cli.backend.session import open_store
from starburst.cli.service.doctor import look_at_sites
from starburst.cli.service.replica import Replica
from starburst.kube.errors import LeaseLostError
from starburst.log import set_up_log
from starburst.store.errors import FencedError, UnusableError
from starburst.store.listings import queries
from starburst.store.store import Store
from starburst.web.context import AppContext
from starburst.web.serving.listen import listening, refuse_insecure_bind


class LogFormat(str, Enum):
    """The values of `--log-format`."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


def up(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="A starburst.yaml; defaults if absent.")
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="auto: text on a terminal, else JSON.")
    ] = LogFormat.AUTO,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="While another one leads this store stand by, and then take over."),
    ] = False,
    advertise: Annotated[
        str,
        typer.Option(
            envvar="STARBURST_ADVERTISE",
            metavar="URL",
            help="Where those that stand by reach this one's API, if not where it listens.",
        ),
    ] = "",
) -> None:
    """Run the scheduler until Ctrl-C. Jobs that run go on without it and are found again."""
    loaded = load_config(config)
    home = Home.default().keeping(loaded.store.url)
    text = log_format is LogFormat.TEXT or (log_format is LogFormat.AUTO and sys.stderr.isatty())
    set_up_log(text=text)
    os.umask(0o077)
    raise_file_limit()
    keep_memory_flat()
    with _ended_by_sigterm():
        _refuse_what_cannot_work(loaded, home)
        with (
            home.try_lock() if standby else home.lock() as held,
            listening(loaded.http) as sock,
            _usable_store(home, held, writes=not standby) as store,
        ):
            refuse_insecure_bind(AppContext(home, store), loaded.http)
            replica = Replica(home, loaded, store, held, sock, advertise, text=text)
            try:
                asyncio.run(replica.run(standby=standby))
            except (LeaseLostError, FencedError) as error:  # whoever restarts it has it stand by
                structlog.get_logger().error("lease-lost", error=str(error))
                raise typer.Exit(1) from None


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends a start that waits; without a handler the first process of a container hears of none."""

    def end(*_: object) -> None:
        raise SystemExit(0)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _usable_store(home: Home, held: HomeLock, *, writes: bool) -> Iterator[Store]:
    """The store once it can be read or, with `writes`, written; waits while it is locked or away, or the disk
    is full. A leader that is gone may hold up those that write until another one leads.
    """
    home.remember_store()
    with ExitStack() as stack:

        async def opened() -> Store:
            store = stack.enter_context(open_store(home, BUSY_MS))
            try:
                if writes:
                    store.try_write()
            except BaseException:
                stack.close()
                raise
            return store

        yield asyncio.run(ShortageRetry(held.tell).outlast("start", opened))


def _refuse_what_cannot_work(config: Config, home: Home) -> None:
    """Refuse a cluster or cloud that cannot be used.

    If jobs run or machines are rented, a start does not wait until a cloud answers and accepts us: leases of
    machines are renewed without it. A cluster that does not answer is waited for then, too.

    Raises:
        UserError: the failed checks, one per line.
    """
    rents = config.cloud.kind == "skypilot" and _at_work(home)
    checks = look_at_sites(config, whole=False, brief=rents)
    for check in trust_checks(config):
        structlog.get_logger().warning("!", check=check.check, found=check.found, mend=check.mend)
    failed = [check for check in checks if check.status is CheckStatus.FAIL]
    if not all(check.may_pass for check in failed) or (failed and not (rents or _at_work(home))):
        raise UserError("\n".join(check.line for check in failed))
    for check in failed:
        structlog.get_logger().warning("waits", check=check.check, error=check.found)


def _at_work(home: Home) -> bool:
    """Whether jobs of this home run or machines are rented for them; also if its store is away."""
    if not home.has_store:
        return False
    try:
        with open_store(home) as store:
            return queries.at_work(store)
    except UnusableError:
        return True
