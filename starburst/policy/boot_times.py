"""How long instances take to come up, from the request until they take jobs; they are paid for meanwhile.

Boots that were seen take over from what the offer states (`Offer.ready_s`) once there are a few: those of the
same offer, else of its instance type anywhere in its cloud, else of its cloud. Their median counts, so a
launch that waited for capacity, or for an API server that was down, changes nothing by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from starburst.domain.cloud import Offer

#: Seconds of a boot of which nothing is known. Eva (EuroSys 2025, table 1) measured on EC2 19 s on average
#: (6-83) to get an instance and 190 s (140-251) to set it up; SkyPilot with images of its own takes 70 to
#: 160 s (`clouds/sky/cloud_facts.py`).
UNKNOWN_S = 180.0
#: Shortest and longest boot that is believed, seconds. No boot is free: a job whose work is done as far as
#: its estimate goes would cost nothing, and a cap that is reached would not keep it.
SHORTEST_S, LONGEST_S = 1.0, 3600.0
#: Boots that are needed for a median, and the newest ones that it is taken of.
ENOUGH, NEWEST = 3, 8
#: Largest number of offers, types and clouds that are remembered.
MAX_KEYS = 512


@dataclass(slots=True)
class BootTimes:
    """The newest boots, seconds; above MAX_KEYS the key that was seen least recently is dropped."""

    _seen: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def expected_s(self, offer: Offer) -> float:
        """Seconds from the request of such an instance until it takes jobs."""
        for key in _sought(offer):
            seen = self._seen.get(key, ())
            if len(seen) >= ENOUGH:
                return _median(seen)
        return offer.ready_s or UNKNOWN_S

    def observe(self, offer: Offer, seconds: float) -> None:
        """Record a boot. Kept to the millisecond: what is left of sums of clock times is no difference."""
        seconds = round(min(max(SHORTEST_S, seconds), LONGEST_S), 3)
        for key in _taught(offer):
            self._seen[key] = (*self._seen.pop(key, ()), seconds)[-NEWEST:]
        while len(self._seen) > MAX_KEYS:
            del self._seen[next(iter(self._seen))]

    def snapshot(self) -> dict[str, list[float]]:
        """Plain data for `restored`."""
        return {key: list(seen) for key, seen in self._seen.items()}

    @classmethod
    def restored(cls, snapshot: Mapping[str, Sequence[float]]) -> BootTimes:
        """The inverse of `snapshot`."""
        return cls({key: tuple(seen) for key, seen in snapshot.items()})


def _median(seen: Sequence[float]) -> float:
    """The middle value; of an even number of them the greater one of the two."""
    return sorted(seen)[len(seen) // 2]


def _sought(offer: Offer) -> Iterator[str]:
    """Where boots of the offer are looked for, the closest first."""
    if offer.nodes > 1:
        yield offer.title
    yield offer.name
    if offer.cloud:
        yield f"{offer.cloud}/*/{offer.instance_type}"
        yield f"{offer.cloud}/*"


def _taught(offer: Offer) -> Iterator[str]:
    """What a boot of the offer tells about. Several machines are up with their slowest: no word on one."""
    return iter([offer.title]) if offer.nodes > 1 else _sought(offer)
