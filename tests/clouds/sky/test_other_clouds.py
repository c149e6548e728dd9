"""Instances of clouds other than AWS, which SkyPilot's provisioner is asked for; it is a stub here."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from starburst.clouds.sky.access import cloud_api
from starburst.clouds.sky.access.cloud_api import ProvisionApi
from starburst.clouds.sky.access.ports import InstanceRef, Presence, SkyUnreachableError
from starburst.clouds.sky.machines.liveness import Liveness, liveness_of

AT = InstanceRef("gcp", "us-central1", "vm-1", "sb-c-i-1-abcd", {"zone": "us-central1-a"})


class Provisioner:
    """SkyPilot's `sky.provision` (0.14): the signatures of what is called of it."""

    def __init__(self, **instances: Any) -> None:
        self.instances = instances
        self.ended: list[tuple[str, str, dict[str, Any]]] = []

    def query_instances(  # noqa: PLR0917 - as SkyPilot has it
        self,
        provider_name: str,
        cluster_name: str,
        cluster_name_on_cloud: str,
        provider_config: dict[str, Any] | None = None,
        non_terminated_only: bool = True,
        retry_if_missing: bool = False,
    ) -> dict[str, Any]:
        assert (provider_name, cluster_name_on_cloud, provider_config) == ("gcp", AT.name, AT.config)
        assert not non_terminated_only
        return self.instances

    def terminate_instances(
        self,
        provider_name: str,
        cluster_name_on_cloud: str,
        provider_config: dict[str, Any],
        worker_only: bool = False,
    ) -> None:
        if "broken" in self.instances:
            raise RuntimeError("403: Required 'compute.instances.delete' permission")
        self.ended.append((provider_name, cluster_name_on_cloud, provider_config))


def provisioner(monkeypatch: pytest.MonkeyPatch, **instances: Any) -> Provisioner:
    made = Provisioner(**instances)
    monkeypatch.setattr(cloud_api, "_provision", lambda: made)
    return made


def status(name: str) -> tuple[Any, None]:
    return SimpleNamespace(value=name), None


@pytest.mark.parametrize(
    ("instances", "presence", "silent"),
    [
        ({"vm-1": status("UP")}, Presence.RUNNING, Liveness.LIVES),
        ({"vm-1": status("INIT")}, Presence.RUNNING, Liveness.LIVES),
        ({"vm-1": status("STOPPED")}, Presence.STOPPED, Liveness.STOPPED),
        ({"vm-1": status("PENDING")}, Presence.RUNNING, Liveness.LIVES),
        ({"vm-1": (None, "terminating")}, Presence.ENDING, Liveness.UNKNOWN),
        ({"vm-1": SimpleNamespace(value="STOPPED")}, Presence.STOPPED, Liveness.STOPPED),
        ({"vm-2": status("UP")}, Presence.ABSENT, Liveness.GONE),
        ({}, Presence.ABSENT, Liveness.GONE),
    ],
    ids=["up", "boots", "stopped", "a state of later versions", "ends", "older versions", "another", "none"],
)
def test_what_the_provisioner_says_of_an_instance(
    monkeypatch: pytest.MonkeyPatch, instances: dict[str, Any], presence: Presence, silent: Liveness
) -> None:
    made = provisioner(monkeypatch)
    made.instances = instances
    seen = asyncio.run(ProvisionApi().sight(AT))
    assert (seen.at, seen.presence, seen.launched_at, seen.ended_at) == (AT, presence, None, None)
    assert liveness_of(seen.presence, None, answers=False, surely_over=False) is silent
    answering = liveness_of(seen.presence, None, answers=True, surely_over=False)
    assert answering is (Liveness.STOPPED if presence is Presence.STOPPED else Liveness.LIVES)


def test_an_instance_is_ended_with_its_cluster_unless_another_one_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = provisioner(monkeypatch)
    api = ProvisionApi()
    asyncio.run(api.end(AT))
    assert made.ended == [("gcp", AT.name, dict(AT.config))]
    assert made.ended[0][2] is not AT.config, "the provisioner may change it"

    def refuse() -> None:
        raise SkyUnreachableError("another one leads")

    api.fence = refuse
    with pytest.raises(SkyUnreachableError, match="another one leads"):
        asyncio.run(api.end(AT))
    assert len(made.ended) == 1


def test_a_failure_of_the_provisioner_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    provisioner(monkeypatch, broken=status("UP"))
    with pytest.raises(SkyUnreachableError, match=r"compute\.instances\.delete"):
        asyncio.run(ProvisionApi().end(AT))
    monkeypatch.setattr(cloud_api, "_provision", SimpleNamespace)
    with pytest.raises(SkyUnreachableError, match="query_instances"):
        asyncio.run(ProvisionApi().sight(AT))


def test_they_cannot_be_searched_nor_told_to_end_when_they_shut_themselves_down() -> None:
    api = ProvisionApi()
    assert asyncio.run(api.search("gcp", "us-central1", [("a", "b")])) is None
    assert asyncio.run(api.arm(AT)) is False
