"""`CloudApi`: AWS by its own API and instance ids; other clouds through SkyPilot's provisioner.

Both use the credentials of the machine that Starburst runs on. AWS describes an instance for about an hour
after its end. The provisioners of other clouds find instances by the name of their cluster, so an instance
whose tags were removed is absent there, like a terminated one; then its answer over ssh decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, TypeVar

from starburst.aio import in_thread
from starburst.clouds.sky.access.errors import within
from starburst.clouds.sky.access.ports import (
    CloudRefusesError,
    InstanceRef,
    Observation,
    Presence,
    SkyError,
    SkyUnreachableError,
)
from starburst.clouds.sky.access.sdk import load

T = TypeVar("T")

AWS = "aws"
#: Wall seconds: for a connection, for an answer, and for a call with its second try.
CONNECT_S, READ_S, CALL_S = 5, 15, 45.0
TRIES = 2

#: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceState.html
_AWS_STATES = {
    "pending": Presence.RUNNING,
    "running": Presence.RUNNING,
    "stopping": Presence.ENDING,
    "stopped": Presence.STOPPED,
    "shutting-down": Presence.ENDING,
    "terminated": Presence.ENDED,
}
#: Errors that asking again does not mend: exceptions by name, and codes of EC2's answers.
#: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
_NO_CREDENTIALS = ("ImportError", "NoCredentialsError", "PartialCredentialsError", "ProfileNotFound")
_REFUSALS = ("AccessDenied", "AuthFailure", "InvalidClientTokenId", "OptInRequired", "UnauthorizedOperation")
#: EC2's reason of a stop or termination: "User initiated (2026-11-22 13:23:24 GMT)".
_WHEN = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")
_STATES = {"INIT": Presence.RUNNING, "UP": Presence.RUNNING, "STOPPED": Presence.STOPPED}


class ProvisionApi:
    """See `CloudApi`."""

    def __init__(self) -> None:
        #: Asked before each call that changes something; raises SkyError to refuse it.
        self.fence: Callable[[], None] = lambda: None

    async def sight(self, at: InstanceRef) -> Observation:
        """See `CloudApi`."""
        if at.provider == AWS:
            return await _ask(lambda: _sight_aws(at))
        return await _ask(lambda: _sight_other(at))

    async def search(
        self, provider: str, region: str, labels: Sequence[tuple[str, str]]
    ) -> list[Observation] | None:
        """See `CloudApi`."""
        if provider != AWS:
            return None
        only = [{"Name": f"tag:{key}", "Values": [value]} for key, value in labels]
        return await _ask(lambda: _described(region, Filters=only))

    async def arm(self, at: InstanceRef) -> bool:
        """See `CloudApi`. SkyPilot leaves EC2's default, which is to stop; spot instances end in any case."""
        if at.provider != AWS:
            return False

        def work() -> bool:
            told = {"Value": "terminate"}
            self.fence()
            _ec2(at.region).modify_instance_attribute(
                InstanceId=at.instance, InstanceInitiatedShutdownBehavior=told
            )
            return True

        return await _ask(work)

    async def end(self, at: InstanceRef) -> None:
        """See `CloudApi`."""

        def work() -> None:
            self.fence()
            if at.provider == AWS:
                _ec2(at.region).terminate_instances(InstanceIds=[at.instance])
            else:
                _provision().terminate_instances(at.provider, at.name, dict(at.config))

        await _ask(work)


async def _ask(work: Callable[[], T]) -> T:
    """The result of a call of a cloud; any failure means that the cloud does not answer."""
    try:
        return await within(CALL_S, in_thread(work), "the cloud")
    except SkyError as error:
        if _refuses(error.__cause__):
            raise CloudRefusesError(str(error)) from error
        if isinstance(error, SkyUnreachableError):
            raise
        raise SkyUnreachableError(str(error)) from error


def _refuses(cause: BaseException | None) -> bool:
    """Whether a cloud cannot be asked from here, by the exception of its library."""
    answer = getattr(cause, "response", None)
    code = answer.get("Error", {}).get("Code") if isinstance(answer, dict) else None
    return code in _REFUSALS or any(kind.__name__ in _NO_CREDENTIALS for kind in type(cause).__mro__)


def _ec2(region: str, service: str = "ec2") -> Any:
    load()
    from sky.adaptors import aws  # noqa: PLC0415 - an extra, and slow to import

    limits: dict[str, Any] = {
        "connect_timeout": CONNECT_S,
        "read_timeout": READ_S,
        "total_max_attempts": TRIES,
    }
    client: Any = aws.client
    return client(service, region_name=region, **limits)


def _sight_aws(at: InstanceRef) -> Observation:
    # As a filter: an id that is not known is an empty answer then, not an error.
    only = [{"Name": "instance-id", "Values": [at.instance]}]
    found = _described(at.region, Filters=only)
    if found:
        return found[0]
    account = _ec2(at.region, "sts").get_caller_identity()["Account"]
    if at.account and account != at.account:
        raise SkyUnreachableError(
            f"{at.instance} is of account {at.account}; the credentials are of {account}"
        )
    return Observation(at, Presence.ABSENT)


def _described(region: str, **only: Any) -> list[Observation]:
    pages = _ec2(region).get_paginator("describe_instances").paginate(**only)
    groups = [group for page in pages for group in page["Reservations"]]
    return [_read(one, region, group.get("OwnerId", "")) for group in groups for one in group["Instances"]]


def _read(one: Mapping[str, Any], region: str, account: str) -> Observation:
    at = InstanceRef(AWS, region, str(one["InstanceId"]), account=account)
    # An unknown state is not an end.
    presence = _AWS_STATES.get(one["State"]["Name"], Presence.RUNNING)
    ended_at = None
    if presence in (Presence.STOPPED, Presence.ENDED):
        ended_at = when_of(one.get("StateTransitionReason", ""))
    address = one.get("PublicIpAddress") or one.get("PrivateIpAddress") or ""
    return Observation(at, presence, one["LaunchTime"].timestamp(), ended_at, address)


def when_of(reason: str) -> float | None:
    """The time in EC2's reason of a transition, epoch seconds; None if there is none."""
    told = _WHEN.search(reason)
    if told is None:
        return None
    return datetime.strptime(told[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc).timestamp()


def _provision() -> Any:
    load()
    from sky import provision  # noqa: PLC0415 - an extra, and slow to import

    return provision


def _sight_other(at: InstanceRef) -> Observation:
    found = _provision().query_instances(
        at.provider, at.name, at.name, dict(at.config), non_terminated_only=False
    )
    if at.instance not in found:
        return Observation(at, Presence.ABSENT)
    status = found[at.instance]
    status = status[0] if isinstance(status, tuple) else status
    # None is terminated, or about to be: its processes may run until it is absent.
    return Observation(at, Presence.ENDING if status is None else _STATES.get(status.value, Presence.RUNNING))
