"""Bare Pods that go while no Starburst watches, on real kubelets: their jobs run again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from starburst.store.listings import queries
from tests.kube.lab import Lab
from tests.kube.live import Live, applied_pod, working

NAMES = ("drained", "deleted")
#: Wall seconds, of a loaded machine.
PATIENCE_S = 240.0


#: It ends only when it is told to.
ENDLESS = "trap 'exit 143' TERM; for i in $(seq 3000); do sleep 0.2; done"


@pytest.fixture
def running(two_kubelets: Lab, tmp_path: Path) -> Iterator[Live]:
    with working(two_kubelets, tmp_path) as starburst:
        yield starburst


def test_pods_that_went_meanwhile_run_again_and_one_that_is_deleted_now_is_cancelled(running: Live) -> None:
    running.apply([applied_pod(name, ENDLESS, gpus=8) for name in NAMES])

    def runs() -> dict[str, tuple[str, int]]:
        """Phase and attempt of each job."""
        with running.store() as store:
            records = {job["name"]: queries.record(store, job["id"]) for job in running.jobs()}
        return {name: (found.phase.value, found.attempt) for name, found in records.items() if found}

    def all_run(attempt: int) -> bool:
        return runs() == dict.fromkeys(NAMES, ("running", attempt))

    running.wait_for("both run", lambda: all_run(1), PATIENCE_S)
    running.kill("starburst")
    node = running.kubectl("get", "pod", "drained", "-o", "jsonpath={.spec.nodeName}")
    how = ("--ignore-daemonsets", "--force", "--delete-emptydir-data", "--grace-period=1", "--timeout=140s")
    running.kubectl("drain", node, *how)
    running.kubectl("uncordon", node)
    running.kubectl("delete", "pod", "deleted", "--grace-period=1", "--ignore-not-found")
    running.up()
    running.wait_for("both run again", lambda: all_run(2), PATIENCE_S)

    running.kubectl("delete", "pod", "deleted", "--grace-period=1")
    running.wait_for("its user cancelled it", lambda: runs()["deleted"] == ("cancelled", 2), PATIENCE_S)
    assert runs()["drained"] == ("running", 2)
    running.run("cancel", "drained")
    running.wait_for("it has ended", lambda: runs()["drained"][0] == "cancelled", PATIENCE_S)
