"""What befalls a round: drawn from its number, so it can be had again; what machines then do is theirs."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from enum import Enum
from itertools import combinations


class What(str, Enum):
    """What happens to something."""

    SCHEDULER = "scheduler killed"
    SERVER = "API server killed"
    CUT = "network cut"
    LOST = "network cut for good"


class When(str, Enum):
    """At the soonest; some seconds are added."""

    ASKED = "jobs submitted"
    LAUNCHING = "machine rented"
    RUNNING = "job running"
    ENDING = "jobs done"


class Fate(str, Enum):
    """What becomes of the home at last."""

    LIVES = "lives on"
    DELETED = "home deleted"
    RESTORED = "home of before restored"


#: Seconds that are added at most.
SPANS = {When.ASKED: 6.0, When.LAUNCHING: 25.0, When.RUNNING: 6.0, When.ENDING: 6.0}


@dataclass(frozen=True, slots=True)
class Disturbance:
    """One thing that happens; after `away_s` it is made good, unless that is infinite."""

    what: What
    when: When
    delay_s: float
    away_s: float

    def __str__(self) -> str:
        back = "" if self.away_s == math.inf else f", back after {self.away_s:.0f} s"
        return f"{self.what.value} {self.delay_s:.1f} s after {self.when.value}{back}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A round. Jobs are CPUs and beats of a fifth of a second."""

    number: int
    jobs: tuple[tuple[int, int], ...]
    disturbances: tuple[Disturbance, ...]
    fate: Fate = Fate.LIVES


def plan(number: int) -> Plan:
    """Four rounds of five live on: after one of each disturbance, and after two; every fifth does not."""
    draw = random.Random(number)
    turn, kind = divmod(number, 5)
    #: Three share a machine; a fourth that is large needs one of its own.
    jobs = [(1, draw.randrange(20, 60)) for _ in range(3)] + [(3, 40)] * (turn % 3 == 1)

    def happens(what: What, when: When) -> Disturbance:
        longest_s = 45.0 if what is What.CUT else 12.0
        away_s = math.inf if what is What.LOST else draw.uniform(1.0, longest_s)
        return Disturbance(what, when, draw.uniform(0.0, SPANS[when]), away_s)

    whens = list(When)
    if kind == 4:
        when = draw.choice((When.LAUNCHING, When.RUNNING))
        killed = Disturbance(What.SCHEDULER, when, draw.uniform(0.0, SPANS[when]), math.inf)
        endless = tuple((cpus, 5000) for cpus, _beats in jobs)  # the lease, or the reaper, has to end them
        return Plan(number, endless, (killed,), Fate.RESTORED if turn % 2 else Fate.DELETED)
    if kind == 0:
        chosen = [happens(What.SCHEDULER, whens[(turn + 1) % 4])]
    elif kind == 1:
        chosen = [happens(What.LOST if turn % 2 else What.CUT, When.RUNNING)]
    elif kind == 2:
        chosen = [happens(What.SERVER, whens[(turn + 1) % 4])]
    else:
        pairs = [pair for pair in combinations(What, 2) if pair != (What.CUT, What.LOST)]
        cuts = {What.CUT, What.LOST}
        chosen = [
            happens(what, When.RUNNING if what in cuts else draw.choice(whens))
            for what in pairs[turn % len(pairs)]
        ]
    return Plan(number, tuple(jobs), tuple(sorted(chosen, key=lambda it: whens.index(it.when))))
