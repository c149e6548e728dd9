"""Jobs that leave together look for room on machines as if each looked at all of them, at less cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from starburst.core.parts.fleet import Fleet, extend
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.parts.join_search import Bid, JoinSearch, Leaver
from starburst.domain.job import Job
from starburst.policy.packing.packers.none import NoPacking
from tests.builders import HOUR, job, offer

#: GPUs of each task; expected end, hours; whether it asks among all machines; whether it goes where it may.
leavings = st.lists(
    st.tuples(st.sampled_from([(1,), (2,), (1, 1), (4,)]), st.integers(1, 4), st.booleans(), st.booleans()),
    max_size=14,
)
#: Until when other jobs need a machine, hours; its GPUs.
machines = st.lists(st.tuples(st.integers(0, 4), st.sampled_from([2, 4, 8])), max_size=5)


def fleet_of(sizes: Sequence[int]) -> Fleet:
    fleet = Fleet(NoPacking())
    for gpus in sizes:
        fleet.launch(offer(f"of-{gpus}", gpus, gpus), 0.0)
    return fleet


def tightest(leaver: Leaver, among: Sequence[InstanceRecord], busy: Mapping[str, float]) -> str | None:
    """The rule: of the instances that are needed long enough and have room, the one with least room."""
    fitting = [
        each
        for each in among
        if busy[each.id] >= leaver.until
        and leaver.job.resources.fits(each.free)
        and (each.id, 0) not in leaver.shuns
    ]
    best = min(fitting, key=lambda each: each.free.largest_share(each.offer.resources), default=None)
    return None if best is None else best.id


@given(machines, leavings)
def test_each_job_gets_the_tightest_fit_of_that_moment(
    sizes: list[tuple[int, int]], leaving: list[tuple[tuple[int, ...], int, bool, bool]]
) -> None:
    fleet = fleet_of([gpus for _, gpus in sizes])
    known = list(fleet.instances.values())
    busy = {each.id: hours * HOUR for each, (hours, _) in zip(known, sizes, strict=True)}
    whole = fleet.search(busy, known)
    part = whole.among(known[1:])
    for number, (gang, hours, of_all, goes) in enumerate(leaving):
        shuns = frozenset({("i-000002", 0)} if number % 3 == 2 else ())
        leaver = Leaver(job(f"j{number}", gang=gang), hours * HOUR, shuns)
        found = (whole if of_all else part).slots(leaver)
        expected = tightest(leaver, known if of_all else known[1:], busy)
        assert {slot.where for slot in found} == ({expected} if expected else set())
        assert [slot.resources for slot in found] == (list(leaver.job.tasks) if expected else [])
        if goes:
            fleet.hold(leaver.job.id, found, 0.0)


@given(machines, leavings, st.integers(0, 9), st.sampled_from([4.0, 1e9]))
def test_where_nobody_needs_one_for_longer_the_one_whose_bill_grows_least_is_joined(
    sizes: list[tuple[int, int]],
    leaving: list[tuple[tuple[int, ...], int, bool, bool]],
    dollars: int,
    dearest: float,
) -> None:
    fleet = fleet_of([gpus for _, gpus in sizes])
    known = list(fleet.instances.values())
    busy = {each.id: hours * HOUR for each, (hours, _) in zip(known, sizes, strict=True)}
    search = fleet.search(busy, known)
    for number, (gang, hours, _, goes) in enumerate(leaving):
        leaver = Leaver(job(f"j{number}", gang=gang), hours * HOUR)
        found = search.slots(leaver, Bid(1e6 * dollars, 1e6 * dearest))
        expected = tightest(leaver, known, busy)
        adds = [
            (
                (leaver.until - busy[each.id]) / HOUR * each.rate.micro_usd / 1e6,
                each.free.largest_share(each.offer.resources),
                each.id,
            )
            for each in known
            if leaver.job.resources.fits(each.free) and each.rate.micro_usd <= 1e6 * dearest
        ]
        if expected is None and adds and min(adds)[0] < dollars:
            expected = min(adds)[2]
        assert {slot.where for slot in found} == ({expected} if expected else set())
        if goes and found:
            fleet.hold(leaver.job.id, found, 0.0)
            extend(busy, found, leaver.until)


def test_a_thousand_alike_judge_each_machine_once_and_each_that_took_one_again() -> None:
    fleet, judged = fleet_of([4, 4, 4]), []

    def pull_s(_job: Job, instance: InstanceRecord) -> float:
        judged.append(instance.id)
        return 0.0

    search = JoinSearch(fleet.instances.values(), dict.fromkeys(fleet.instances, HOUR), pull_s)
    for number in range(1000):
        leaver = Leaver(job(f"j{number}"), HOUR / 2)
        fleet.hold(leaver.job.id, search.slots(leaver), 0.0)
    assert [len(each.job_ids) for each in fleet.instances.values()] == [4, 4, 4]
    assert len(judged) == 3 + 4 + 4 + 4 - 3
