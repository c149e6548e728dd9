"""`starburst up`: the scheduler in the foreground."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import structlog
import typer

from starburst.app.build import build
from starburst.app.config import Config, load_config
from starburst.app.controller import Controller
from starburst.app.doctor import Status
from starburst.app.errors import UserError
from starburst.app.home import Home
from starburst.cli.doctor import look_at_sites
from starburst.cli.session import open_store
from starburst.log import set_up_log
from starburst.policy.waiting import hours


class LogFormat(str, Enum):
    """Of `--log-format`."""

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
    _refuse_what_cannot_work(loaded)
    with home.lock(), open_store() as store:
        controller = build(home, loaded, store)
        log = structlog.get_logger()
        log.info("up", home=str(home.root), pid=os.getpid(), jobs=len(controller.scheduler.jobs))
        asyncio.run(_run(controller))
        running = sum(record.alive for record in controller.scheduler.jobs.values())
        log.info("down", running=running, machines=len(controller.scheduler.fleet.instances))
        if controller.scheduler.fleet.instances:
            lease = hours(loaded.cloud.lease)
            log.warning("machines-run-on", note=f"they end by themselves in {lease} unless starburst is up")


def _refuse_what_cannot_work(config: Config) -> None:
    """A cluster or cloud that cannot be used now; one that goes away later is waited for."""
    failed = [check for check in look_at_sites(config, whole=False) if check.status is Status.FAIL]
    if failed:
        raise UserError("\n".join(check.line for check in failed))


async def _run(controller: Controller) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await controller.run(stop)
