"""What the claims of a pod demand of its node, as kube-scheduler's VolumeBinding and VolumeZone have it."""

from __future__ import annotations

from typing import Any

import pytest

from starburst.domain.constraints import Rules
from starburst.kube.objects import read_pod
from starburst.kube.resources import Object
from starburst.kube.volumes.cache import VolumeCache
from starburst.kube.volumes.demand import NO_VOLUMES, VolumeChoice, VolumeDemand
from starburst.kube.volumes.views import ClaimUse, StorageNeed, templates_of
from tests.chakra.builders import bound, pod
from tests.kube_unit.volume_objects import HOSTNAME, ZONE, cache_of, claim, storage_class, tell, volume

DATA = ClaimUse("data")


def demand(cache: VolumeCache, *uses: ClaimUse) -> VolumeDemand:
    return cache.demand("ns", uses or (DATA,), own=("uid-p",))


def nodes(found: VolumeDemand) -> str:
    """The nodes of n0, n1 and n2 that will do; the core, which has terms only, agrees."""
    labels = {f"n{i}": {HOSTNAME: f"n{i}", ZONE: "abc"[i]} for i in range(3)}
    names = [name for name in labels if not found.conflict(name, labels[name])]
    assert names == [name for name in labels if Rules(found.terms).admits(name, labels[name], ())]
    return " ".join(names)


BOUND = (claim(volume="pv"), storage_class())


def test_a_pod_without_claims_demands_nothing() -> None:
    assert cache_of().demand("ns", (), own=("uid-p",)) is NO_VOLUMES


def test_a_bound_claim_goes_where_its_volume_is() -> None:
    assert nodes(demand(cache_of(*BOUND, volume(on="n1", claim="data")))) == "n1"
    assert nodes(demand(cache_of(*BOUND, volume(claim="data")))) == "n0 n1 n2"


@pytest.mark.parametrize("label", [ZONE, "failure-domain.beta.kubernetes.io/zone"])
def test_zone_labels_of_a_volume_are_a_rule_as_well(label: str) -> None:
    assert nodes(demand(cache_of(*BOUND, volume(claim="data", labels={label: "a__c"})))) == "n0 n2"


def test_two_claims_must_both_be_met() -> None:
    cache = cache_of(*BOUND, claim("more", volume="pv2"), volume(claim="data", labels={ZONE: "a__b"}))
    tell(cache, volume("pv2", claim="more", labels={ZONE: "b__c"}))
    assert nodes(demand(cache, DATA, ClaimUse("more"))) == "n1"


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ((), "there is none of that name"),
        ((claim(), storage_class(volumeBindingMode="Immediate")), "it is not bound"),
        ((claim(storage_class=""),), "it is not bound"),
        ((claim(),), "it is not bound, and there is no StorageClass late"),
        ((claim(volumeName="pv"), storage_class()), "it is not bound"),
        ((claim(volume="pv"),), "its volume pv is not there"),
        (({**claim(volume="pv"), "status": {"phase": "Lost"}},), "its volume pv is lost"),
        ((claim(metadata={"deletionTimestamp": "now"}), storage_class()), "it is being deleted"),
    ],
)
def test_a_claim_that_no_node_can_meet_is_waited_for(objects: tuple[Object, ...], why: str) -> None:
    assert demand(cache_of(*objects)).waits == f"waits for claim data: {why}"


def test_nothing_is_known_before_every_list_has_come() -> None:
    cache = cache_of(*BOUND, volume(claim="data"))
    cache.unsynced.add(("persistentvolumes", ""))
    assert "persistentvolumes" in demand(cache).waits
    cache.synced(("persistentvolumes", ""))
    assert not demand(cache).waits


def test_a_claim_that_waits_for_its_pod_goes_where_a_free_volume_holds_it() -> None:
    cache = cache_of(claim(gib=5), storage_class())
    tell(cache, volume("small", "n0"), volume("taken", "n0", gib=9, claim="other"))
    assert nodes(demand(cache)) == ""
    tell(cache, volume("big", "n1", gib=9), volume("fits", "n1", gib=5), volume("two", "n2", gib=9))
    assert nodes(demand(cache)) == "n1 n2"
    assert cache.choose(demand(cache), "n1") == VolumeChoice("n1", kept=(("fits", ("ns", "data")),))
    assert cache.choose(demand(cache), "n0") is None


def test_only_volumes_of_its_class_mode_and_labels_are_for_a_claim() -> None:
    cache = cache_of(claim(selector={"matchLabels": {"disk": "ssd"}}), storage_class())
    tell(cache, volume("a", "n0", "other"), volume("b", "n0", modes=["ReadOnlyMany"]))
    tell(cache, volume("c", "n0", volumeMode="Block"), volume("d", "n0", labels={"disk": "hdd"}))
    assert nodes(demand(cache)) == ""
    tell(cache, volume("e", "n0", labels={"disk": "ssd"}))
    assert nodes(demand(cache)) == "n0"


def test_what_is_chosen_for_one_claim_is_not_free_for_another() -> None:
    cache = cache_of(claim(), claim("more"), storage_class(), volume("a", "n0"), volume("b", "n1"))
    choice = cache.choose(demand(cache), "n0")
    assert choice is not None
    cache.assume(choice)
    assert nodes(demand(cache, ClaimUse("more"))) == "n1"
    cache.forget(choice)
    assert nodes(demand(cache, ClaimUse("more"))) == "n0 n1"


def test_two_claims_of_one_pod_take_two_volumes() -> None:
    cache = cache_of(claim(), claim("more"), storage_class(), volume("a", "n0"))
    both = demand(cache, DATA, ClaimUse("more"))
    assert cache.choose(both, "n0") is None
    tell(cache, volume("b", "n0"))
    choice = cache.choose(both, "n0")
    assert choice is not None
    assert sorted(name for name, _ in choice.kept) == ["a", "b"]


def test_a_volume_that_is_kept_for_the_claim_is_the_only_one() -> None:
    kept = volume("mine", "n2", claim="data")
    kept["status"] = {"phase": "Available"}
    cache = cache_of(claim(), storage_class(provisioner="csi"), volume("free", "n0"), kept)
    assert nodes(demand(cache)) == "n2"


TOPOLOGY = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b", "c"]}]}]


def test_a_volume_that_is_made_goes_where_its_class_allows() -> None:
    cache = cache_of(claim(), storage_class(provisioner="csi"))
    assert nodes(demand(cache)) == "n0 n1 n2"
    tell(cache, storage_class(provisioner="csi", allowedTopologies=TOPOLOGY))
    assert nodes(demand(cache)) == "n1 n2"
    assert cache.choose(demand(cache), "n1") == VolumeChoice("n1", made=(("ns", "data"),))
    assert cache.choose(demand(cache), "n0") is None


def test_a_claim_with_a_selected_node_goes_there() -> None:
    assert nodes(demand(cache_of(claim(selected="n1"), storage_class(provisioner="csi")))) == "n1"


def test_a_node_for_which_the_provisioner_refused_is_tried_again_only_after_the_others() -> None:
    cache = cache_of(claim(selected="n1"), storage_class(provisioner="csi", allowedTopologies=TOPOLOGY))
    choice = VolumeChoice("n1", made=(("ns", "data"),))
    assert cache.why_unbound(choice) == ""
    tell(cache, claim())  # the annotation is taken away
    assert "could not be made for node n1" in str(cache.why_unbound(choice))
    assert nodes(demand(cache)) == "n2"
    tell(cache, claim(selected="n2"), claim())
    assert nodes(demand(cache)) == "n1 n2"


def test_a_choice_is_through_when_its_claims_are_bound() -> None:
    cache = cache_of(claim(), storage_class(), volume(on="n0"))
    choice = cache.choose(demand(cache), "n0")
    assert choice is not None
    assert cache.why_unbound(choice) == ""
    tell(cache, claim(volume="pv"), volume(on="n0", claim="data"))
    assert cache.why_unbound(choice) is None


def test_a_claim_for_one_pod_has_one_user_in_the_cluster() -> None:
    cache = cache_of(claim(volume="pv", modes=["ReadWriteOncePod"]), storage_class(), volume(claim="data"))
    first = bound(pod("first", claims=(DATA,)), "n0")
    cache.use(first, "n0")
    assert demand(cache).waits == "waits for claim data: it is ReadWriteOncePod, and pod first uses it"
    assert not cache.demand("ns", (DATA,), own=(first.uid,)).waits, "it may have it itself"
    cache.use(first, "")
    assert not demand(cache).waits


SCRATCH: dict[str, Any] = {
    "name": "scratch",
    "ephemeral": {"volumeClaimTemplate": {"spec": claim(storage_class="late")["spec"]}},
}


def test_a_generic_ephemeral_volume_is_the_claim_of_its_pod() -> None:
    spec = {"containers": [], "volumes": [SCRATCH, {"name": "x", "emptyDir": {}}]}
    view = read_pod({"metadata": {"namespace": "ns", "name": "p", "uid": "uid-p"}, "spec": spec})
    assert view.claims == (ClaimUse("p-scratch", ephemeral=True),)
    cache = cache_of(storage_class(), volume(on="n1"))
    assert "it is not there yet" in demand(cache, *view.claims).waits
    tell(cache, claim("p-scratch"))
    assert "not made for this pod" in demand(cache, *view.claims).waits
    owner = {"kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    tell(cache, claim("p-scratch", metadata={"ownerReferences": [owner]}))
    assert nodes(demand(cache, *view.claims)) == "n1"


def test_what_will_be_claimed_is_a_rule_before_the_pod_is_there() -> None:
    templates: tuple[StorageNeed, ...] = templates_of({"volumes": [SCRATCH]})
    cache = cache_of(storage_class(), volume(on="n1"))
    assert nodes(cache.demand("ns", (), templates=templates)) == "n1"
