"""How far rented machines are from the least possible: what counts, what may be rented, what is proven."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import given

from starburst.app.packing_gap import GapQuestion, PackingGap, least, question
from starburst.core.model.events import OffersChanged
from starburst.core.state import Changes
from starburst.core.views.snapshot import facts
from starburst.domain.cloud import Offer, OfferRules
from starburst.domain.job import Job, Submission, Task, Workload
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.policy.packing.covering.offline import OfflineOptimal
from starburst.policy.packing.packers.none import NoPacking
from starburst.policy.packing.plan import Situation
from starburst.store.listings import queries
from starburst.store.store import Step, Store
from starburst.web import aggregates
from tests.builders import Desk, job, offer
from tests.policy.packing.properties import situations

#: $1 an hour for four GPUs.
FOUR = offer("four", 4, 1.0)


def cloud(*offers: Offer, **settings: Any) -> Desk:
    """No cluster, so that every job leaves, and each for a machine of its own."""
    return Desk(offers=offers, **settings)


def gap(root: Path, desk: Desk) -> PackingGap | None:
    """As of what a store says in which a scheduler is kept."""
    changes, core = Changes(), desk.scheduler
    changes.jobs, changes.instances = dict(core.state.jobs), dict(core.state.fleet.instances)
    changes.offers = True
    told = {name: Submission(record.job, Workload(("true",))) for name, record in core.state.jobs.items()}
    offers = list(core.state.fleet.offers.values())
    step = Step(
        now=desk.now, changes=changes, facts=facts(core.state), submissions=told, nodes=(), offers=offers
    )
    with Store.open(root / f"{len(list(root.iterdir()))}.db") as store:
        store.commit(step)
        with store.read() as conn:
            machines = queries.machines(conn)
            asked = question(conn, machines, core.state.settings.max_rate)
    proven = None if asked is None else least(asked)
    return None if proven is None else PackingGap(aggregates.rate(machines), proven)


def leaves(name: str, gpus: int = 4, **rules: Any) -> Job:
    return job(name, gpus, cloud="only", offer_rules=OfferRules(**rules))


def ratio(tmp_path: Path, desk: Desk) -> float | None:
    found = gap(tmp_path, desk)
    return None if found is None else found.ratio


def test_where_nothing_is_rented_there_is_nothing_to_tell(tmp_path: Path) -> None:
    desk = cloud(FOUR)
    assert gap(tmp_path, desk) is None


def test_two_that_would_share_a_machine_cost_twice_the_least(tmp_path: Path) -> None:
    desk = cloud(FOUR)
    desk.submit(leaves("a", 2), leaves("b", 2))
    assert gap(tmp_path, desk) == PackingGap(Money.of(2), Money.of(1))
    assert ratio(tmp_path, desk) == 1.0


def test_full_machines_cost_the_least(tmp_path: Path) -> None:
    desk = cloud(FOUR)
    desk.submit(leaves("a"), leaves("b"), job("gang", gang=(4, 4, 4), cloud="only"))
    assert gap(tmp_path, desk) == PackingGap(Money.of(5), Money.of(5))


def test_a_machine_that_nobody_needs_any_more_counts_until_it_is_gone(tmp_path: Path) -> None:
    desk = cloud(FOUR)
    desk.submit(leaves("a"), leaves("b"))
    first, second = desk.scheduler.state.fleet.instances
    desk.ready(first, second)
    desk.started("a", "b")
    desk.ended("a")
    assert ratio(tmp_path, desk) == 1.0
    desk.gone(first)
    assert ratio(tmp_path, desk) == 0.0


def test_machines_that_hold_no_job_have_nothing_to_be_compared_with(tmp_path: Path) -> None:
    desk = cloud(FOUR)
    desk.submit(leaves("a"))
    (machine,) = desk.scheduler.state.fleet.instances
    desk.ready(machine)
    desk.started("a")
    desk.ended("a")
    assert list(desk.scheduler.state.fleet.instances) == [machine]
    assert gap(tmp_path, desk) is None


def test_who_may_not_share_a_machine_is_not_packed_together(tmp_path: Path) -> None:
    desk = cloud(offer("there", region="eu"), offer("here", region="us"))
    desk.submit(leaves("a", 2, region="eu"), leaves("b", 2, region="us"))
    assert ratio(tmp_path, desk) == 0.0
    desk.submit(leaves("c", 2, region="us"))
    assert ratio(tmp_path, desk) == 0.5


def test_a_zone_that_must_be_is_one_of_an_offer_of_any_zone(tmp_path: Path) -> None:
    desk = cloud(offer("any", zones=(("z1", "any-z1"),)), offer("dear", 4, 3.0))
    desk.submit(leaves("a", 2, zone="z1"), leaves("b", 2, zone="z1"))
    assert gap(tmp_path, desk) == PackingGap(Money.of(2), Money.of(1))


def test_an_unknown_price_is_the_dearest_known_one(tmp_path: Path) -> None:
    desk = cloud(offer("known", 2, 3.0), offer("unknown", 4, None))
    desk.submit(leaves("a"))
    assert gap(tmp_path, desk) == PackingGap(Money.of(3), Money.of(3))


def test_where_no_price_is_known_there_is_nothing_to_tell(tmp_path: Path) -> None:
    desk = cloud(offer("unknown", 4, None))
    desk.submit(leaves("a"))
    assert gap(tmp_path, desk) is None


def test_what_is_too_dear_to_be_rented_is_no_alternative(tmp_path: Path) -> None:
    for most, least_ in ((Money.of("1.2"), 2), (None, 1.5)):
        desk = cloud(FOUR, offer("eight", 8, 1.5), max_rate=most)
        desk.submit(leaves("a"), leaves("b"))
        assert gap(tmp_path, desk) == PackingGap(Money.of(2), Money.of(least_))


def test_what_was_rented_for_less_than_it_costs_now_may_be_kept(tmp_path: Path) -> None:
    desk = cloud(FOUR)
    desk.submit(leaves("a", 2), leaves("b", 2))
    desk.tell(OffersChanged((offer("four", 4, 3.0),)))
    assert gap(tmp_path, desk) == PackingGap(Money.of(2), Money.of(1))
    desk.tell(OffersChanged(()))
    assert gap(tmp_path, desk) == PackingGap(Money.of(2), Money.of(1))


def test_a_task_that_no_offer_holds_any_more_is_left_out() -> None:
    asked = GapQuestion(((Resources.of(4), OfferRules(), 1), (Resources.of(8), OfferRules(), 1)), (FOUR,))
    assert least(asked) == Money.of(1)


def asks(tasks: tuple[Task, ...]) -> tuple[tuple[Resources, OfferRules, int], ...]:
    return tuple((*ask, n) for ask, n in Counter((t.resources, t.offer_rules) for t in tasks).items())


@given(situations())
def test_no_plan_costs_less_than_the_least_and_the_best_costs_no_more(situation: Situation) -> None:
    tasks = tuple(Task(t.job_id, t.rank, t.resources) for t in situation.tasks)
    plain = Situation(tasks, situation.offers)
    proven, best = least(GapQuestion(asks(tasks), situation.offers)), OfflineOptimal().plan(plain)
    if proven is None:
        assert not best.cost.micro_usd
        return
    assert proven <= NoPacking().plan(plain).cost
    assert proven <= best.cost
    if best.reason == "the optimum":
        assert proven == best.cost


def test_a_bound_that_says_more_of_the_proof_than_of_the_machines_is_not_told() -> None:
    """In so little time a grid too coarse for their memory is all that there is to prove it on."""
    draw = Random(3)
    shapes = [Resources.of(draw.choice((1, 2)), draw.uniform(1, 60), draw.uniform(3, 200)) for _ in range(40)]
    asked = GapQuestion(tuple((shape, OfferRules(), 2) for shape in shapes), (offer("eight", 8, 9.0),))
    assert least(asked, patience_s=-1.0) is None
    assert least(asked) is not None
