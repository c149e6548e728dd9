"""Which of several Starbursts writes to a cluster: the one that holds their Lease; the others stand by."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from starburst.kube.access import STARBURST_LEASE
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, LeaseLostError, NotLeadingError
from starburst.kube.lease import LeaseCandidate, lead
from starburst.kube.resources import NAMESPACES
from starburst.kube.reviews import may

log = structlog.get_logger()

#: Where the Lease is, unless the config names it: in the namespace of this pod, else in the first of these
#: that there is.
POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
NAMESPACES_OF_LEASE = ("starburst-system", "kube-system")
#: Wall seconds between looks whether this process leads by now.
LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """Of the Lease of one Starburst."""

    #: "" is this pod's, or the first of NAMESPACES_OF_LEASE that there is.
    namespace: str
    name: str
    identity: str
    #: Without its rights nothing is started; else it goes on without a Lease.
    required: bool
    #: Is given the identity of the Starburst that leads instead; "" when this one does.
    stands_by: Callable[[str], None]


def identity_of(home: Path) -> str:
    """Of the one process that holds this home, the same after its restart."""
    return f"{socket.gethostname()}:{home}"


def shared_identity(controller: str) -> str:
    """Of all processes that lead by turns on the store with this id."""
    return f"store:{controller}"


async def lease_namespace(api: Api, wanted: str) -> str:
    """Where the Lease is. Raises ApiError, ApiUnreachableError."""
    if wanted:
        return wanted
    if POD_NAMESPACE.exists():
        return POD_NAMESPACE.read_text().strip()
    first, other = NAMESPACES_OF_LEASE
    try:
        return first if await api.find(NAMESPACES, "", first) is not None else other
    except ApiError as error:
        if error.status != 403:
            raise
        return first


async def missing_rights(api: Api, namespace: str, name: str) -> list[str]:
    """The verbs on the Lease that this account lacks. Raises ApiError, ApiUnreachableError."""
    # RBAC cannot name what is not there yet.
    asked = [each if each.verb == "create" else replace(each, name=name) for each in STARBURST_LEASE]
    return [each.verb for each in asked if not await may(api, each, namespace)]


class Leadership:
    """The election of one process, and the fence before its writes. `api` is for the Lease alone.

    A holder that cannot renew its Lease writes nothing until it holds it again; reads go on. When another
    Starburst took the Lease meanwhile, that is an error: a new process begins by standing by.
    """

    def __init__(self, api: Api, candidate: LeaseCandidate, stands_by: Callable[[str], None]) -> None:
        self._api = api
        self._who = candidate
        self._stands_by = stands_by
        self._leading: Callable[[], bool] = lambda: False
        self._has_led = False
        self._leader = ""

    def fence(self) -> None:
        """Raises NotLeadingError: nothing may be written now."""
        if not self._leading():
            raise NotLeadingError(
                f"not written: {self._leader or 'nobody'} holds the Lease {self._who.lease}"
            )

    async def led(self) -> None:
        """Wait until this process leads."""
        while not self._leading():
            await asyncio.sleep(LOOK_S)

    async def run(self) -> None:
        """Compete and lead until cancelled; the Lease is released then.

        Raises:
            LeaseLostError: another Starburst took over.
        """
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    await lead(
                        self._api,
                        namespace=self._who.namespace,
                        name=self._who.name,
                        identity=self._who.identity,
                        run=self._term,
                        timing=self._who.timing,
                        clock=loop.time,
                        heard=self._heard,
                    )
                except LeaseLostError as error:
                    if self._leader:
                        raise self._taken_over() from None
                    log.warning(
                        "lease-lost", error=str(error), note="nothing is written until it is held again"
                    )
        finally:
            self._stands_by("")
            await self._api.close()

    async def _term(self, still_leading: Callable[[], bool]) -> None:
        self._leading, self._has_led, self._leader = still_leading, True, ""
        self._stands_by("")
        await asyncio.Event().wait()

    def _heard(self, holder: str) -> None:
        """Another process holds the Lease."""
        if holder != self._leader:
            self._leader = holder
            log.warning("stands-by", lease=self._who.lease, leader=holder)
            self._stands_by(holder)
        if self._has_led:
            raise self._taken_over()

    def _taken_over(self) -> LeaseLostError:
        return LeaseLostError(
            f"{self._leader} has taken over the Lease {self._who.lease}; start again to stand by"
        )


async def take_part(
    api: Api, connect: Callable[[], Awaitable[Api]], options: LeaseOptions
) -> Leadership | None:
    """The election for a cluster, with the fence before all writes of `api`; None without the rights for it.

    Raises:
        ApiError: the rights are required and missing, or the server does not say.
        ApiUnreachableError: no answer.
    """
    namespace = await lease_namespace(api, options.namespace)
    lacks = await missing_rights(api, namespace, options.name)
    if lacks:
        why = f"it may not {', '.join(lacks)} the Lease {namespace}/{options.name}"
        if options.required:
            raise ApiError(403, "Forbidden", f"cluster.lease: {why}")
        log.warning("no-lease", error=why, note="another Starburst on this cluster would not be seen")
        return None
    who = LeaseCandidate(namespace, options.name, options.identity)
    leadership = Leadership(await connect(), who, options.stands_by)
    of_store = api.fence

    def fence() -> None:
        of_store()
        leadership.fence()

    api.fence = fence
    return leadership
