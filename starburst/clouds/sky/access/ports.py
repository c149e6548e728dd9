"""What this adapter needs of SkyPilot, of the machines it rents and of their clouds: three narrow ports.

SkyPilot is asked for machines and about them; what happens *on* a machine goes over ssh, one exchange for
all its jobs (`Contact`). A SkyPilot call costs its API server a process and seconds; an exchange a tenth of
one. Whether a machine still exists only its cloud can say (`CloudApi`): SkyPilot's listing is what SkyPilot
remembers, and that can be lost.
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
    """SkyPilot, or the cloud behind it, did not do what it was asked. The message is for users."""


class CapacityError(SkyError):
    """The cloud has none of this to rent just now."""


class CredentialsError(SkyError):
    """The API server or a cloud does not accept who we are."""


class UnreachableError(SkyError):
    """No answer, from the API server or from a machine. What was asked may have happened."""


class LocalError(SkyError):
    """Something of ours is lacking, such as room on a disk or processes: it says nothing of a machine."""


class UnsafeError(SkyError):
    """A directory of ours is not what it should be: somebody put something else in its place."""


class NotFoundError(SkyError):
    """There is no such cluster, or no such request any more."""


class ClusterState(str, Enum):
    """How SkyPilot sees a cluster."""

    LAUNCHING = "launching"
    UP = "up"
    UNHEALTHY = "unhealthy"  # the cloud says it runs, and it does not answer
    STOPPED = "stopped"  # somebody stopped it: its disk is kept, what ran on it is dead
    ENDING = "ending"  # it gives itself back, being idle


class JobState(str, Enum):
    """How a queue sees a job."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


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
    """What a cloud says of one instance."""

    RUNNING = "running"
    STOPPED = "stopped"
    ENDING = "ending"  # on its way out; what ran there may still run
    ENDED = "ended"  # the cloud remembers it, as over
    ABSENT = "absent"  # the cloud has no instance of this id, or none any more


@dataclass(frozen=True, slots=True)
class CloudId:
    """An instance as its cloud knows it: by its id, whatever is written on it."""

    provider: str
    region: str
    instance: str
    #: SkyPilot's name of the cluster there, and what its provisioner needs to ask; where ids alone do not do.
    name: str = ""
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: Whose it is: credentials of another account do not see it, which says nothing.
    account: str = ""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a cloud says of an instance. Times are epoch seconds of its clock; None if it does not tell."""

    at: CloudId
    presence: Presence
    #: When its bill began.
    launched_at: float | None = None
    #: When its bill ended: it was stopped, or was over.
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """One cluster as a listing shows it."""

    name: str
    state: ClusterState
    #: When it came up last, epoch seconds.
    launched_at: float
    spot: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    #: None while there is nothing to log in to.
    access: Access | None = None
    #: Its machine as the cloud knows it, as far as SkyPilot says.
    at: CloudId | None = None
    #: What was launched, in SkyPilot's own terms; for `SkyApi.rate`.
    launched: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """A cluster of one machine."""

    cluster: str
    #: SkyPilot's cloud/region or cloud/region/zone.
    infra: str
    instance_type: str
    spot: bool
    labels: tuple[tuple[str, str], ...]
    #: Minutes without a job in SkyPilot's queue after which the machine gives itself back.
    idle_minutes: int
    #: A bucket's URL, mounted there at `BUCKET`; None is no bucket.
    bucket: str | None = None
    #: What else is mounted, and where.
    mounts: tuple[tuple[str, CloudStorage], ...] = ()


@dataclass(frozen=True, slots=True)
class CloudAccess:
    """What SkyPilot finds the credentials for one cloud to be good for."""

    #: Of "compute" and "storage"; without the first it rents nothing there.
    enabled: frozenset[str]
    #: Why it lacks another one: by what is lacking, in SkyPilot's words and one line each.
    reasons: Mapping[str, str]


#: Where a bucket of checkpoints is mounted on a machine.
BUCKET = "~/starburst-bucket"


class SkyApi(Protocol):
    """SkyPilot's API server. Every call has a time limit and raises a `SkyError`."""

    async def launch(self, spec: LaunchSpec) -> str:
        """Begin to launch; the request's id. One cluster per name, however often it is asked for."""

    async def down(self, cluster: str) -> str:
        """Begin to tear down; the request's id."""

    async def exec(self, cluster: str, name: str, run: str, accelerators: Mapping[str, int]) -> str:
        """Put a job into a cluster's queue; the request's id."""

    async def wait(self, request_id: str) -> None:
        """Until a request has succeeded.

        Raises:
            SkyError: it failed, and how; NotFoundError if there is no such request.
        """

    async def abort(self, request_id: str) -> None:
        """End a request that is under way; the others of its cluster go on."""

    async def launching(self, cluster: str) -> list[str]:
        """Ids of launches of this cluster that are under way."""

    async def finished_at(self, request_id: str) -> float | None:
        """When a request was over, epoch seconds; None if it is not, or the server does not say."""

    async def clusters(self, *, refresh: Sequence[str] = ()) -> list[ClusterStatus]:
        """Every cluster there is as last known; or those of these names, after their clouds were asked.

        A refresh that has not come in time goes on: the next one for the same names waits for it.
        """

    async def rate(self, status: ClusterStatus) -> Money | None:
        """What an hour of a cluster costs where it came up: its region, zone, and spot or on demand.

        By SkyPilot's catalog of the day; None if that does not say.
        """

    async def queue(self, cluster: str) -> dict[str, JobState]:
        """The jobs of a cluster's queue by name; of one name the latest."""

    async def address(self) -> str:
        """Where the API server is looked for, without a password. Asks nobody."""

    async def health(self) -> str:
        """The API server's version."""

    async def check(self, clouds: Sequence[str]) -> dict[str, CloudAccess]:
        """Have the credentials for these clouds tried now, as `sky check` does; by the names given."""


class CloudApi(Protocol):
    """The clouds themselves. Calls have a time limit, and raise a `SkyError` if the answer is not known."""

    async def sight(self, at: CloudId) -> Sighting:
        """How an instance stands."""

    async def search(
        self, provider: str, region: str, labels: Sequence[tuple[str, str]]
    ) -> list[Sighting] | None:
        """Instances that carry these labels, also such as are over; None if this cloud cannot be asked so."""

    async def arm(self, at: CloudId) -> bool:
        """Have an instance that shuts itself down end, rather than keep its disk; whether it will."""

    async def end(self, at: CloudId) -> None:
        """Begin to end an instance, by its id."""


class Contact(Protocol):
    """The way to what runs on machines. Raises UnreachableError when there is none just now.

    The key that a machine has at first contact is its key from then on; to another one nothing is said.
    """

    async def call(self, cluster: str, access: Access, verb: str, payload: Mapping[str, Any]) -> Any:
        """The machine's agent's answer to a verb (`agent/protocol.py`); unchecked, see `answers.py`."""

    async def send(self, cluster: str, access: Access, local: Path, remote: str) -> None:
        """Make a directory of the machine what this one is.

        Raises:
            UnsafeError: ours is a link, or no directory.
        """

    async def fetch(self, cluster: str, access: Access, remote: str, local: Path) -> None:
        """Make this directory what one of the machine is; as it was if the machine has none."""

    def forget(self, cluster: str) -> None:
        """There is no such machine any more; what is called so next is another one."""
