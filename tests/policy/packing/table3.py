"""The example of Eva, Table 3: four instance types and four tasks."""

from __future__ import annotations

from starburst.domain.cloud import Offer
from starburst.domain.job import Task
from starburst.domain.money import Money
from starburst.domain.resources import Resources

IT1 = Offer("it1", Resources.of(4, 16, 244), Money.of(12))
IT2 = Offer("it2", Resources.of(1, 4, 61), Money.of(3))
IT3 = Offer("it3", Resources.of(0, 8, 32), Money.of("0.8"))
IT4 = Offer("it4", Resources.of(0, 4, 16), Money.of("0.4"))
OFFERS = (IT1, IT2, IT3, IT4)

T1 = Task("t1", 0, Resources.of(2, 8, 24), workload="t1")
T2 = Task("t2", 0, Resources.of(1, 4, 10), workload="t2")
T3 = Task("t3", 0, Resources.of(0, 6, 20), workload="t3")
T4 = Task("t4", 0, Resources.of(0, 4, 12), workload="t4")
