"""Users of a soak: what they submit and when, what they cancel, hold and release; drawn by a seed."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

from bench.sites import Plan
from starburst.domain.cloud import ANY_OFFER, OfferRules
from starburst.domain.job import CloudChoice, Job, Member, Submission, Workload
from starburst.domain.resources import Resources
from starburst.store.store import Store

HOUR_S, DAY_S = 3600.0, 86_400.0
#: Mean work of a job.
MEAN_WORK_S = 2400.0
#: GPUs of each task, and how many of a hundred jobs ask for that.
TASKS = {(1,): 52, (2,): 20, (4,): 12, (8,): 6, (0,): 5, (2, 2): 2, (4, 4): 2, (1, 1, 1): 1}
MEAN_GPUS = sum(sum(gpus) * share for gpus, share in TASKS.items()) / 100
QUEUES = ("research", "papers", "vision", "batch")
NAMES = ("train-gpt", "finetune-bert", "eval-suite", "render-scene", "sweep-lr", "distill", "ablation")
#: Arrivals swing by this share over a day.
SWING = 0.4


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody does to a job of theirs, and when (seconds after it was submitted)."""

    kind: str
    job_id: str
    after_s: float


class Users:
    """They submit so many jobs, so that the cluster is asked for `load` times its GPUs."""

    def __init__(self, jobs: int, gpus: int, load: float, seed: int, plans: dict[str, Plan]) -> None:
        self._left = jobs
        self._per_s = load * gpus / (MEAN_GPUS * MEAN_WORK_S)
        self._draw = Random(f"{seed}/users")
        self._plans = plans
        self._count = 0
        #: The last jobs, which others may come after.
        self._before: deque[str] = deque(maxlen=50)
        self.submitted = 0
        self.done = asyncio.Event()

    def stop(self) -> None:
        """Nobody wants anything more."""
        self._left = 0

    async def submit(self, store: Store) -> None:
        """Submit everything, each when its time has come."""
        loop = asyncio.get_running_loop()
        while self._left:
            swing = 1 + SWING * math.sin(2 * math.pi * loop.time() / DAY_S)
            jobs, wishes = self._some()
            # An array counts as many: the load stays what it is.
            await asyncio.sleep(self._draw.expovariate(self._per_s * swing / len(jobs)))
            store.submit(
                [Submission(job, Workload(("true",), (("SEED", "1"),))) for job in jobs], loop.time()
            )
            self.submitted += len(jobs)
            for wish in wishes:
                act = {"cancel": store.cancel, "hold": store.hold, "release": store.release}[wish.kind]
                loop.call_later(wish.after_s, self._wish, act, wish.job_id)
        self.done.set()

    def _wish(self, act: Callable[[list[str], float], None], job_id: str) -> None:
        act([job_id], asyncio.get_running_loop().time())

    def _some(self) -> tuple[list[Job], list[Wish]]:
        """One job, or an array."""
        draw = self._draw
        if draw.random() < 0.01 and self._left >= 12:
            size = draw.randint(4, 12)
            array = f"array-{self._count:06d}"
            at_once = draw.choice((None, 2, 3))
            first = self._one()
            jobs = [
                replace(first, id=f"{array}-{n}", name=f"{array}-{n}", array=Member(array, n, size, at_once))
                for n in range(size)
            ]
            for one in jobs[1:]:
                self._plans[one.id] = replace(self._plans[first.id])
            self._plans[jobs[0].id] = self._plans.pop(first.id)
        else:
            jobs = [self._one()]
        self._left -= len(jobs)
        self._before.extend(job.id for job in jobs)
        return jobs, [wish for job in jobs for wish in self._wishes(job)]

    def _one(self) -> Job:
        draw = self._draw
        self._count += 1
        (gpus,) = draw.choices(list(TASKS), list(TASKS.values()))
        work_s = min(12 * HOUR_S, max(20.0, draw.lognormvariate(math.log(MEAN_WORK_S) - 0.5, 1.0)))
        id_ = f"{draw.choice(NAMES)}-{self._count:06d}"
        retries = draw.choice((1, 2, 3)) if draw.random() < 0.1 else 0
        fails = draw.choice((1, 1, 2, 5)) if draw.random() < (0.4 if retries else 0.03) else 0
        self._plans[id_] = Plan(work_s, fails, tells=draw.random() < 0.1)
        others = tuple(
            sorted(draw.sample(list(self._before), k=min(len(self._before), draw.choice((1, 1, 3)))))
        )
        after = draw.random() if others else 1.0
        return Job(
            id_,
            id_,
            tuple(Resources.of(count, 4 * count or 2, 24 * count or 4) for count in gpus),
            user=f"user-{min(int(draw.expovariate(0.2)), 19):02d}",
            queue=draw.choice(QUEUES),
            runtime_estimate_s=work_s * draw.uniform(0.7, 1.6) if draw.random() < 0.75 else None,
            max_wait_s=draw.uniform(0, HOUR_S) if draw.random() < 0.03 else None,
            cloud=draw.choices(list(CloudChoice), (92, 5, 3))[0],
            checkpoint=draw.random() < 0.5,
            grace_s=30.0,
            after_ok=others if after < 0.03 else (),
            after_any=others if 0.03 <= after < 0.05 else (),
            retries=retries,
            hold=draw.random() < 0.01,
            # Spot machines have 4 GPUs: what asked for more, and only for spot, would wait for ever.
            offer_rules=OfferRules(spot=0 < max(gpus) <= 4) if draw.random() < 0.03 else ANY_OFFER,
        )

    def _wishes(self, job: Job) -> Iterator[Wish]:
        """What its user changes their mind about."""
        draw = self._draw
        if job.hold:
            yield Wish("release", job.id, draw.uniform(60, 4 * HOUR_S))
        elif draw.random() < 0.01:
            hold_s = draw.uniform(1, 600)
            yield Wish("hold", job.id, hold_s)
            yield Wish("release", job.id, hold_s + draw.uniform(60, 2 * HOUR_S))
        if draw.random() < 0.02:
            yield Wish("cancel", job.id, draw.uniform(1, 2 * HOUR_S))
