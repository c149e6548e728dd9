"""How many volumes a node takes (CSINode), and how much room is left for them (CSIStorageCapacity)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starburst.kube.resources import Object
from starburst.kube.volumes.cache import VolumeCache
from starburst.kube.volumes.demand import NO_SPACE, TOO_MANY
from starburst.kube.volumes.views import ClaimUse, claim_need, read_csi_node
from tests.chakra.builders import pod
from tests.kube_unit.test_volumes import demand, nodes
from tests.kube_unit.volume_objects import cache_of, claim, csi_node, storage_capacity, storage_class, tell
from tests.kube_unit.volume_objects import volume as any_volume

EBS = "ebs"
MADE = storage_class(provisioner=EBS)
DATA, MORE = ClaimUse("data"), ClaimUse("more")


def bound(name: str, driver: str = EBS) -> tuple[Object, Object]:
    """A claim and its volume of a driver."""
    return claim(name, volume=f"pv-{name}"), any_volume(
        f"pv-{name}", claim=name, csi={"driver": driver, "volumeHandle": name}
    )


def use(cache: VolumeCache, name: str, node: str, *claims: str) -> None:
    """A pod uses claims on a node."""
    cache.use(replace(pod(name, namespace="ns"), claims=tuple(map(ClaimUse, claims))), node)


def full_n0(limit: int = 1) -> VolumeCache:
    """Two claims are there, and one of them is used on n0, which takes so many."""
    cache = cache_of(MADE, *bound("data"), *bound("more"), csi_node("n0", ebs=limit))
    use(cache, "q", "n0", "more")
    return cache


def test_a_node_takes_as_many_volumes_of_a_driver_as_it_says() -> None:
    cache = full_n0()
    found = demand(cache)
    assert nodes(found) == "n1 n2"
    assert found.conflict("n0", {}) == TOO_MANY
    assert nodes(demand(full_n0(limit=2))) == "n0 n1 n2"
    assert nodes(demand(cache_of(MADE, *bound("data"), csi_node("n0", ebs=0)))) == "n1 n2"


def test_a_volume_that_is_on_the_node_already_counts_once() -> None:
    cache = full_n0()
    assert nodes(demand(cache, MORE)) == "n0 n1 n2"
    use(cache, "r", "n0", "more")
    use(cache, "q", "", "more")
    assert nodes(demand(cache)) == "n1 n2", "another pod still uses it there"
    use(cache, "r", "", "more")
    assert nodes(demand(cache)) == "n0 n1 n2"


def test_volumes_of_other_drivers_and_of_drivers_without_a_number_do_not_count() -> None:
    other = cache_of(*bound("data", "nfs"), *bound("more"), csi_node("n0", ebs=1, nfs=None))
    use(other, "q", "n0", "more")
    assert nodes(demand(other)) == "n0 n1 n2"


def test_a_claim_whose_volume_is_still_to_be_made_counts_for_its_provisioner() -> None:
    cache = cache_of(MADE, claim(), *bound("more"), csi_node("n0", ebs=1))
    use(cache, "q", "n0", "more")
    assert nodes(demand(cache)) == "n1 n2"
    need = claim_need(claim()["spec"])
    templates = cache.demand("ns", (), templates=[need])
    assert nodes(templates) == "n1 n2", "also one that is made with its pod"


def test_what_the_driver_says_later_is_heard() -> None:
    cache = full_n0()
    cache.take_changed()
    old, new = (read_csi_node(csi_node("n0", ebs=limit)) for limit in (1, 5))
    cache.csi_node_changed(old, new)
    assert None in cache.take_changed()
    assert nodes(demand(cache)) == "n0 n1 n2"
    cache.csi_node_changed(new, None)
    cache.take_changed()
    use(cache, "s", "n0", "data")
    assert None not in cache.take_changed(), "without limits only pods of that claim mind"


@pytest.mark.parametrize(
    ("published", "where"),
    [
        ([], "n0 n1 n2"),
        ([storage_capacity(5, "n1"), storage_capacity(0, "n0")], "n1"),
        ([storage_capacity(5)], "n0 n1 n2"),
        ([storage_capacity(5, largest=1)], ""),
        ([storage_capacity(1, "n2")], ""),
        ([storage_capacity(1, "n2", storage_class="other")], "n0 n1 n2"),
        ([{**storage_capacity(5, "n2"), "nodeTopology": None}], ""),
    ],
)
def test_a_volume_is_made_where_there_is_room_for_it(published: list[Object], where: str) -> None:
    cache = cache_of(MADE, claim(gib=2), *published)
    found = demand(cache)
    assert nodes(found) == where
    chosen = " ".join(n for n in ("n0", "n1", "n2") if cache.choose(found, n) is not None)
    assert chosen == where
    if not where:
        assert found.conflict("n0", {}) == NO_SPACE


def test_a_free_volume_needs_no_room() -> None:
    cache = cache_of(MADE, claim(), storage_capacity(0), any_volume(on="n1"))
    assert nodes(demand(cache)) == "n1"


def test_room_that_comes_free_is_heard() -> None:
    cache = cache_of(MADE, claim(gib=2))
    tell(cache, storage_capacity(1))
    assert nodes(demand(cache)) == ""
    cache.take_changed()
    tell(cache, {**storage_capacity(9), "metadata": {"namespace": "storage", "name": "second"}})
    assert None in cache.take_changed()
    assert nodes(demand(cache)) == "n0 n1 n2"
