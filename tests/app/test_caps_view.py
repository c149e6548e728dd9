"""Where caps stand, as commands and pages read it from the store."""

from __future__ import annotations

from pathlib import Path

from starburst.app.jobs.caps_view import stored_standings
from starburst.core.model.events import (
    InstanceGone,
    InstanceReady,
    OffersChanged,
    RunEnd,
    RunEnded,
    RunStarted,
)
from starburst.core.model.settings import Settings
from starburst.core.scheduler import Scheduler
from starburst.core.steps.budget import cap_statuses
from starburst.domain.job import Submission, Workload
from starburst.store.store import Store
from tests.builders import MINUTE
from tests.core.capped import MACHINE, cap, cloud
from tests.store.samples import step


def test_what_is_reserved_counts_the_boot_times_that_the_scheduler_has_learnt(tmp_path: Path) -> None:
    settings = Settings(waiting="constant", factor=60.0, caps=(cap(1000),))
    scheduler, boot_s, now = Scheduler(settings), 40 * MINUTE, 0.0
    with Store.open(tmp_path / "store.db") as store:
        store.commit(step(scheduler, [OffersChanged((MACHINE,))]))
        for number in range(1, 5):
            job = cloud(f"j{number}", hours=0.1)
            store.commit(step(scheduler, (), now, submissions=[Submission(job, Workload(("work",)))]))
            if number == 4:
                break
            asked_at, now = now, now + boot_s
            name = f"i-{number:06d}"
            store.commit(step(scheduler, [InstanceReady(name, asked_at), RunStarted(job.id, 1)], now))
            store.commit(step(scheduler, [RunEnded(job.id, 1, RunEnd.EXITED, 0)], now))
            store.commit(step(scheduler, [InstanceGone(name, asked_at, now)], now))
        (told,) = stored_standings(store, settings, now)
    assert told.reserved == cap_statuses(scheduler.state)["cap/day"].reserved
    assert told.reserved > MACHINE.price_per_hour.micro_usd / 2  # type: ignore[union-attr]
