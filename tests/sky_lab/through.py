"""A job's way through Starburst, for docs/results/sky.md: from the decision that it leaves to its first line,
and for how long its machine is billed without work.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from starburst.domain.job import is_over
from starburst.runs.attempt_dir import log_path
from starburst.store.listings import queries
from starburst.store.store import Store
from tests.sky_lab.bare import SCRIPT
from tests.sky_lab.containers import BUSYBOX
from tests.sky_lab.deployment import Deployment
from tests.sky_lab.ec2 import REGIONS, rented

LIMIT_S, LOOK_S = 900.0, 0.2
CONFIG: dict[str, Any] = {
    "policy": {"packer": "eva", "pack_window": "1s"},
    "cluster": {"nodes": [{"name": "node", "cpus": 1, "memory_gib": 1}]},
    "cloud": {
        "kind": "skypilot",
        "regions": [REGIONS[0]],
        "instance_types": ["p3.8xlarge"],
        "spot": "also",
        "lease": "120s",
        "idle_minutes": 1,
    },
}
#: Whole seconds: the image's `date` knows no others.
BOXED = "date +%s"


def through_starburst(root: Path) -> Iterator[tuple[str, float]]:
    """What was measured, with its seconds: of a job that has a machine rented, and of others that join it."""
    at = Deployment(root, CONFIG)
    at.up()
    try:
        _until("offers known", at.has_offers)
        (first,) = at.submit([_manifest("first", f"{SCRIPT}; sleep 3600", estimate="2h")])
        yield "decision, fresh: to the first line", _first_line(at, first)
        kinds: dict[str, str | None] = {"warm": None}
        if os.environ.get("SKYLAB_DOCKER"):
            kinds |= {"image pulled": BUSYBOX, "image there": BUSYBOX}
        for kind, image in kinds.items():
            (job,) = at.submit([_manifest(kind.replace(" ", "-"), BOXED if image else SCRIPT, image)])
            yield f"decision, {kind}: to the first line", _first_line(at, job)
            _until(f"{job} over", partial(_is_over, at, job))
        at.starburst("cancel", first)
        _until(f"{first} over", lambda: _is_over(at, first))
        over_at = time.time()
        _until("nothing rented", lambda: not at.alive())
        (machine,) = rented(at.tag)
        assert machine.ended_at is not None
        yield "billed after the last job's end", round(machine.ended_at - over_at, 1)
    finally:
        at.kill()


def _manifest(name: str, script: str, image: str | None = None, estimate: str = "5m") -> dict[str, Any]:
    """A job that joins the machine of another one which is taken to need it for longer."""
    container: dict[str, Any] = {
        "name": "main",
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": 1, "memory": "256Mi"}, "limits": {"nvidia.com/gpu": 1}},
    }
    if image:
        container["image"] = image
    keys = {"cloud": "only", "use-spot": "true", "runtime-estimate": estimate}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "annotations": {f"starburst.io/{key}": value for key, value in keys.items()},
        },
        "spec": {
            "backoffLimit": 0,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 2,
                    "containers": [container],
                }
            },
        },
    }


def _first_line(at: Deployment, job: str) -> float:
    """Seconds from the decision that a job leaves to the first line that it wrote."""
    path = log_path(at.home.cloud / "runs", job, 1)

    def written() -> str:
        with suppress(FileNotFoundError):
            line, found, _ = path.read_text(encoding="utf-8").partition("\n")
            return line if found else ""
        return ""

    _until(f"the first line of {job}", written)
    with Store.open(at.home.database) as store:
        pace = queries.pace(store)
        (decided,) = [row.at for row in queries.decisions(store, job) if row.kind == "offloaded"]
    return round(float(written()) - pace.wall_time(decided), 1)


def _is_over(at: Deployment, job: str) -> bool:
    return any(row.id == job and is_over(row.phase) for row in at.rows())


def _until(what: str, holds: Callable[[], Any]) -> None:
    give_up = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < give_up, f"not within {LIMIT_S:.0f} s: {what}"
        time.sleep(LOOK_S)
