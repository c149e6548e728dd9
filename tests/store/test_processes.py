"""Processes that die in the middle, and processes that write at the same time."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from starburst.core.model.events import RunEnd, RunEnded, RunStarted
from starburst.core.model.settings import Settings
from starburst.core.views.restoring import restore
from starburst.core.views.validate import validate
from starburst.store.listings import queries
from starburst.store.store import Store
from tests.store.samples import started, step, submission

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]


def process(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.store.writer", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("commits", [1, 20, 37])
def test_what_was_committed_survives_a_kill_and_what_was_not_is_whole_or_absent(
    path: Path, commits: int
) -> None:
    Store.open(path).close()
    with process("commit", str(path)) as scheduler:
        assert scheduler.stdout is not None
        said = [int(scheduler.stdout.readline()) for _ in range(commits)]
        scheduler.send_signal(signal.SIGKILL)
        said += [int(line) for line in scheduler.stdout]
    assert scheduler.returncode == -signal.SIGKILL
    with Store.open(path) as store:
        snapshot = store.snapshot()
        decisions = queries.decisions(store)
        assert [row.seq for row in decisions] == list(range(1, snapshot.facts.decided + 1))
        assert snapshot.facts.decided >= said[-1]
        assert len(queries.jobs(store)) == snapshot.facts.arrivals
        with store.read() as conn:
            if store.path is not None:
                assert conn.scalar(text("PRAGMA integrity_check")) == "ok"
        heir = restore(Settings(), snapshot)
        validate(heir.state)
        store.commit(step(heir, (), heir.state.now, submissions=[submission("after")]))
        assert queries.job(store, "after").phase in ("starting", "queued")


def test_a_cli_submits_while_the_scheduler_commits(store: Store, path: Path) -> None:
    jobs = 60
    scheduler = started()
    seen: list[str] = []
    with process("submit", str(path), str(jobs)) as cli:
        while len(seen) < jobs or scheduler.state.jobs:
            requests = store.requests(7)
            new = [request.submission for request in requests if request.submission]
            names = [item.job.id for item in new]
            taken = step(scheduler, (), 1.0, submissions=new, request_seqs=[r.seq for r in requests])
            store.commit(taken)
            seen += names
            for record in [r for r in scheduler.state.jobs.values() if r.alive]:
                store.commit(step(scheduler, [RunStarted(record.id, 1)], 1.0))
                store.commit(step(scheduler, [RunEnded(record.id, 1, RunEnd.EXITED, 0)], 1.0))
            assert cli.poll() in (None, 0)
    assert cli.returncode == 0
    assert seen == [f"cli-{number}" for number in range(jobs)]
    assert [row.id for row in queries.jobs(store)] == seen
    assert queries.summary(store).jobs == {"succeeded": jobs}
