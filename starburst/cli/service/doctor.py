"""`starburst doctor`: checks of home, config, cluster and cloud, with remedies."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from sqlalchemy.exc import SQLAlchemyError

from starburst.app.config import Config
from starburst.app.config.home import Home
from starburst.app.config.sites import KubernetesConfig, SkyConfig
from starburst.app.doctor.doctor import (
    CheckStatus,
    DoctorCheck,
    config_checks,
    failed,
    home_checks,
    ok,
    trust_checks,
    with_store_of,
)
from starburst.app.doctor.embedded_checks import site_check, trust_check
from starburst.app.doctor.unknown_machines import machine_checks
from starburst.app.errors import UserError
from starburst.app.wiring.kube_client import need_kubernetes
from starburst.cli.output import Format, OutputOption, print_data, say
from starburst.store import tokens
from starburst.store.errors import StoreError
from starburst.store.store import Store
from starburst.store.tokens import Token

MARKS = {CheckStatus.OK: "✓", CheckStatus.WARN: "!", CheckStatus.FAIL: "✗"}


def doctor(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="A starburst.yaml; if absent, as starburst up last ran with it."),
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Check home, config, cluster and cloud, and name remedies. Exit 1: something must be corrected."""
    home = with_store_of(Home.default(), config)
    checks = home_checks(home)
    more, loaded = config_checks(home, config)
    checks += more
    if loaded is not None:
        checks += look_at_sites(loaded)
        if isinstance(loaded.cloud, SkyConfig):
            checks += machine_checks(home)
        checks += trust_check(loaded, _tokens(home))
    if output is Format.NAME:
        for check in checks:
            say(f"check/{check.check}")
    elif output.for_people:
        for check in checks:
            say(f"{MARKS[check.status]} {check.line}")
    else:
        print_data([_keys(check) for check in checks], output)
    raise typer.Exit(1 if any(check.status is CheckStatus.FAIL for check in checks) else 0)


def _tokens(home: Home) -> list[Token]:
    try:
        with Store.open(home.store) as store:
            return tokens.listed(store)
    except (StoreError, SQLAlchemyError):
        return []  # reported by the store's check


def look_at_sites(config: Config, *, whole: bool = True, brief: bool = False) -> list[DoctorCheck]:
    """All checks of cluster and cloud; not `whole`: only those that a start needs; `brief`: soon."""
    return [*_look_at_cluster(config, whole), *_look_at_cloud(config, whole, brief)]


def _look_at_cluster(config: Config, whole: bool) -> list[DoctorCheck]:
    cluster = config.cluster
    if not isinstance(cluster, KubernetesConfig):
        nodes = len(cluster.known_nodes())
        return [site_check("cluster", cluster, f"embedded, {nodes} node{'' if nodes == 1 else 's'}")]
    try:
        need_kubernetes()
    except UserError as error:
        return failed("extra", error)
    from starburst.app.doctor.cluster_checks import cluster_checks  # noqa: PLC0415 - its needs are an extra

    return asyncio.run(cluster_checks(config, whole=whole))


def _look_at_cloud(config: Config, whole: bool, brief: bool) -> list[DoctorCheck]:
    cloud = config.cloud
    if not isinstance(cloud, SkyConfig):
        offers = len(cloud.known_offers())
        if cloud.kind == "none":
            return [ok("cloud", "none")]
        found = f"embedded, {offers or 'no'} offer{'' if offers == 1 else 's'}"
        runs = config.on_this_machine().get("cloud")
        there = ok("cloud", found) if runs is None else site_check("cloud", runs, found)
        return [there, *trust_checks(config)]
    from starburst.app.doctor.cloud_checks import cloud_checks  # noqa: PLC0415 - few need it

    return asyncio.run(cloud_checks(cloud, whole=whole, brief=brief))


def _keys(check: DoctorCheck) -> dict[str, str]:
    return {"check": check.check, "status": check.status.value, "found": check.found, "mend": check.mend}
