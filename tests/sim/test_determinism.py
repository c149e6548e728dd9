"""Promise: the same seed gives the same decision log, byte for byte, in any process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from sim.world import SimJob, World
from starburst.app.config import parse_config
from starburst.core.scheduler import Scheduler
from starburst.core.state import Changes
from starburst.core.views.validate import validate
from starburst.demo.jobs import SPEED, demo_jobs
from starburst.demo.run import DEMO_CONFIG
from starburst.store import codec

ROOT = Path(__file__).parents[2]


def decision_log(seed: int) -> bytes:
    """The log of the demo's jobs under virtual time, as the store would keep it."""
    config = parse_config(DEMO_CONFIG, "demo")
    scheduler = Scheduler(config.policy.settings())
    lines: list[str] = []

    def on_step(now: float, changes: Changes) -> None:
        validate(scheduler.state)
        lines.extend(codec.encode([*row, row.reason]) + "\n" for row in changes.decisions)

    offers = config.cloud.catalog()
    world = World(
        scheduler,
        config.cluster.known_nodes(),
        [entry.offer for entry in offers],
        boot_s={entry.offer.name: entry.boot_s + entry.setup_s for entry in offers},
        on_step=on_step,
    )
    jobs = demo_jobs(60, seed, Path("witness"))
    world.submit(SimJob(j.submission.job, j.arrival_s * SPEED, j.work_s * SPEED) for j in jobs)
    world.run()
    return "".join(lines).encode()


def test_one_seed_one_log() -> None:
    assert decision_log(3) == decision_log(3)
    assert decision_log(3) != decision_log(4)


def test_the_log_does_not_depend_on_the_process() -> None:
    """Sets and dicts of strings iterate in another order under another hash seed; decisions must not."""
    here = hashlib.sha256(decision_log(3)).hexdigest()
    program = (
        "import hashlib; from tests.sim.test_determinism import decision_log;"
        "print(hashlib.sha256(decision_log(3)).hexdigest())"
    )
    for hash_seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", program], env=env, cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == here


def test_the_log_tells_the_whole_story() -> None:
    log = decision_log(3).decode()
    for kind in ("waits", "placed", "offloaded", "returning", "succeeded", "gone"):
        assert f'"{kind}"' in log
