"""The core and Chakra agree, node by node, on whether a pod may go there, whatever it asks for."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_plugin.scheduling.cache import Cache
from chakra_plugin.scheduling.demand import demand_of
from chakra_plugin.scheduling.filters import admits
from starburst.clusters.kubernetes.node_capacity import NodeCapacity
from starburst.core.parts.capacity import Capacity
from starburst.domain.job import Job
from starburst.domain.resources import HOST_PORT, Resources, sum_of
from starburst.kube.objects import PodView, resources
from starburst.kube.resources import Object
from starburst.kube.volumes.views import ClaimUse
from starburst.policy.placement import first_fit
from tests.chakra.builders import bound, node, pod
from tests.kube_unit.volume_objects import HOSTNAME, ZONE, cache_of, claim, storage_class, volume

NAMES = ("n0", "n1", "n2")
KINDS = ("cpu", "nvidia.com/gpu", "ephemeral-storage", "hugepages-2Mi", "example.com/fpga", "pods")
amounts = st.dictionaries(st.sampled_from(KINDS), st.integers(0, 3))
ports = st.lists(st.sampled_from(["TCP/80", "TCP/81", "UDP/80"]), max_size=2, unique=True).map(tuple)
pods = st.builds(
    lambda asked, taken: pod("p", requests={**asked, "pods": 1}, host_ports=taken), amounts, ports
)


def task_of(view: PodView) -> Resources:
    """As the manifest's reader makes one: each is one pod, and takes its ports."""
    found = resources({name: n for name, n in view.requests.items() if n and name != "pods"})
    taken = tuple((HOST_PORT + port, 1) for port in view.host_ports)
    return replace(found, others=sum_of(found.others, taken))


@settings(max_examples=30)
@given(st.lists(amounts, min_size=3, max_size=3), st.lists(st.tuples(pods, st.sampled_from(NAMES))), pods)
def test_they_agree_on_what_a_node_has_left(
    have: list[dict[str, int]], others: list[tuple[PodView, str]], asking: PodView
) -> None:
    room, cache = NodeCapacity(lambda _: None), Cache()
    for name, there in zip(NAMES, have, strict=True):
        view = node(name, allocatable={"pods": 2, **there})
        room.node_changed(None, view)
        cache.node_is(view)
    for number, (view, on) in enumerate(others):
        theirs = bound(replace(view, name=f"o{number}", uid=f"o{number}"), on)
        room.pod_changed(None, theirs)
        cache.bound(theirs)
    job = Job("a", "a", (task_of(asking),))
    by_core = [each.name for each in room.nodes() if Capacity((each,), first_fit).place(job) is not None]
    by_chakra = [each.name for each in cache.nodes() if admits(demand_of(asking), each)]
    assert by_core == by_chakra


zones = st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True).map("__".join)
places = st.sampled_from(["", *NAMES])
volumes = st.lists(st.tuples(places, st.none() | zones, st.integers(1, 3), st.booleans()), max_size=4)


@settings(max_examples=30)
@given(volumes, st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=3), st.booleans())
def test_they_agree_on_where_claims_may_go(
    there: list[tuple[str, str | None, int, bool]], claims: list[tuple[int, bool]], made: bool
) -> None:
    objects: list[Object] = [storage_class(provisioner="csi") if made else storage_class()]
    takers = iter([f"c{number}" for number, (_, is_bound) in enumerate(claims) if is_bound])
    owned: dict[str, str] = {}
    for number, (on, zone, gib, taken) in enumerate(there):
        owner = next(takers, None) if taken else None
        owned |= {owner: f"pv{number}"} if owner else {}
        labels = {ZONE: zone} if zone else {}
        objects.append(volume(f"pv{number}", on, gib=gib, labels=labels, claim=owner))
    for number, (gib, _) in enumerate(claims):
        objects.append(claim(f"c{number}", gib=gib, volume=owned.get(f"c{number}", "")))
    cache = cache_of(*objects)
    uses = [ClaimUse(f"c{number}") for number in range(len(claims))]
    demand = cache.demand("ns", uses)
    assert not demand.waits
    labels_of = {name: {HOSTNAME: name, ZONE: "abc"[i]} for i, name in enumerate(NAMES)}
    by_chakra = [name for name in NAMES if not demand.conflict(name, labels_of[name])]
    job = Job("a", "a", (Resources(),), volume_affinity=demand.terms)
    for name in NAMES:
        room = NodeCapacity(lambda _: None)
        room.node_changed(None, node(name, labels=labels_of[name]))
        by_core = Capacity(room.nodes(), first_fit).place(job) is not None
        assert by_core == (name in by_chakra)
        if len(demand.unbound) == len(claims) and cache.choose(demand, name) is not None:
            assert by_core, "where there is a choice, both allow it"
