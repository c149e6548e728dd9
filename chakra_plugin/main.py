"""The command `chakra`: the scheduler in the foreground."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated

import structlog
import typer

from chakra_plugin.metrics import Metrics
from chakra_plugin.scheduler import ChakraScheduler
from chakra_plugin.scheduling.cycle import SchedulerOptions
from starburst.aio import running
from starburst.kube import names
from starburst.kube.api import Api
from starburst.kube.errors import KubeCredentialsError, LeaseLostError
from starburst.kube.lease import lead
from starburst.log import set_up_log
from starburst.policy.placement import PLACEMENTS

#: Name of the Lease.
LEASE = "chakra"

PlacementName = Enum("Placement", {name: name for name in PLACEMENTS}, type=str)  # type: ignore[misc]
BEST_FIT = PlacementName("best-fit")


class ChakraLogFormat(str, Enum):
    """Of `--log-format`."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


def chakra(
    *,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="A kubeconfig; else KUBECONFIG, ~/.kube/config or the pod's own account."),
    ] = None,
    placement: Annotated[
        PlacementName, typer.Option(help="Which of the nodes that fit a pod goes to.")
    ] = BEST_FIT,
    scheduler_name: Annotated[
        str, typer.Option(help="Pods with this schedulerName are bound.")
    ] = names.CHAKRA,
    namespace: Annotated[
        list[str],
        typer.Option(help="Bind pods of this namespace only, and read Jobs only there; repeatable."),
    ] = [],  # noqa: B006 - typer does not change it
    preempt: Annotated[
        bool, typer.Option("--preempt", help="Delete pods of lower PriorityClasses for those of higher ones.")
    ] = False,
    gang_timeout: Annotated[
        float, typer.Option(min=0, help="Seconds for which a gang keeps its places while bindings fail.")
    ] = 300.0,
    metrics_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Serve /metrics for Prometheus; 0 is off.")
    ] = 0,
    leader_elect: Annotated[
        bool, typer.Option("--leader-elect/--no-leader-elect", help="Of several replicas, one schedules.")
    ] = True,
    lease_namespace: Annotated[str, typer.Option(help="Where the Lease is.")] = "kube-system",
    identity: Annotated[
        str | None, typer.Option(help="Of this process in the Lease; by default host name and a number.")
    ] = None,
    log_format: Annotated[ChakraLogFormat, typer.Option(help="auto: text on a terminal, else JSON.")] = (
        ChakraLogFormat.AUTO
    ),
) -> None:
    """Bind pods with `schedulerName: chakra` until Ctrl-C: best fit, gangs, priorities, Starburst's word."""
    text = log_format is ChakraLogFormat.TEXT or (log_format is ChakraLogFormat.AUTO and sys.stderr.isatty())
    set_up_log(text=text)
    metrics = Metrics()
    if metrics_port:
        try:
            metrics.serve(metrics_port)
        except OSError as error:
            _fail(
                f"--metrics-port {metrics_port}: {error.strerror or error}; take another one, or 0 for none"
            )
    options = SchedulerOptions(scheduler_name, placement.value, preempt, gang_timeout, frozenset(namespace))
    lease = (lease_namespace, identity or f"{socket.gethostname()}_{secrets.token_hex(4)}")
    try:
        asyncio.run(_run(kubeconfig, options, metrics, lease if leader_elect else None))
    except KubeCredentialsError as error:
        _fail(str(error))
    except LeaseLostError as error:
        _fail(str(error), code=1)  # a restart begins with an empty state


async def _run(
    kubeconfig: Path | None, options: SchedulerOptions, metrics: Metrics, lease: tuple[str, str] | None
) -> None:
    """Schedule until SIGINT or SIGTERM; `lease`: its namespace, and the identity of this process."""
    connected = await Api.connect(kubeconfig)
    async with connected as api, running(_schedule(api, options, metrics, lease), "scheduler") as work:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, work.cancel)
        log = structlog.get_logger()
        log.info("up", pid=os.getpid(), server=api.host, scheduler=options.scheduler)
        try:
            await work
        except asyncio.CancelledError:
            log.info("down")


async def _schedule(
    api: Api, options: SchedulerOptions, metrics: Metrics, lease: tuple[str, str] | None
) -> None:
    scheduler = ChakraScheduler(api, options, metrics)
    if lease is None:
        metrics.leader(True)
        await scheduler.run()
        return
    namespace, identity = lease

    async def leading(still_leading: Callable[[], bool]) -> None:
        metrics.leader(True)
        await scheduler.run(still_leading)

    try:
        await lead(api, namespace=namespace, name=LEASE, identity=identity, run=leading)
    finally:
        metrics.leader(False)


def _fail(why: str, code: int = 2) -> None:
    print(f"error: {why}", file=sys.stderr)
    sys.exit(code)


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command()(chakra)


def run() -> None:
    """Entry point of the console script. Exit codes: 2 for bad input; 1 when the Lease was lost."""
    app(prog_name="chakra")
