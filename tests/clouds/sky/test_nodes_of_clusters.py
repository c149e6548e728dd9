"""Which machine is which in a cluster: SkyPilot has addresses in one order, and instances in another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from starburst.clouds.sky.access.cluster_record import cluster_status
from starburst.clouds.sky.access.ports import Access, ClusterState, ClusterStatus, InstanceRef
from starburst.clouds.sky.machines.entry import MachineEntry

#: Addresses by instance, in the order of ids, as SkyPilot describes the instances of AWS.
ADDRESSES = {"i-1": "10.0.0.9", "i-2": "10.0.0.30", "i-3": "10.0.0.4", "i-4": "10.0.0.11"}


def record(head: str = "i-2", **ips: str) -> dict[str, Any]:
    """A cluster as SkyPilot 0.14 lists it: addresses are sorted as text, after the head's."""
    known = ips or ADDRESSES
    others = sorted(address for id_, address in known.items() if id_ != head)
    info = SimpleNamespace(
        head_instance_id=head,
        instances={id_: [SimpleNamespace(internal_ip=address)] for id_, address in ADDRESSES.items()},
        provider_name="aws",
        provider_config=None,
    )
    handle = SimpleNamespace(
        cached_cluster_info=info,
        head_ip="1.0.0.30",
        stable_internal_external_ips=[(one, f"1{one[2:]}") for one in (ADDRESSES[head], *others)],
        launched_nodes=4,
    )
    credentials = {"ssh_user": "ubuntu", "ssh_private_key_content": "key"}
    up = SimpleNamespace(value="UP")
    return {"name": "c", "handle": handle, "status": up, "launched_at": 1.0, "credentials": credentials}


def test_instances_are_listed_in_the_order_of_their_logins_and_addresses() -> None:
    status = cluster_status(record())
    assert status.at is not None
    ids = [status.at.instance, *(one.instance for one in status.workers_at)]
    assert ids == ["i-2", "i-4", "i-3", "i-1"]
    assert [ADDRESSES[id_] for id_ in ids] == [*status.addresses]
    assert [f"1{ADDRESSES[id_][2:]}" for id_ in ids[1:]] == [one.host for one in status.workers]


def test_an_instance_without_an_address_is_the_last_one() -> None:
    addresses = {id_: address for id_, address in ADDRESSES.items() if id_ != "i-4"}
    status = cluster_status(record(**addresses))
    assert [one.instance for one in status.workers_at][-1] == "i-4"
    assert len(status.workers_at) == 3


def entry_of(*ids: str) -> MachineEntry:
    """A machine of several that its cloud has described in this order."""
    entry = MachineEntry("i-1", "o", False, 0.0, nodes=len(ids))
    entry.at, *entry.workers_at = [InstanceRef("aws", "us-east-1", id_) for id_ in ids]
    return entry


def listed(*ids: str) -> ClusterStatus:
    """Listed by SkyPilot in this order."""
    at, *workers_at = (InstanceRef("aws", "us-east-1", id_) for id_ in ids)
    logins = [Access(f"host-{id_}", "ubuntu", "key") for id_ in ids]
    return ClusterStatus(
        "c",
        ClusterState.UP,
        1.0,
        access=logins[0],
        at=at,
        workers=tuple(logins[1:]),
        workers_at=tuple(workers_at),
        addresses=tuple(f"10.{id_}" for id_ in ids),
    )


def in_order(entry: MachineEntry) -> list[tuple[str, str, str]]:
    """Of each machine its instance, its login and its address."""
    logins = [entry.access, *entry.workers]
    hosts = [login.host if login else "" for login in logins]
    ids = [one.instance for one in entry.instances]
    return list(zip(ids, hosts, entry.addresses, strict=True))


def test_what_an_older_version_noted_in_another_order_is_put_right() -> None:
    entry = entry_of("a", "b", "c")
    entry.note_logins(listed("a", "c", "b"))
    assert in_order(entry) == [(id_, f"host-{id_}", f"10.{id_}") for id_ in "acb"]


def test_of_a_cluster_of_which_a_part_is_gone_all_logins_stay_as_they_were() -> None:
    entry = entry_of("a", "b", "c")
    entry.note_logins(listed("a", "b", "c"))
    before = in_order(entry)
    entry.note_logins(listed("a", "c"))
    assert in_order(entry) == before
    entry.lost_at = [None, 5.0, None]
    entry.note_logins(listed("a", "c", "b"))
    assert in_order(entry) == before
