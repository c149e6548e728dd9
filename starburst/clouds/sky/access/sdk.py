"""`SkyApi` by SkyPilot's Python SDK (0.14), which is imported when it is first used.

The SDK's calls are blocking HTTP requests, so they run in threads; results are awaited by its asyncio `get`.
"""

from __future__ import annotations

import asyncio
import io
import math
import os
import re
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from starburst.aio import in_thread
from starburst.clouds.sky.access.cluster_record import cluster_status
from starburst.clouds.sky.access.errors import COLOURS, SlowError, within
from starburst.clouds.sky.access.ports import (
    BUCKET,
    CloudAccess,
    ClusterStatus,
    LaunchSpec,
    SkyCredentialsError,
    SkyError,
    SkyUnreachableError,
)
from starburst.clouds.sky.access.quiet_click import hush
from starburst.domain.money import Money
from translator.carried import Bucket, SkyVolume

T = TypeVar("T")

_LOADING = threading.Lock()

#: What `sky check` writes that is not for us: a block's beginning; exceptions' classes.
_BLOCK = re.compile(r"\n(?=  \S+: (?:enabled|disabled)|    (?:Reason|Hint) \[|\n)")
_EXCEPTION = re.compile(r"\[[\w.]+\] ")

#: Wall seconds: for a connection and each answer of the health check, for a request to be accepted, for the
#: result of a listing, for a request that launches or ends machines, and for a price (a launch waits for it).
HEALTH_S, CALL_S, LIST_S, REQUEST_S, RATE_S = 5.0, 45.0, 150.0, 1800.0, 15.0
#: Calls that change something.
ACTS = ("launch", "down", "exec", "abort")


def reasons_of(log: str) -> dict[str, dict[str, str]]:
    """Why clouds are not enabled, from the output of `sky check`: by cloud in lower case and by ability.

    Of a reason of several lines, the beginning and the details are kept.
    """
    reasons: dict[str, dict[str, str]] = {}
    cloud = ""
    for block in _BLOCK.split(COLOURS.sub("", log)):
        if named := re.match(r"\s*(\S+): (?:enabled|disabled)", block):
            cloud = named[1].lower()
        elif told := re.match(r"    Reason \[([^]]*)\]: (.*)", block, re.DOTALL):
            for ability in told[1].split(", "):
                reasons.setdefault(cloud, {})[ability] = _one_line(told[2])
    return reasons


def _one_line(reason: str) -> str:
    lines = [line.strip() for line in reason.strip().splitlines()] or [""]
    if lines[0].startswith("Traceback "):
        return lines[-1]
    head = lines[0].partition(". ")[0].rstrip(".")
    details = [line.partition(": ")[2] for line in lines[1:] if line.startswith(("Details: ", "Reason: "))]
    return _EXCEPTION.sub("", ": ".join([head, *details[-1:]])).rstrip(".")


def task_of(spec: LaunchSpec) -> dict[str, Any]:
    """The task to launch machines with, as SkyPilot's YAML; it runs nothing."""
    buckets = {} if spec.bucket is None else {BUCKET: Bucket(spec.bucket)}
    buckets |= {path: store for path, store in spec.mounts if isinstance(store, Bucket)}
    volumes = {path: store.name for path, store in spec.mounts if isinstance(store, SkyVolume)}
    mounts = {path: {"source": store.source, "mode": store.mode} for path, store in buckets.items()}
    task = {
        "resources": {
            "infra": spec.infra,
            "instance_type": spec.instance_type,
            "use_spot": spec.spot,
            "labels": dict(spec.labels),
            **({"network_tier": spec.network_tier} if spec.network_tier else {}),
            "autostop": {"idle_minutes": spec.idle_minutes, "down": True},
        },
        "num_nodes": spec.nodes if spec.nodes > 1 else None,
        "file_mounts": mounts,
        "volumes": volumes,
    }
    return {key: value for key, value in task.items() if value}


def hourly(launched: Any) -> Money | None:
    """The price of an hour of SkyPilot's `Resources`; None if its catalog has none."""
    if launched is None:
        return None
    try:
        dollars = float(launched.get_cost(3600))
    except ValueError:  # not in the catalog, or without a price there
        return None
    # Catalogs write 0, or nothing, for unknown prices.
    return Money.of(dollars) if 0 < dollars < math.inf else None


@dataclass(frozen=True, slots=True)
class Refresh:
    """A request for a listing of these clusters after their clouds were asked."""

    names: tuple[str, ...]
    request: str


class SdkApi:
    """SkyPilot as the environment says: SKYPILOT_API_SERVER_ENDPOINT, or the API server of this machine."""

    def __init__(self) -> None:
        #: Number of calls by name.
        self.calls: dict[str, int] = {}
        #: Asked before each call that changes something; raises SkyError to refuse it.
        self.fence: Callable[[], None] = lambda: None
        self._refreshing = asyncio.Lock()
        #: The refresh that the server has not answered yet; at most one at a time.
        self._under_way: Refresh | None = None

    async def launch(self, spec: LaunchSpec) -> str:
        """See `SkyApi`."""
        config = task_of(spec)
        return await self._ask(
            "launch",
            lambda sky, sdk: sdk.launch(sky.Task.from_yaml_config(config), cluster_name=spec.cluster),
        )

    async def down(self, cluster: str) -> str:
        """See `SkyApi`."""
        return await self._ask("down", lambda _sky, sdk: sdk.down(cluster))

    async def exec(self, cluster: str, name: str, run: str) -> str:
        """See `SkyApi`."""
        config = {"name": name, "run": run}
        return await self._ask(
            "exec", lambda sky, sdk: sdk.exec(sky.Task.from_yaml_config(config), cluster_name=cluster)
        )

    async def wait(self, request_id: str) -> None:
        """See `SkyApi`."""
        await self._result(request_id, REQUEST_S)

    async def abort(self, request_id: str) -> None:
        """See `SkyApi`."""
        asked = await self._ask("abort", lambda _sky, sdk: sdk.api_cancel([request_id], silent=True))
        await self._result(asked, LIST_S)

    async def launching(self, cluster: str) -> list[str]:
        """See `SkyApi`."""

        def ask(_sky: Any, sdk: Any) -> list[str]:
            sdk.api_info()  # sets the server's version in this thread; without it the filter is ignored
            found = sdk.api_status(
                cluster_name=cluster, fields=["request_id", "name", "cluster_name", "status"]
            )
            return [
                str(request.request_id)
                for request in found
                if request.name == "sky.launch" and request.cluster_name == cluster
            ]

        return await self._call("launching", ask)

    async def finished_at(self, request_id: str) -> float | None:
        """See `SkyApi`."""

        def ask(_sky: Any, sdk: Any) -> float | None:
            fields = ["request_id", "name", "status", "finished_at"]
            found = sdk.api_status(request_ids=[request_id], fields=fields)
            return next((one.finished_at for one in found if one.request_id == request_id), None)

        return await self._call("finished-at", ask)

    async def clusters(self, *, refresh: Sequence[str] = ()) -> list[ClusterStatus]:
        """See `SkyApi`."""
        if not refresh:
            return await self._listing(await self._status(()))
        names = tuple(sorted(refresh))
        async with self._refreshing:
            if (before := self._under_way) is not None:
                found = await self._refreshed(before)
                if set(names) <= set(before.names):
                    return [status for status in found if status.name in names]
            self._under_way = Refresh(names, await self._status(names))
            return await self._refreshed(self._under_way)

    async def _status(self, names: tuple[str, ...]) -> str:
        def ask(sky: Any, sdk: Any) -> str:
            mode = sky.StatusRefreshMode.FORCE if names else sky.StatusRefreshMode.NONE
            named = list(names) or None
            return str(sdk.status(named, refresh=mode, all_users=True, _include_credentials=True))

        return await self._ask("status", ask)

    async def _refreshed(self, refresh: Refresh) -> list[ClusterStatus]:
        """Its result. A late one stays under way: a second request would only slow the server down."""
        try:
            found = await self._listing(refresh.request)
        except SlowError:
            raise
        except SkyError:
            self._under_way = None
            raise
        self._under_way = None
        return found

    async def _listing(self, request: str) -> list[ClusterStatus]:
        return [cluster_status(record) for record in await self._result(request, LIST_S)]

    async def rate(self, status: ClusterStatus) -> Money | None:
        """See `SkyApi`."""
        return await self._call("rate", lambda _sky, _sdk: hourly(status.launched), RATE_S)

    async def address(self) -> str:
        """See `SkyApi`."""

        def ask(_sky: Any, _sdk: Any) -> str:
            from sky.server import common  # noqa: PLC0415 - an extra, and slow to import

            return str(common.redact_url_password(common.get_server_url()))

        return await self._call("address", ask)

    async def health(self) -> str:
        """See `SkyApi`."""

        def ask(_sky: Any, _sdk: Any) -> str:
            from sky import exceptions  # noqa: PLC0415 - an extra, and slow to import
            from sky.server import common  # noqa: PLC0415

            # SkyPilot's own look waits ten minutes for a proxy that answers 503, and does not tell causes.
            answer = common.make_authenticated_request("GET", "/api/health", retry=False, timeout=HEALTH_S)
            if answer.status_code not in (200, 400, 401):  # 400 tells versions that do not go together
                raise SkyUnreachableError(f"it says {answer.status_code} {answer.reason}")
            try:
                status, server = common.check_server_healthy()
            except exceptions.ApiServerConnectionError as error:
                raise SkyUnreachableError("what is there is not SkyPilot") from error
            if status is common.ApiServerStatus.NEEDS_AUTH:
                raise SkyCredentialsError("SkyPilot's API server wants a login")
            return str(server.version)

        return await self._call("health", ask)

    async def check(self, clouds: Sequence[str]) -> dict[str, CloudAccess]:
        """See `SkyApi`."""

        def read(_sky: Any, sdk: Any) -> str:
            said = io.StringIO()
            sdk.stream_and_get(asked, follow=False, output_stream=said)
            return said.getvalue()

        asked = await self._ask("check", lambda _sky, sdk: sdk.check(tuple(clouds), verbose=False))
        by_workspace = await self._result(asked, LIST_S)
        reasons = reasons_of(await self._call("check-log", read))
        enabled: dict[str, set[str]] = {}
        for found in by_workspace.values():
            for cloud, abilities in found.items():
                enabled.setdefault(cloud.lower(), set()).update(abilities)
        return {
            cloud: CloudAccess(frozenset(enabled.get(cloud.lower(), ())), reasons.get(cloud.lower(), {}))
            for cloud in clouds
        }

    async def _ask(self, name: str, call: Callable[[Any, Any], Any]) -> str:
        return str(await self._call(name, call))

    async def _call(self, name: str, call: Callable[[Any, Any], T], limit_s: float = CALL_S) -> T:
        self.calls[name] = self.calls.get(name, 0) + 1

        def work() -> T:
            sky, sdk = load()
            if name in ACTS:
                self.fence()
            return call(sky, sdk)

        return await within(limit_s, in_thread(work))

    async def _result(self, request_id: str, limit_s: float) -> Any:
        def begin() -> Coroutine[Any, Any, Any]:
            load()
            from sky.client import sdk_async  # noqa: PLC0415 - an extra, and slow to import

            call: Coroutine[Any, Any, Any] = sdk_async.get(request_id)
            return call

        async def get() -> Any:
            # `get` checks the server's health before it returns a coroutine, and blocks: not in this loop.
            return await (await in_thread(begin))

        return await within(limit_s, get())


def load() -> tuple[Any, Any]:
    """SkyPilot and its SDK; the lock is needed because two threads must not import it at once."""
    # Without this, a call to a server that is down starts a local one with this process's environment.
    os.environ.setdefault("SKYPILOT_DISABLE_LOCAL_API_SERVER", "1")
    os.environ.setdefault("SKYPILOT_DISABLE_USAGE_COLLECTION", "1")
    with _LOADING:
        import sky  # noqa: PLC0415 - an extra, and slow to import
        import sky.catalog  # noqa: PLC0415
        from sky.client import sdk  # noqa: PLC0415

    hush(sdk)
    return sky, sdk
