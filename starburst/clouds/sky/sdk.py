"""`SkyApi` by SkyPilot's Python SDK (0.14). The only module that imports `sky`, and only when it is used.

The SDK's calls are HTTP requests that block, so they run in threads; results are awaited by its asyncio
`get`.
"""

from __future__ import annotations

import asyncio
import io
import math
import os
import re
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from starburst.clouds.sky.port import (
    BUCKET,
    Access,
    CapacityError,
    CloudAccess,
    ClusterState,
    ClusterStatus,
    CredentialsError,
    JobState,
    LaunchSpec,
    NotFoundError,
    SkyError,
    UnreachableError,
)
from starburst.clouds.sky.threads import in_thread
from starburst.domain.money import Money
from translator.stores import Bucket, SkyVolume

T = TypeVar("T")

_LOADING = threading.Lock()

#: What `sky check` writes that is not for us: colours, and a block's beginning; exceptions' classes.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_BLOCK = re.compile(r"\n(?=  \S+: (?:enabled|disabled)|    (?:Reason|Hint) \[|\n)")
_EXCEPTION = re.compile(r"\[[\w.]+\] ")

#: Wall seconds: for a connection and each answer of a server that may not be there, for a call to be taken,
#: for a listing's result, for a request that makes or ends machines, and for a price: a launch waits for it.
HEALTH_S, CALL_S, LIST_S, REQUEST_S, RATE_S = 5.0, 45.0, 150.0, 1800.0, 15.0

#: SkyPilot's exceptions by what they mean here; the first that fits counts.
_MEANINGS: tuple[tuple[type[SkyError], tuple[str, ...]], ...] = (
    (UnreachableError, ("KubeAPIUnreachableError",)),
    (CapacityError, ("ResourcesUnavailableError", "ProvisionPrechecksError")),
    (
        CredentialsError,
        (
            "ApiServerAuthenticationError",
            "CloudUserIdentityError",
            "ClusterOwnerIdentityMismatchError",
            "InvalidCloudCredentials",
            "NoCloudAccessError",
            "PermissionDeniedError",
        ),
    ),
    (NotFoundError, ("ClusterDoesNotExist",)),
    (
        UnreachableError,
        (
            "ApiServerConnectionError",
            "ServerTemporarilyUnavailableError",
            "RequestInterruptedError",
            "ConcurrentWorkerExhaustedError",
            "ClusterStatusFetchingError",
            "ClusterNotUpError",
            "FetchClusterInfoError",
            "NetworkError",
            "CommandError",
            "SkyletUnavailableError",
            # of requests, aiohttp and the language
            "RequestException",
            "ClientError",
            "OSError",
            "TimeoutError",
        ),
    ),
)

_JOB_STATES = {
    **dict.fromkeys(("INIT", "PENDING"), JobState.WAITING),
    **dict.fromkeys(("SETTING_UP", "RUNNING"), JobState.RUNNING),
}


def meaning(error: BaseException) -> SkyError:
    """A SkyPilot exception as one of ours."""
    if isinstance(error, SkyError):
        return error
    names = {kind.__name__ for kind in type(error).__mro__}
    text = " ".join(_COLOURS.sub("", str(error)).split()) or type(error).__name__
    for kind, of in _MEANINGS:
        if names & set(of):
            return kind(text)
    # What the SDK knows by its words only: an id no server knows (after its state was lost), and a server
    # that is down while we forbid the SDK to start one of its own.
    if "Failed to get request" in text:
        return NotFoundError(text) if ": 404" in text else UnreachableError(text)
    if "local API server" in text or "Connection refused" in text:
        return UnreachableError(text)
    return SkyError(text)


def reasons_of(log: str) -> dict[str, dict[str, str]]:
    """Why clouds are not enabled, by cloud in lower case and by what is lacking: as `sky check` prints it.

    A reason is some lines for people; what it begins with and its details are all that is kept.
    """
    reasons: dict[str, dict[str, str]] = {}
    cloud = ""
    for block in _BLOCK.split(_COLOURS.sub("", log)):
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
    """The task that SkyPilot is given to launch a machine with: one that runs nothing."""
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
            "autostop": {"idle_minutes": spec.idle_minutes, "down": True},
        },
        "file_mounts": mounts,
        "volumes": volumes,
    }
    return {key: value for key, value in task.items() if value}


def hourly(launched: Any) -> Money | None:
    """What an hour of SkyPilot's `Resources` costs; None if its catalog has no price of them."""
    if launched is None:
        return None
    try:
        dollars = float(launched.get_cost(3600))
    except ValueError:  # not in the catalog, or without a price there
        return None
    # Catalogs write 0, or nothing, where they do not know.
    return Money.of(dollars) if 0 < dollars < math.inf else None


class SdkApi:
    """SkyPilot as the environment says: SKYPILOT_API_SERVER_ENDPOINT, or the API server of this machine."""

    def __init__(self) -> None:
        #: Calls by name, for whoever counts them.
        self.calls: dict[str, int] = {}

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

    async def exec(self, cluster: str, name: str, run: str, accelerators: Mapping[str, int]) -> str:
        """See `SkyApi`."""
        resources = {"accelerators": dict(accelerators)} if accelerators else {}
        config = {"name": name, "run": run, "resources": resources}
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
            sdk.api_info()  # tells this thread the server's version, without which a filter is only a wish
            found = sdk.api_status(
                cluster_name=cluster, fields=["request_id", "name", "cluster_name", "status"]
            )
            return [
                str(request.request_id)
                for request in found
                if request.name == "sky.launch" and request.cluster_name == cluster
            ]

        return await self._call("launching", ask)

    async def clusters(self, *, refresh: bool) -> list[ClusterStatus]:
        """See `SkyApi`."""

        def ask(sky: Any, sdk: Any) -> str:
            mode = sky.StatusRefreshMode.FORCE if refresh else sky.StatusRefreshMode.NONE
            return str(sdk.status(refresh=mode, all_users=True, _include_credentials=True))

        records = await self._result(await self._ask("status", ask), LIST_S)
        return [_cluster(record) for record in records]

    async def rate(self, status: ClusterStatus) -> Money | None:
        """See `SkyApi`."""
        return await self._call("rate", lambda _sky, _sdk: hourly(status.launched), RATE_S)

    async def queue(self, cluster: str) -> dict[str, JobState]:
        """See `SkyApi`."""
        asked = await self._ask("queue", lambda _sky, sdk: sdk.queue(cluster))
        records = await self._result(asked, LIST_S)
        return {
            record["job_name"]: _JOB_STATES.get(record["status"].value, JobState.ENDED)
            for record in sorted(records, key=lambda record: int(record["job_id"]))
        }

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
                raise UnreachableError(f"it says {answer.status_code} {answer.reason}")
            try:
                status, server = common.check_server_healthy()
            except exceptions.ApiServerConnectionError as error:
                raise UnreachableError("what is there is not SkyPilot") from error
            if status is common.ApiServerStatus.NEEDS_AUTH:
                raise CredentialsError("SkyPilot's API server wants a login")
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
            return call(sky, sdk)

        return await _typed(limit_s, in_thread(work))

    async def _result(self, request_id: str, limit_s: float) -> Any:
        def begin() -> Coroutine[Any, Any, Any]:
            load()
            from sky.client import sdk_async  # noqa: PLC0415 - an extra, and slow to import

            call: Coroutine[Any, Any, Any] = sdk_async.get(request_id)
            return call

        async def get() -> Any:
            # Before it is a coroutine it asks for the server's health, and blocks: not in our loop.
            return await (await in_thread(begin))

        return await _typed(limit_s, get())


def load() -> tuple[Any, Any]:
    """SkyPilot and its SDK. It does not bear to be imported by two threads at once."""
    # Without this a call to a server that is down starts another one here, with our environment for its own.
    os.environ.setdefault("SKYPILOT_DISABLE_LOCAL_API_SERVER", "1")
    os.environ.setdefault("SKYPILOT_DISABLE_USAGE_COLLECTION", "1")
    with _LOADING:
        import sky  # noqa: PLC0415 - an extra, and slow to import
        import sky.catalog  # noqa: PLC0415
        from sky.client import sdk  # noqa: PLC0415

    return sky, sdk


async def _typed(limit_s: float, call: Coroutine[Any, Any, T]) -> T:
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait([task], timeout=limit_s)
        if not task.done():
            raise UnreachableError(f"SkyPilot's API server gave no answer within {limit_s:g} s")
        return task.result()
    except Exception as error:  # the SDK raises whatever the server sends, and whatever its libraries do
        raise meaning(error) from error
    finally:
        task.cancel()


def _cluster(record: Any) -> ClusterStatus:
    handle, status = record["handle"], record["status"].value
    if status == "UP":
        state = ClusterState.UP
    elif status in ("STOPPED", "AUTOSTOPPING"):
        state = ClusterState.ENDING
    else:
        broken = record.get("init_kind") == "unhealthy"
        state = ClusterState.UNHEALTHY if broken else ClusterState.LAUNCHING
    resources = getattr(handle, "launched_resources", None)
    labels = record.get("labels") or getattr(resources, "labels", None) or {}
    return ClusterStatus(
        name=str(record["name"]),
        state=state,
        launched_at=float(record["launched_at"] or 0),
        spot=bool(getattr(resources, "use_spot", False)),
        labels=tuple(sorted(labels.items())),
        access=_access(handle, record.get("credentials")),
        launched=resources,
    )


def _access(handle: Any, credentials: Mapping[str, Any] | None) -> Access | None:
    host = getattr(handle, "head_ip", None)
    if host is None or not credentials or "ssh_private_key_content" not in credentials:
        return None
    return Access(
        host=host,
        user=credentials["ssh_user"],
        private_key=credentials["ssh_private_key_content"],
        port=getattr(handle, "head_ssh_port", None) or 22,
        proxy_command=credentials.get("ssh_proxy_command") or "",
    )
