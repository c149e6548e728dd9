"""The ports of this adapter: SkyPilot's API server, the machines that it rents, and their clouds.

SkyPilot rents machines, lists them and takes them down. What happens *on* a machine goes over ssh, with one
exchange for all its jobs (`MachineTransport`): a SkyPilot call costs its API server a process and seconds, an
exchange a tenth of a second. Only its cloud can say whether a machine exists (`CloudApi`): SkyPilot's listing
is what SkyPilot remembers, and that can be lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from starburst.domain.money import Money
from translator.carried import CloudStorage


class SkyError(Exception):
    """SkyPilot, a cloud or a machine failed to do what was requested. The message is for users."""


class CapacityError(SkyError):
    """The cloud has no such machine to rent now."""


class SkyCredentialsError(SkyError):
    """The API server or a cloud rejects the credentials."""


class SkyUnreachableError(SkyError):
    """The API server or a machine does not answer; what was requested may have happened all the same."""


class CloudRefusesError(SkyUnreachableError):
    """A cloud cannot be asked from here: no credentials, none that it accepts, or no library for it."""


class LocalError(SkyError):
    """A shortage on this side, such as of disk space or processes; it says nothing about a machine."""


class UnsafeError(SkyError):
    """A local directory was replaced by something else, such as a link."""


class SkyNotFoundError(SkyError):
    """SkyPilot does not know the cluster or the request (any more)."""


class ClusterState(str, Enum):
    """The state of a cluster in SkyPilot's listing."""

    LAUNCHING = "launching"
    UP = "up"
    UNHEALTHY = "unhealthy"  # it runs by its cloud, and does not answer SkyPilot
    STOPPED = "stopped"  # its disk is kept, its processes are dead
    ENDING = "ending"  # its autostop has fired


@dataclass(frozen=True, slots=True)
class Access:
    """How to log in to a machine."""

    host: str
    user: str
    private_key: str
    port: int = 22
    #: ssh's ProxyCommand; "" connects directly.
    proxy_command: str = ""

    def __repr__(self) -> str:
        return f"Access({self.user}@{self.host}:{self.port})"  # never the key


class Presence(str, Enum):
    """The state of one instance by its cloud."""

    RUNNING = "running"
    STOPPED = "stopped"
    ENDING = "ending"  # shutting down; its processes may still run
    ENDED = "ended"  # terminated, and still described by the cloud
    ABSENT = "absent"  # the cloud does not know this id (any more)


@dataclass(frozen=True, slots=True)
class InstanceRef:
    """An instance by its id in its cloud, independent of its tags. Field names are stored."""

    provider: str
    region: str
    instance: str
    #: SkyPilot's name of the cluster in the cloud, and the provisioner's config; where an id is not enough.
    name: str = ""
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: The account that it belongs to: credentials of another account do not see it, which proves nothing.
    account: str = ""

    @property
    def ends_alone(self) -> bool:
        """Whether its cloud can end it without the others of its cluster."""
        return not self.name


@dataclass(frozen=True, slots=True)
class Observation:
    """What a cloud says of an instance. Times are epoch seconds of the cloud's clock; None if unknown."""

    at: InstanceRef
    presence: Presence
    #: Begin of the bill.
    launched_at: float | None = None
    #: End of the bill: it was stopped or terminated.
    ended_at: float | None = None
    #: Where it can be logged in to; "" if the cloud does not say.
    address: str = ""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """One cluster in SkyPilot's listing."""

    name: str
    state: ClusterState
    #: When it came up last, epoch seconds.
    launched_at: float
    spot: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    #: None while there is nothing to log in to.
    access: Access | None = None
    #: Its instance, if SkyPilot says; of a cluster of several nodes that of its head.
    at: InstanceRef | None = None
    #: SkyPilot's `Resources` of what was launched; for `SkyApi.rate`.
    launched: Any = field(default=None, repr=False, compare=False)
    #: Number of its nodes; those besides the head; and the addresses of all in their network, head first.
    nodes: int = 1
    workers: tuple[Access, ...] = ()
    workers_at: tuple[InstanceRef, ...] = ()
    addresses: tuple[str, ...] = ()
    #: How to log in to any of its instances, without the host; known before there is one. None if unknown.
    login: Access | None = None


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """The cluster to launch: one machine, or several equal ones."""

    cluster: str
    #: SkyPilot's cloud/region or cloud/region/zone.
    infra: str
    instance_type: str
    spot: bool
    labels: tuple[tuple[str, str], ...]
    #: Minutes without a job in SkyPilot's queue after which autostop takes the machine down.
    idle_minutes: int
    #: URL of a bucket to mount at `BUCKET`; None: no bucket.
    bucket: str | None = None
    #: Path and store of all other mounts.
    mounts: tuple[tuple[str, CloudStorage], ...] = ()
    nodes: int = 1
    #: SkyPilot's `network_tier`, or "" for that of its default.
    network_tier: str = ""


@dataclass(frozen=True, slots=True)
class CloudAccess:
    """What the credentials for one cloud allow, as SkyPilot found."""

    #: A subset of "compute" and "storage"; without "compute" nothing can be rented.
    enabled: frozenset[str]
    #: Why others are missing: by ability, in SkyPilot's words, one line each.
    reasons: Mapping[str, str]


#: Where a bucket of checkpoints is mounted on a machine.
BUCKET = "~/starburst-bucket"


class SkyApi(Protocol):
    """SkyPilot's API server. Every call has a time limit and raises a `SkyError`."""

    async def launch(self, spec: LaunchSpec) -> str:
        """Begin to launch; the request's id. Repeated calls with one name make one cluster."""

    async def down(self, cluster: str) -> str:
        """Begin to tear down; the request's id."""

    async def exec(self, cluster: str, name: str, run: str) -> str:
        """Put a job without GPUs into a cluster's queue; the request's id."""

    async def wait(self, request_id: str) -> None:
        """Wait until a request has succeeded.

        Raises:
            SkyError: it failed; SkyNotFoundError if there is no such request.
        """

    async def abort(self, request_id: str) -> None:
        """Cancel a request that is under way; other requests of its cluster go on."""

    async def launching(self, cluster: str) -> list[str]:
        """Ids of launches of this cluster that are under way."""

    async def finished_at(self, request_id: str) -> float | None:
        """When a request ended, epoch seconds; None if it has not, or the server does not say."""

    async def clusters(self, *, refresh: Sequence[str] = ()) -> list[ClusterStatus]:
        """All clusters as last known; or with `refresh` those of these names, after their clouds were asked.

        A refresh that takes too long goes on: the next one for the same names waits for its result.
        """

    async def rate(self, status: ClusterStatus) -> Money | None:
        """The price of an hour of one node of a cluster in its region and zone, by the current catalog.

        None if the catalog has no price.
        """

    async def address(self) -> str:
        """The configured address of the API server, without a password; sends nothing."""

    async def health(self) -> str:
        """The API server's version."""

    async def check(self, clouds: Sequence[str]) -> dict[str, CloudAccess]:
        """Try the credentials for these clouds now, as `sky check` does; by the given names."""


class CloudApi(Protocol):
    """The clouds themselves. Every call has a time limit and raises a `SkyError` without an answer."""

    async def sight(self, at: InstanceRef) -> Observation:
        """Describe an instance."""

    async def search(
        self, provider: str, region: str, labels: Sequence[tuple[str, str]]
    ) -> list[Observation] | None:
        """Instances with these labels, also terminated ones; None if this cloud cannot be searched."""

    async def arm(self, at: InstanceRef) -> bool:
        """Have an instance terminated, not stopped, when it shuts itself down; whether the cloud can."""

    async def end(self, at: InstanceRef) -> None:
        """Begin to terminate an instance, by its id."""


class MachineTransport(Protocol):
    """Calls the agent on machines and copies directories. Raises SkyUnreachableError without a connection.

    `cluster` is the cluster of a machine; each further node of a cluster has a name of its own.

    The host key of a machine is pinned at first contact; a machine with another key is sent nothing.
    """

    async def call(self, cluster: str, access: Access, verb: str, payload: Mapping[str, Any]) -> Any:
        """The machine's agent's answer to a verb (`agent/protocol.py`); unchecked, see `answers.py`."""

    async def send(self, cluster: str, access: Access, local: Path, remote: str) -> None:
        """Replace a directory of the machine by a copy of a local one.

        Raises:
            UnsafeError: the local one is a link, or no directory.
        """

    async def fetch(self, cluster: str, access: Access, remote: str, local: Path) -> None:
        """Replace a local directory by a copy of the machine's; does nothing if the machine has none."""

    def forget(self, cluster: str) -> None:
        """Drop the pinned host key: the machine is gone, and the name may be used for another one."""
