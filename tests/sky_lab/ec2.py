"""What the fake EC2 itself knows of the instances that a store rented."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import boto3

from starburst.clouds.sky.naming import CONTROLLER, INTENT

REGIONS = ("us-east-1", "us-west-2")


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance as the cloud has it. Times are epoch seconds, whole ones."""

    id: str
    #: Of the store that asked for it.
    intent: str
    launched_at: float
    #: None while the cloud bills it.
    ended_at: float | None


def rented(tag: str) -> list[Instance]:
    """All that a store ever rented, by the label of its controller."""
    found: list[Instance] = []
    for region in REGIONS:
        ec2 = boto3.client("ec2", region_name=region, aws_access_key_id="x", aws_secret_access_key="x")
        answer = ec2.describe_instances(Filters=[{"Name": f"tag:{CONTROLLER}", "Values": [tag]}])
        found += [_read(one) for group in answer["Reservations"] for one in group["Instances"]]
    return found


def _read(one: dict[str, Any]) -> Instance:
    tags = {tag["Key"]: tag["Value"] for tag in one["Tags"]}
    ended_at = None
    if one["State"]["Name"] not in {"pending", "running"}:
        said = one["StateTransitionReason"].partition("(")[2].removesuffix(" UTC)")
        when = datetime.strptime(said, "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc)
        ended_at = when.timestamp()
    return Instance(one["InstanceId"], tags[INTENT], one["LaunchTime"].timestamp(), ended_at)
