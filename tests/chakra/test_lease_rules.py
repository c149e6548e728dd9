"""What a Lease says, when it may be taken, and what is written to it: no clock and no server."""

from __future__ import annotations

import pytest

from starburst.kube.lease import (
    Acquire,
    Follow,
    LeaseCandidate,
    ObservedLease,
    Renew,
    Timing,
    decide,
    held,
    observe,
    released,
)
from tests.chakra.lease_server import lease

WALL = "2026-01-02T03:04:05.000006Z"
ME = LeaseCandidate("spot", "chakra", "me")


def test_a_lease_that_is_not_there_or_given_back_is_taken_at_once() -> None:
    assert decide(None, "me", 0.0) == Acquire()
    assert decide(ObservedLease(lease(""), at=100.0), "me", 100.0) == Acquire()
    assert (
        decide(ObservedLease({"metadata": {"resourceVersion": "1"}, "spec": {}}, at=100.0), "me", 100.0)
        == Acquire()
    )


def test_our_own_lease_is_renewed_however_old_it_is() -> None:
    assert decide(ObservedLease(lease("me"), at=0.0), "me", 1e6) == Renew()


def test_anothers_lease_is_left_alone_for_the_duration_that_it_names() -> None:
    seen = ObservedLease(lease("other", duration_s=15), at=100.0)
    assert decide(seen, "me", 115.0) == Follow(115.0)
    assert decide(seen, "me", 115.001) == Acquire()


def test_its_age_counts_from_when_we_saw_it_change_and_not_from_what_its_clock_says() -> None:
    first = observe(None, lease("other", 1), 100.0)
    assert first is not None
    assert observe(first, {**lease("other", 1), "spec": {"renewTime": WALL}}, 110.0) is first
    assert observe(first, lease("other", 2), 110.0) == ObservedLease(lease("other", 2), 110.0)
    assert observe(first, None, 110.0) is None


def test_a_new_lease_names_its_holder_and_its_duration() -> None:
    assert held(None, ME, WALL) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "chakra", "namespace": "spot"},
        "spec": {
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "acquireTime": WALL,
            "renewTime": WALL,
            "leaseTransitions": 0,
        },
    }


def test_taking_it_counts_a_transition_and_renewing_it_does_not() -> None:
    taken = held(ObservedLease(lease("other"), 0.0), ME, WALL)
    assert (taken["spec"]["leaseTransitions"], taken["spec"]["acquireTime"]) == (5, WALL)
    again = held(ObservedLease({**taken, "spec": {**taken["spec"], "acquireTime": "then"}}, 0.0), ME, WALL)
    assert (again["spec"]["leaseTransitions"], again["spec"]["acquireTime"]) == (5, "then")


def test_a_write_carries_the_version_that_was_read_and_all_that_others_put_there() -> None:
    found = lease("", 7)
    found["metadata"]["labels"] = {"team": "ml"}
    assert held(ObservedLease(found, 0.0), ME, WALL)["metadata"] == found["metadata"]
    assert released(ObservedLease(found, 0.0), WALL)["metadata"] == found["metadata"]


def test_a_lease_given_back_has_no_holder() -> None:
    spec = released(ObservedLease(lease("me"), 0.0), WALL)["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("", 1, 4)


@pytest.mark.parametrize("wrong", [(10, 10.0, 2.0), (15, 4.0, 2.0), (15, 10.0, 0.0)])
def test_times_with_which_a_healthy_leader_could_lose_its_lease_are_refused(
    wrong: tuple[int, float, float],
) -> None:
    with pytest.raises(ValueError, match="must hold"):
        Timing(*wrong)
