"""`starburst up`: the scheduler in the foreground."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Annotated

import structlog
import typer

from starburst.app.config import Config, load_config
from starburst.app.config.home import Home
from starburst.app.daemon.controller import Controller
from starburst.app.daemon.home_lock import HomeLock
from starburst.app.daemon.progress_inbox import ProgressInbox
from starburst.app.daemon.shortages import ShortageRetry
from starburst.app.doctor.doctor import CheckStatus, trust_checks
from starburst.app.errors import UserError
from starburst.app.wiring.build import BUSY_MS, build
from starburst.cli.backend.session import open_store
from starburst.cli.service.doctor import look_at_sites
from starburst.kube.errors import LeaseLostError
from starburst.log import set_up_log
from starburst.policy.waiting import hours
from starburst.store.listings import queries
from starburst.store.store import Store
from starburst.web.context import AppContext
from starburst.web.serving.listen import listening, refuse_insecure_bind
from starburst.web.serving.supervisor import answering


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
) -> None:
    """Run the scheduler until Ctrl-C. Jobs that run go on without it and are found again."""
    loaded = load_config(config)
    home = Home.default()
    text = log_format is LogFormat.TEXT or (log_format is LogFormat.AUTO and sys.stderr.isatty())
    set_up_log(text=text)
    os.umask(0o077)
    _raise_file_limit()
    _refuse_what_cannot_work(loaded, home)
    with home.lock() as held, listening(loaded.http) as sock, _store_that_takes(held) as store:
        refuse_insecure_bind(AppContext(home, store), loaded.http)
        inbox = ProgressInbox()
        controller = build(home, loaded, store, inbox=inbox, held=held)
        log = structlog.get_logger()
        log.info("up", home=str(home.root), pid=os.getpid(), jobs=len(controller.scheduler.state.jobs))
        try:
            asyncio.run(_run(controller, answering(home, loaded.http, sock, inbox, text=text)))
        except LeaseLostError as error:  # whoever restarts it has it stand by
            log.error("lease-lost", error=str(error))
            raise typer.Exit(1) from None
        running = sum(record.alive for record in controller.scheduler.state.jobs.values())
        log.info("down", running=running, machines=len(controller.scheduler.state.fleet.instances))
        if controller.scheduler.state.fleet.instances:
            lease = hours(loaded.cloud.lease)
            log.warning("machines-run-on", note=f"they end by themselves in {lease} unless starburst is up")


def _raise_file_limit() -> None:
    """Raise the soft limit of open files: connections, runs and machines need some each."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def _store_that_takes(held: HomeLock) -> Iterator[Store]:
    """The store once it can be written; waits while it is locked or the disk is full."""
    with ExitStack() as stack:

        async def opened() -> Store:
            store = stack.enter_context(open_store(BUSY_MS))
            try:
                store.try_write()
            except BaseException:
                stack.close()
                raise
            return store

        yield asyncio.run(ShortageRetry(held.tell).outlast("start", opened))


def _refuse_what_cannot_work(config: Config, home: Home) -> None:
    """Refuse a cluster or cloud that cannot be used.

    One that does not answer is waited for if jobs run there.

    Raises:
        UserError: the failed checks, one per line.
    """
    checks = look_at_sites(config, whole=False)
    for check in trust_checks(config):
        structlog.get_logger().warning("!", check=check.check, found=check.found, mend=check.mend)
    failed = [check for check in checks if check.status is CheckStatus.FAIL]
    if not all(check.may_pass for check in failed) or (failed and not _at_work(home)):
        raise UserError("\n".join(check.line for check in failed))
    for check in failed:
        structlog.get_logger().warning("waits", check=check.check, error=check.found)


def _at_work(home: Home) -> bool:
    """Whether jobs of this home run, or machines are rented for them."""
    if not home.database.exists():
        return False
    with open_store() as store:
        return queries.at_work(store)


async def _run(controller: Controller, answering: AbstractAsyncContextManager[None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with answering:
        await controller.run(stop)
