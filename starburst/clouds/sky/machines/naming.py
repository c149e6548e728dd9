"""Names and labels: which clusters are ours, and which machine each of them is.

A cluster is named `sb-<controller>-<intent>`. SkyPilot allows letters, digits, dashes, dots and underscores;
clouds allow less, so SkyPilot cuts names that are too long and adds a hash. These names are short enough to
stay as they are.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container
from dataclasses import dataclass
from functools import lru_cache

from starburst.clouds.sky.access.ports import ClusterStatus

PREFIX = "sb"
OWNER, CONTROLLER, INTENT, ASKED, EXPIRY = (
    f"starburst-{what}" for what in ("owner", "controller", "intent", "asked", "expiry")
)

#: GCP's limit for a name with SkyPilot's hash and ending is the shortest (63 - 28).
LONGEST_NAME = 35
#: GCP's label values: lower case letters, digits, dashes, underscores.
LONGEST_LABEL = 63

_PLAIN_INTENT = re.compile(r"[a-z0-9]([a-z0-9-]{0,21}[a-z0-9])?")
_CLUSTER = re.compile(rf"{PREFIX}-[0-9a-f]{{8}}-[a-z0-9-]+")


@dataclass(frozen=True, slots=True)
class Naming:
    """The names of one controller's clusters."""

    owner: str
    controller: str

    @property
    def _tag(self) -> str:
        return _tag_of(self.controller)

    def cluster(self, instance_id: str) -> str:
        """The cluster of a machine; the name of a cluster, which identifies machines of others, stays."""
        if is_cluster(instance_id):
            return instance_id
        if _PLAIN_INTENT.fullmatch(instance_id):
            return f"{PREFIX}-{self._tag}-{instance_id}"
        # Any other intent is identified by its hash, and by its label.
        return f"{PREFIX}-{self._tag}-h{hashlib.sha256(instance_id.encode()).hexdigest()[:20]}"

    def instance_id(self, cluster: str) -> str | None:
        """The machine of a cluster of this controller; None if the name is not of this controller."""
        head = f"{PREFIX}-{self._tag}-"
        return cluster[len(head) :] if cluster.startswith(head) else None

    def labels(self, instance_id: str, asked_at: float, expiry: float) -> tuple[tuple[str, str], ...]:
        """The labels of a machine that ends by itself at `expiry` (epoch seconds) if it is never renewed."""
        mine = self.intent(instance_id, asked_at)
        return ((OWNER, label(self.owner)), *mine, (EXPIRY, str(int(expiry))))

    def intent(self, instance_id: str, asked_at: float | None) -> tuple[tuple[str, str], ...]:
        """The labels that identify a machine's instance in its cloud.

        `asked_at`: when it was asked for, scheduler seconds, which tells it from a machine of that name in
        an earlier life of the store; None if its labels do not say.
        """
        asked = () if asked_at is None else ((ASKED, str(int(asked_at))),)
        return ((CONTROLLER, self._tag), (INTENT, label(instance_id)), *asked)

    def is_ours(self, status: ClusterStatus, intended: Container[str] = ()) -> bool:
        """Whether this controller made a cluster: by its label, or because it was `intended`.

        The name alone proves nothing: anyone can give a cluster a name with this prefix. Labels are unknown
        until SkyPilot has settled on a machine; until then the intents decide.
        """
        if self.instance_id(status.name) is None:
            return False
        return status.name in intended or dict(status.labels).get(CONTROLLER) == self._tag

    def is_of_owner(self, status: ClusterStatus, intended: Container[str] = ()) -> bool:
        """Whether a Starburst of the same owner made a cluster: this one, or another by its label."""
        if self.is_ours(status, intended):
            return True
        another = is_cluster(status.name) and self.instance_id(status.name) is None
        return another and dict(status.labels).get(OWNER) == label(self.owner)

    def controller_of(self, status: ClusterStatus) -> str:
        """The tag of the controller in a cluster's name."""
        return status.name.removeprefix(f"{PREFIX}-").partition("-")[0]


@lru_cache(100)
def _tag_of(controller: str) -> str:
    return hashlib.sha256(controller.encode()).hexdigest()[:8]


def asked_at(status: ClusterStatus) -> int | None:
    """When a cluster was asked for by its label, scheduler seconds; None if that does not say."""
    told = dict(status.labels).get(ASKED, "")
    return int(told) if told.isdecimal() else None


def is_cluster(name: str) -> bool:
    """Whether a cluster has a name as any Starburst gives them."""
    return _CLUSTER.fullmatch(name) is not None


def label(text: str) -> str:
    """Text as a label's value that every cloud allows."""
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:LONGEST_LABEL]


def run_name(job_id: str, attempt: int, rank: int) -> str:
    """The name of one task of a run, in a machine's queue and as a container."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "-", job_id)
    if plain != job_id or len(plain) > 40:
        plain = f"{plain[:31]}-{hashlib.sha256(job_id.encode()).hexdigest()[:8]}"
    return f"{PREFIX}-{plain}-{attempt}-{rank}"
