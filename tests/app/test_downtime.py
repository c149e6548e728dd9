"""A job that ends while no scheduler is there ran until it ended, not until that was noticed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from starburst.aio import running
from starburst.app.config import Config, parse_config
from starburst.app.config.home import Home
from starburst.app.wiring import build as wiring
from starburst.domain.job import OWNER, CloudChoice, Job, Submission, Workload
from starburst.domain.resources import Resources
from starburst.runs.attempt_dir import AttemptDir
from starburst.store.listings import queries
from starburst.store.store import Store
from tests.runs.harness import ending_what_is_left, until

pytestmark = pytest.mark.processes

#: Wall seconds from the start of the first scheduler until the job ends, and until the second one starts.
RAN_S, DOWN_S = 60.0, 3600.0
#: Wall seconds of such a test.
SLACK_S = 20.0
SCRIPT = "until [ -e $STARBURST_CHECKPOINT_DIR/go ]; do sleep 0.02; done; exit "


async def live(home: Home, config: Config, store: Store, over: Callable[[], bool]) -> None:
    """A scheduler, until something is so."""
    stop = asyncio.Event()
    controller = wiring.build(home, config, store)
    async with running(controller.run(stop), "controller"):
        await until(over)
        stop.set()


def phase(store: Store) -> str:
    (row,) = queries.jobs(store)
    return row.phase


@pytest.mark.parametrize("site", [CloudChoice.NEVER, CloudChoice.ONLY])
@pytest.mark.parametrize(("speed", "code"), [(1.0, 0), (60.0, 0), (1.0, 3)])
def test_a_job_that_ended_while_the_scheduler_was_down_is_remembered_as_having_run_that_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, speed: float, code: int, site: CloudChoice
) -> None:
    home, began_at = Home(tmp_path), time.time() - DOWN_S
    offers = [{"name": "m", "gpus": 1, "cpus": 8, "memory_gib": 64, "usd_per_hour": 1, "boot": 0, "setup": 0}]
    config = parse_config(
        {
            "clock": {"speed": speed},
            "cluster": {"nodes": [{"name": "n1", "gpus": 1}]},
            "cloud": {"offers": offers},
        },
        "test",
    )
    job = Job("train-1", "train", (Resources.of(1),), cloud=site)
    with ending_what_is_left(tmp_path), Store.open(home.store) as store:
        store.set_fact("clock", {"origin": began_at, "speed": speed, "start": began_at})
        store.submit([Submission(job, Workload(("sh", "-c", f"{SCRIPT}{code}"), submitter=OWNER))], began_at)
        with monkeypatch.context() as earlier:
            earlier.setattr(wiring, "steady_wall", lambda *_: lambda: time.time() - DOWN_S)
            asyncio.run(live(home, config, store, lambda: phase(store) == "running"))
        root = home.cloud / "runs" if site is CloudChoice.ONLY else home.cluster
        rank = AttemptDir.of(root, "train-1", 1).ranks()[0]
        (home.checkpoints / "train-1" / "go").touch()
        asyncio.run(until(lambda: rank.exit() is not None and not rank.alive()))
        said = json.loads((rank.path / "exit.json").read_text())
        (rank.path / "exit.json").write_text(json.dumps({**said, "ended_at": began_at + RAN_S}))
        asyncio.run(live(home, config, store, lambda: phase(store) in ("succeeded", "failed")))
        (row,) = queries.jobs(store)
        assert row.phase == ("failed" if code else "succeeded")
        assert row.ended_at == pytest.approx(began_at + RAN_S * speed, abs=SLACK_S)
        assert row.started_at is not None
        assert row.ended_at - row.started_at == pytest.approx(RAN_S * speed, abs=SLACK_S * speed)
        assert row.ended_at - row.started_at > 0
