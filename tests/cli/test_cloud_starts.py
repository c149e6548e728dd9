"""`starburst up` while SkyPilot refuses us, is slow or dead: leases of machines are renewed all the same."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.access.ports import Access
from starburst.clouds.sky.journal import NAME, FileJournal
from starburst.clouds.sky.machines.entry import MachineEntry, save_machine
from starburst.domain.job import CloudChoice
from tests.cli.past import Past
from tests.cli.test_cloud_checks import HEADER, ROWS
from tests.cli.up_at_odds import CONTROLLER, DEAD, EXPIRED, LOGIN, MACHINE, REFUSED, SLOW

pytestmark = pytest.mark.processes

PATIENCE_S = 30.0


def rented(home: Path) -> None:
    """A home that a scheduler left with a machine on which a job is to start."""
    now = time.time()
    with Past.begin(home / "starburst.db", now) as past:
        past.store.set_fact("controller", CONTROLLER)
        past.store.set_fact("clock", {"origin": now, "speed": 1.0, "start": now})
        past.submit("a-11111", cloud=CloudChoice.ONLY)
        past.ready(MACHINE)
    access, where = Access("10.0.0.1", "ubuntu", "key"), "aws/us-east-1/p3.8xlarge"
    known: dict[str, Any] = {"asked": True, "dated": True, "ready": True, "kept": True, "armed": True}
    entry = MachineEntry(MACHINE, where, False, now, access=access, launched_at=now, **known)
    save_machine(FileJournal(home / "cloud" / "sky" / NAME), entry)


@contextmanager
def started(
    odds: str, tmp_path: Path, rows: str = ROWS
) -> Iterator[tuple[subprocess.Popen[str], Path, Path]]:
    """The process, its log, and the file of renewals."""
    prices = tmp_path / "prices.csv"
    prices.write_text(HEADER + rows)
    config, log, noted = tmp_path / "sky.yaml", tmp_path / "up.log", tmp_path / "renewals"
    config.write_text(f"{{http: {{enabled: false}}, cloud: {{kind: skypilot, prices: {prices}}}}}")
    command = [sys.executable, "-m", "tests.cli.up_at_odds", odds, str(noted), str(config)]
    with log.open("w") as err:
        process = subprocess.Popen(command, stdout=err, stderr=err, text=True, start_new_session=True)
    try:
        yield process, log, noted
    finally:
        process.kill()
        process.wait()


def until(look: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < give_up, "it never came to be"
        time.sleep(0.05)


@pytest.mark.parametrize("odds", [REFUSED, LOGIN, SLOW, DEAD])
def test_leases_are_renewed_though_skypilot_is_of_no_use(home: Path, tmp_path: Path, odds: str) -> None:
    rented(home)
    with started(odds, tmp_path) as (process, log, noted):
        until(lambda: noted.exists() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        said = [json.loads(line) for line in log.read_text().splitlines()]
    warned = {line["check"]: line["error"] for line in said if line["event"] == "waits"}
    name = {REFUSED: "credentials", SLOW: "cloud"}.get(odds, "api-server")
    assert name in warned
    assert odds != REFUSED or EXPIRED in warned[name]


def test_without_machines_or_jobs_a_refusal_is_one(home: Path, tmp_path: Path) -> None:
    with started(REFUSED, tmp_path) as (process, log, noted):
        assert process.wait(PATIENCE_S) == 2
    assert EXPIRED in log.read_text()
    assert not noted.exists()


def test_a_config_without_offers_is_refused_though_machines_are_rented(home: Path, tmp_path: Path) -> None:
    rented(home)
    with started(DEAD, tmp_path, "") as (process, log, _):
        assert process.wait(PATIENCE_S) == 2
    assert "has no usable row" in log.read_text()
