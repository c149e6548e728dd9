"""Jobs that leave together look for room on machines as if each looked by itself, at less cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hypothesis import given
from hypothesis import strategies as st

from starburst.core.model.actions import Slot
from starburst.core.parts.fleet import Fleet, JoinSearch, Leaver
from starburst.core.parts.instance_record import InstanceRecord
from starburst.policy.packing.packers.none import NoPacking
from tests.builders import HOUR, job, offer

#: GPUs of each task, and expected end, hours.
leavings = st.lists(
    st.tuples(st.sampled_from([(1,), (2,), (1, 1), (4,)]), st.integers(1, 4)), min_size=1, max_size=12
)
#: Until when other jobs need a machine of four GPUs, hours.
needs = st.lists(st.integers(0, 4), max_size=4)


class Looked(Fleet):
    """A fleet that counts the looks at its machines."""

    looks = 0

    def join(
        self,
        leaver: Leaver,
        busy_until: Mapping[str, float],
        among: Iterable[InstanceRecord] | None = None,
    ) -> tuple[Slot, ...]:
        self.looks += 1
        return super().join(leaver, busy_until, among)


def fleet_of(machines: int) -> Looked:
    fleet = Looked(NoPacking())
    for _ in range(machines):
        fleet.launch(offer("big", 4, 3), 0.0)
    return fleet


@given(needs, leavings)
def test_a_search_finds_what_a_look_for_each_job_finds(
    hours: list[int], leaving: list[tuple[tuple[int, ...], int]]
) -> None:
    one, other = fleet_of(len(hours)), fleet_of(len(hours))
    busy = {name: hour * HOUR for name, hour in zip(one.instances, hours, strict=True)}
    search = JoinSearch(one, busy, list(one.instances.values()))
    for number, (gang, hour) in enumerate(leaving):
        leaver = Leaver(job(f"j{number}", gang=gang), hour * HOUR)
        found, expected = search.slots(leaver), other.join(leaver, busy)
        assert found == expected
        one.hold(leaver.job.id, found, 0.0)
        other.hold(leaver.job.id, expected, 0.0)


def test_a_thousand_alike_that_find_no_room_cost_one_look() -> None:
    fleet = fleet_of(3)
    search = JoinSearch(fleet, dict.fromkeys(fleet.instances, HOUR), list(fleet.instances.values()))
    assert not any(search.slots(Leaver(job(f"j{n}"), 2 * HOUR + n)) for n in range(1000))
    assert fleet.looks == 1
    assert search.slots(Leaver(job("short"), HOUR))
