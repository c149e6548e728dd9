"""A process of its own that uses the store: `commit` steps for ever, or `submit` some jobs one by one."""

from __future__ import annotations

import sys
import time
from itertools import count
from pathlib import Path

from starburst.core.model.events import RunEnd, RunEnded, RunStarted
from starburst.store.store import Store
from tests.store.samples import started, step, submission


def commit_for_ever(store: Store) -> None:
    """One short job after the other; says the number of decisions after each commit."""
    scheduler = started()
    for number in count():
        job_id = f"j{number}"
        now = float(number)
        store.commit(step(scheduler, (), now, submissions=[submission(job_id)]))
        store.commit(step(scheduler, [RunStarted(job_id, 1)], now))
        store.commit(step(scheduler, [RunEnded(job_id, 1, RunEnd.EXITED, 0)], now))
        print(scheduler.state.decided, flush=True)


def submit_one_by_one(store: Store, jobs: int) -> None:
    """As many transactions as jobs."""
    for number in range(jobs):
        store.submit([submission(f"cli-{number}")], time.time())


if __name__ == "__main__":
    file = Path(sys.argv[2])
    named = file.with_name("store.url")
    with Store.open(named.read_text() if named.exists() else file) as opened:
        if sys.argv[1] == "commit":
            commit_for_ever(opened)
        else:
            submit_one_by_one(opened, int(sys.argv[3]))
