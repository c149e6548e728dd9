"""Brings the laboratory up and its environment in, for this session only; and a zone that costs more."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from starburst.clouds.sky.access.sdk import load
from tests.sky_lab.lab import SCRIPT, environment

#: What is dearer in one zone than in the other, and its price there.
KIND, DEAR = "c7i.xlarge", "0.15"


@pytest.fixture(scope="session", autouse=True)
def laboratory() -> Iterator[None]:
    lacking = ""
    if not SCRIPT.is_file():
        lacking = "the laboratory is not here: set STARBURST_SHARED to the folder that has skylab/skylab"
    elif find_spec("sky") is None:
        lacking = "SkyPilot is not installed: pip install 'skypilot[aws]==0.14.1'"
    if lacking and "STARBURST_REQUIRE_SHARED" in os.environ:
        pytest.fail(lacking)
    if lacking:
        pytest.skip(lacking)
    with pytest.MonkeyPatch.context() as patch:
        for key, value in environment().items():
            patch.setenv(key, value)
        yield


@pytest.fixture
def dear_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The id of a zone of us-east-1 where SkyPilot's catalog has spot dearer than in the other."""
    load()
    from sky.catalog import aws_catalog, common

    path = Path(common.get_catalog_path("aws/vms.csv"))
    before = path.read_text()
    header, *rows = csv.reader(before.splitlines())
    kind, price, region, zone = map(header.index, ("InstanceType", "SpotPrice", "Region", "AvailabilityZone"))
    there = [row for row in rows if (row[kind], row[region]) == (KIND, "us-east-1")]
    assert len(there) == 2
    there[1][price] = DEAR
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    # What this process may have read of it.
    monkeypatch.setattr(aws_catalog, "_default_df", common.read_catalog("aws/vms.csv"))
    monkeypatch.setattr(aws_catalog, "_user_df", None)
    yield there[1][zone]
    path.write_text(before)
