"""`starburst doctor`: what is there, what is not, and what to do about it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from starburst.app.build import need_kubernetes
from starburst.app.config import Config
from starburst.app.config_sites import KubernetesConfig, SkyConfig
from starburst.app.doctor import Check, Status, config_checks, failed, home_checks, ok
from starburst.app.errors import UserError
from starburst.app.home import Home
from starburst.cli.output import Format, OutputOption, print_data, say

MARKS = {Status.OK: "✓", Status.WARN: "!", Status.FAIL: "✗"}


def doctor(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="A starburst.yaml; if absent, as starburst up last ran with it."),
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Look at home, config, cluster and cloud, and say what to mend; exit 1 if something must be."""
    home = Home.default()
    checks = home_checks(home)
    more, loaded = config_checks(home, config)
    checks += more
    if loaded is not None:
        checks += look_at_sites(loaded)
    if output is Format.NAME:
        for check in checks:
            say(f"check/{check.check}")
    elif output.for_people:
        for check in checks:
            say(f"{MARKS[check.status]} {check.line}")
    else:
        print_data([_keys(check) for check in checks], output)
    raise typer.Exit(1 if any(check.status is Status.FAIL for check in checks) else 0)


def look_at_sites(config: Config, *, whole: bool = True) -> list[Check]:
    """All checks of cluster and cloud; not `whole`: only what a start needs."""
    return [*_look_at_cluster(config, whole), *_look_at_cloud(config, whole)]


def _look_at_cluster(config: Config, whole: bool) -> list[Check]:
    cluster = config.cluster
    if not isinstance(cluster, KubernetesConfig):
        nodes = len(cluster.known_nodes())
        return [ok("cluster", f"embedded, {nodes} node{'' if nodes == 1 else 's'}")]
    try:
        need_kubernetes()
    except UserError as error:
        return failed("extra", error)
    from starburst.app.cluster_checks import cluster_checks  # noqa: PLC0415 - its needs are an extra

    return asyncio.run(cluster_checks(cluster, whole=whole))


def _look_at_cloud(config: Config, whole: bool) -> list[Check]:
    cloud = config.cloud
    if not isinstance(cloud, SkyConfig):
        offers = len(cloud.known_offers())
        return [ok("cloud", f"embedded, {offers or 'no'} offer{'' if offers == 1 else 's'}")]
    from starburst.app.cloud_checks import cloud_checks  # noqa: PLC0415 - few need it

    return asyncio.run(cloud_checks(cloud, whole=whole))


def _keys(check: Check) -> dict[str, str]:
    return {"check": check.check, "status": check.status.value, "found": check.found, "mend": check.mend}
