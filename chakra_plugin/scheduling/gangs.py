"""Gangs: pods that start together or not at all, by `starburst.io/gang: name/size`."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass

from starburst.kube import names
from starburst.kube.objects import PodView

_GANG = re.compile(r"(?P<name>[^/]+)/(?P<size>[1-9][0-9]{0,5})")


@dataclass(frozen=True, slots=True)
class Gang:
    """The identity of a gang: the same name in two namespaces, or with two sizes, names two gangs."""

    namespace: str
    name: str
    size: int


def gang_of(pod: PodView) -> Gang | str | None:
    """The gang of a pod, None if it has none, or as a text what is wrong with its annotation."""
    text = pod.annotations.get(names.GANG) or pod.labels.get(names.GANG)
    if not text:
        return None
    match = _GANG.fullmatch(text)
    if match is None:
        return f'{names.GANG}: "{text}" is not name/size, such as "train/4".'
    return Gang(pod.namespace, match["name"], int(match["size"]))


@dataclass(frozen=True, slots=True)
class GangMember:
    """A pod of a group that is assigned to a node, or was until it succeeded."""

    rank: int | None
    over: bool
    #: uid; "" without one.
    owner: str
    #: "" while it has none.
    address: str


class RankGroups:
    """The ranks of pods within their owner and within their gang. Failed pods are in no group."""

    def __init__(self) -> None:
        self._members: dict[object, dict[str, GangMember]] = {}
        self._of: dict[str, tuple[object, ...]] = {}

    def put(self, pod: PodView, rank: int | None) -> tuple[object, ...]:
        """Add a pod that is bound or will be; returns its groups."""
        gang = gang_of(pod)
        groups: list[object] = [owner_key(pod)]
        if isinstance(gang, Gang):
            groups.append(gang)
        member = GangMember(rank, pod.over, pod.owner.uid if pod.owner else "", pod.address)
        for group in groups:
            self._members.setdefault(group, {})[pod.uid] = member
        self._of[pod.uid] = tuple(groups)
        return self._of[pod.uid]

    def drop(self, uid: str) -> tuple[object, ...]:
        """Remove a pod that is gone or was not bound; returns the groups it was in."""
        groups = self._of.pop(uid, ())
        for group in groups:
            members = self._members[group]
            del members[uid]
            if not members:
                del self._members[group]
        return groups

    def free_ranks(self, group: object, count: int) -> list[int]:
        """The lowest ranks that are free."""
        taken = {member.rank for member in self._members.get(group, {}).values()}
        found: list[int] = []
        rank = 0
        while len(found) < count:
            if rank not in taken:
                found.append(rank)
            rank += 1
        return found

    def master_address(self, group: object) -> str:
        """The address of the pod of rank 0; "" while it has none."""
        members = self._members.get(group, {}).values()
        return next((member.address for member in members if member.rank == 0), "")

    def there(self, gang: Gang, owners: Set[str]) -> int:
        """How many members of a gang are assigned: those that live, and those of these owners that succeeded.

        A succeeded pod counts only beside others of its owner (or beside others without one): it is part of
        the same run, and not of one in the past that had the same name.
        """
        members = self._members.get(gang, {}).values()
        return sum(not member.over or member.owner in owners for member in members)


def owner_key(pod: PodView) -> str:
    """The uid of a pod's owner; its own uid without one."""
    return pod.owner.uid if pod.owner else pod.uid


def missing(gang: Gang, there: int) -> int:
    """How many pods of a gang have to be placed at once; pods beyond its size form the next one."""
    return gang.size - there % gang.size
