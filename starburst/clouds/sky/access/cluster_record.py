"""What SkyPilot's listing says of a cluster, from the record and its pickled handle (SkyPilot 0.14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starburst.clouds.sky.access.ports import Access, ClusterState, ClusterStatus, InstanceRef


def cluster_status(record: Any) -> ClusterStatus:
    """A cluster by a record of SkyPilot's listing."""
    handle, status = record["handle"], record["status"].value
    if status == "UP":
        state = ClusterState.UP
    elif status == "STOPPED":
        state = ClusterState.STOPPED
    elif status == "AUTOSTOPPING":
        state = ClusterState.ENDING
    else:
        broken = record.get("init_kind") == "unhealthy"
        state = ClusterState.UNHEALTHY if broken else ClusterState.LAUNCHING
    resources = getattr(handle, "launched_resources", None)
    labels = record.get("labels") or getattr(resources, "labels", None) or {}
    at, *workers_at = _instances(handle, resources) or (None,)
    return ClusterStatus(
        name=str(record["name"]),
        state=state,
        launched_at=float(record["launched_at"] or 0),
        spot=bool(getattr(resources, "use_spot", False)),
        labels=tuple(sorted(labels.items())),
        access=_access(handle, record.get("credentials")),
        at=at,
        nodes=int(getattr(handle, "launched_nodes", None) or 1),
        workers=_workers(handle, record.get("credentials")),
        workers_at=tuple(workers_at),
        addresses=_addresses(handle),
        launched=resources,
        login=_login("", None, record.get("credentials")),
    )


def _addresses(handle: Any) -> tuple[str, ...]:
    return tuple(internal for internal, _ in getattr(handle, "stable_internal_external_ips", None) or ())


def _instances(handle: Any, resources: Any) -> list[InstanceRef]:
    """The instances of the nodes in the order of `_addresses`, the head first; SkyPilot has them by id."""
    info = getattr(handle, "cached_cluster_info", None)
    if info is None or info.head_instance_id is None:
        return []
    place = {address: number for number, address in enumerate(_addresses(handle))}
    first = {
        id_: min((place.get(one.internal_ip, len(place)) for one in its), default=len(place))
        for id_, its in info.instances.items()
    }
    first[info.head_instance_id] = -1
    return [_ref(handle, resources, str(id_)) for id_ in sorted(first, key=lambda id_: first[id_])]


def _ref(handle: Any, resources: Any, instance: str) -> InstanceRef:
    info = handle.cached_cluster_info
    aws = info.provider_name == "aws"  # there an id is enough
    return InstanceRef(
        provider=str(info.provider_name),
        region=str(getattr(resources, "region", None) or ""),
        instance=instance,
        name="" if aws else str(handle.cluster_name_on_cloud),
        config={} if aws else dict(info.provider_config or {}),
    )


def _access(handle: Any, credentials: Mapping[str, Any] | None) -> Access | None:
    host = getattr(handle, "head_ip", None)
    return _login(host, getattr(handle, "head_ssh_port", None), credentials)


def _workers(handle: Any, credentials: Mapping[str, Any] | None) -> tuple[Access, ...]:
    """How to log in to the nodes besides the head; () unless that is known of all."""
    hosts = [external for _, external in getattr(handle, "stable_internal_external_ips", None) or ()][1:]
    ports = [*(getattr(handle, "stable_ssh_ports", None) or ())][1:]
    ports += [None] * (len(hosts) - len(ports))
    found = [_login(host, port, credentials) for host, port in zip(hosts, ports, strict=True)]
    return tuple(access for access in found if access is not None) if None not in found else ()


def _login(host: str | None, port: int | None, credentials: Mapping[str, Any] | None) -> Access | None:
    if host is None or not credentials or "ssh_private_key_content" not in credentials:
        return None
    return Access(
        host=host,
        user=credentials["ssh_user"],
        private_key=credentials["ssh_private_key_content"],
        port=port or 22,
        proxy_command=credentials.get("ssh_proxy_command") or "",
    )
