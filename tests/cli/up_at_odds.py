"""`starburst up` in a process of its own, at odds with SkyPilot, beside a machine that answers over ssh."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from starburst.app.doctor import cloud_checks
from starburst.app.wiring import sky as wiring
from starburst.cli.main import run
from starburst.clouds.sky.access.ports import (
    Access,
    CloudAccess,
    ClusterStatus,
    SkyCredentialsError,
    SkyUnreachableError,
)
from starburst.clouds.sky.machines.naming import Naming
from starburst.clouds.sky.quotas import AwsQuotas
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.fake_line import Line
from tests.clouds.sky.fake_vm import Vm

CONTROLLER, MACHINE = "c", "i-000001"
#: How SkyPilot is at odds with us.
REFUSED, LOGIN, SLOW, DEAD = "refused", "login", "slow", "dead"
#: What an expired session of AWS says.
EXPIRED = "The security token included in the request is expired"


class AtOdds(Line):
    """A line on which only machines answer; their renewals are noted in a file."""

    odds: str
    noted: Path

    async def health(self) -> str:
        if self.odds == LOGIN:
            raise SkyCredentialsError("401")
        await self._stand_by()
        return "0.14.1"

    async def check(self, clouds: Sequence[str]) -> dict[str, CloudAccess]:
        return {cloud: CloudAccess(frozenset(), {"compute": EXPIRED}) for cloud in clouds}

    async def clusters(self, *, refresh: Sequence[str] = ()) -> list[ClusterStatus]:
        await self._stand_by()
        raise SkyCredentialsError(EXPIRED)

    async def _stand_by(self) -> None:
        if self.odds == SLOW:
            await asyncio.sleep(3600)
        if self.odds == DEAD:
            raise SkyUnreachableError("the API server is down")

    async def call(self, cluster: str, access: Access, verb: str, payload: Mapping[str, Any]) -> Any:
        if payload.get("lease_s") is not None:
            with self.noted.open("a") as file:
                file.write(f"{cluster}\n")
        return await super().call(cluster, access, verb, payload)

    def close(self) -> None:
        """No connections here."""


def main(odds: str, noted: str, config: str) -> None:
    """Run the scheduler."""
    sky = FakeSky(Path(noted).parent / "sky", cloud_up=False)
    cluster = Naming(wiring.OWNER, CONTROLLER).cluster(MACHINE)
    sky.vms.append(Vm(cluster, False, 2, 0.0, "i-1", lease_until=inf, kept=True, switch_s=300.0))
    line: Any = AtOdds(sky)
    line.odds, line.noted = odds, Path(noted)
    installed: Any = object()
    changed: Any = wiring
    changed.find_spec = lambda _: installed
    changed.SdkApi = changed.ProvisionApi = lambda: line
    changed.SshTransport = lambda _: line
    changed.AwsQuotas = lambda: AwsQuotas(lambda _region: {})
    checks: Any = cloud_checks
    checks.version = lambda _: "0.14.1"
    checks.SdkApi = lambda: line
    checks.BRIEF_S = 1.0
    sys.argv = ["starburst", "up", "--config", config, "--log-format", "json"]
    run()


if __name__ == "__main__":
    main(*sys.argv[1:])
