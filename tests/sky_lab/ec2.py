"""What the fake EC2 itself knows of instances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from itertools import pairwise
from math import inf
from typing import Any

import boto3

from starburst.clouds.sky.machines.naming import CONTROLLER, INTENT

REGIONS = ("us-east-1", "us-west-2")
#: States of an instance that costs money.
COSTING = frozenset({"pending", "running", "stopping", "stopped"})
#: The cloud's times are whole seconds.
EXACT_S = 1.0


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance as the cloud has it. Times are epoch seconds, whole ones."""

    id: str
    #: Of the store that asked for it.
    intent: str
    type: str
    spot: bool
    launched_at: float
    #: None while the cloud bills it.
    ended_at: float | None


@cache
def ec2(region: str = REGIONS[0]) -> Any:
    """The cloud itself, in one region."""
    return boto3.client("ec2", region_name=region)


def rented(tag: str) -> list[Instance]:
    """All that a store ever rented, by the label of its controller."""
    of_store = {"Name": f"tag:{CONTROLLER}", "Values": [tag]}
    return [_read(one) for region in REGIONS for one in _listed(region, of_store)]


def made_twice(machines: Iterable[Instance], unanswered: Sequence[tuple[float, float]] = ()) -> Iterator[str]:
    """Intents that had two instances at one time.

    While answers of RunInstances are lost, `unanswered` from one time to another, SkyPilot itself asks again.
    """
    in_order = sorted(machines, key=lambda one: (one.intent, one.launched_at))
    for first, second in pairwise(in_order):
        at_once = first.intent == second.intent and second.launched_at < (first.ended_at or inf)
        if at_once and not any(
            began - EXACT_S <= first.launched_at <= ended + EXACT_S for began, ended in unanswered
        ):
            yield f"{second.intent} had {first.id} and {second.id} at one time"


def most_at_once(machines: Iterable[Instance]) -> int:
    """How many intents had a machine at one time, at most; that one has two is another matter.

    A machine that ends in the second in which another one begins is not there with it.
    """
    changes = sorted(
        (at, begins, one.intent)
        for one in machines
        for at, begins in ((one.launched_at, True), (inf if one.ended_at is None else one.ended_at, False))
    )
    there: Counter[str] = Counter()
    most = 0
    for _at, begins, intent in changes:
        there[intent] += 1 if begins else -1
        most = max(most, sum(count > 0 for count in there.values()))
    return most


def volumes_left(tag: str, machines: Iterable[Instance]) -> Iterator[str]:
    """Disks of a store that are left in its account, by all machines that it ever rented."""
    of_store = {"Name": f"tag:{CONTROLLER}", "Values": [tag]}
    listed = [
        one for region in REGIONS for one in ec2(region).describe_volumes(Filters=[of_store])["Volumes"]
    ]
    disks = [(_tags(one)[INTENT], one["VolumeId"], bool(one["Attachments"])) for one in listed]
    return disks_left(disks, [machine.intent for machine in machines if machine.ended_at is not None])


def disks_left(disks: Iterable[tuple[str, str, bool]], ended: Iterable[str]) -> Iterator[str]:
    """Which of these (intent, id, attached) are left: attached ones, and more than machines have `ended`.

    EC2 deletes the first disk of a machine with it; the fake one keeps it, attached to nothing.
    """
    first = Counter(ended)
    for intent, id_, attached in disks:
        first[intent] -= not attached
        if attached or first[intent] < 0:
            yield f"{id_}, a disk of {intent}, is left"


def of_cluster(name: str) -> dict[str, str]:
    """States of the instances in the first region that are of the cluster with this name, whosever it is."""
    named = {"Name": "tag:skypilot-cluster-name", "Values": [name, f"{name}-*"]}
    return {one["InstanceId"]: one["State"]["Name"] for one in _listed(REGIONS[0], named)}


def billed() -> dict[str, dict[str, str]]:
    """Instances of the first region that cost money just now, whosever they are, with their tags."""
    costing = {"Name": "instance-state-name", "Values": sorted(COSTING)}
    return {one["InstanceId"]: _tags(one) for one in _listed(REGIONS[0], costing)}


def stops(tag: str) -> dict[str, float]:
    """Instances of a store in the first region that are stopped now, which cost nothing, and since when."""
    of_store = {"Name": f"tag:{CONTROLLER}", "Values": [tag]}
    found = [_read(one) for one in _listed(REGIONS[0], of_store) if one["State"]["Name"] == "stopped"]
    return {one.id: one.ended_at for one in found if one.ended_at is not None}


def _listed(region: str, only: dict[str, Any]) -> list[dict[str, Any]]:
    groups = ec2(region).describe_instances(Filters=[only])["Reservations"]
    return [one for group in groups for one in group["Instances"]]


def _tags(one: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in one.get("Tags", ())}


def _read(one: dict[str, Any]) -> Instance:
    ended_at = None
    if one["State"]["Name"] not in {"pending", "running"}:
        said = one["StateTransitionReason"].partition("(")[2].removesuffix(" UTC)")
        when = datetime.strptime(said, "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc)
        ended_at = when.timestamp()
    spot = one.get("InstanceLifecycle") == "spot"
    intent, launched_at = _tags(one)[INTENT], one["LaunchTime"].timestamp()
    return Instance(one["InstanceId"], intent, one["InstanceType"], spot, launched_at, ended_at)


def intent_of(vm: str) -> str:
    """The intent by which a machine was rented."""
    (group,) = ec2().describe_instances(InstanceIds=[vm])["Reservations"]
    return _tags(group["Instances"][0])[INTENT]
