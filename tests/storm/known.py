"""What the scheduler has been told and has decided by some time, as its store has it."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.storm.run import Storm


class Known:
    """Of now; `is_all` makes it all that the verdict asks for, when the store is put back to it."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        verdict, users = storm.verdict, storm.users
        self._asked = set(users.asked)
        self._ends, self._over = dict(verdict.ends), dict(storm.marks.over)
        self._decisions, self._phases = Counter(verdict.decisions), dict(verdict.phases)
        self._starvation = deepcopy(verdict.starvation)

    def is_all(self) -> None:
        """What came after it is in no store any more, though it may live."""
        verdict, users, marks = self._storm.verdict, self._storm.users, self._storm.marks
        users.asked = {name: one for name, one in users.asked.items() if one.applied or name in self._asked}
        verdict.applied_since |= users.asked.keys() - self._phases.keys()  # or applied, and not taken in yet
        verdict.put_back_at = self._storm.loop.time()
        verdict.put_backs.append(verdict.put_back_at)
        verdict.ends, marks.over = self._ends, self._over
        rented_since = verdict.decisions.keys() - self._decisions.keys()
        verdict.unbilled |= {name for name in rented_since if name.startswith("i-")}
        verdict.decisions = self._decisions
        verdict.phases.clear()  # the users look at it, too
        verdict.phases |= self._phases
        verdict.starvation = self._starvation
        self._storm.broker.begin_anew()
