"""An elastic gang on real kubelets goes on with the tasks that fit when one of its nodes is drained."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kube.lab import Lab
from tests.kube.live import give_gpus, job_manifest, live

#: Ends only when it is told to, unless its gang has become smaller.
WORK = """
echo "attempt $STARBURST_ATTEMPT with $NNODES tasks, the first at ${MASTER_ADDR:+an address}"
trap 'exit 143' TERM
while [ "$NNODES" = 2 ]; do sleep 0.2; done
echo done
"""


def test_a_drained_node_leaves_the_gang_with_one_task(two_kubelets: Lab, tmp_path: Path) -> None:
    give_gpus(two_kubelets, ["node0", "node1"], 8)
    manifest = job_manifest("elastic", WORK, gpus=8, keys={"starburst.io/elastic": "true"})
    manifest["spec"] |= {"parallelism": 2, "completions": 2}
    with live(two_kubelets, tmp_path) as running:
        running.configure("cluster: {kind: kubernetes}")
        running.up()
        running.chakra()
        running.run("submit", "-", given=json.dumps(manifest))
        running.wait_for(
            "both tasks run", lambda: running.run("logs", "elastic").count("attempt 1 with 2 tasks") == 2
        )
        how = ("--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=140s")
        running.kubectl("drain", "node1", *how)
        try:
            running.wait_for("it is over", lambda: running.jobs()[0]["phase"] in ("succeeded", "failed"))
        finally:
            running.kubectl("uncordon", "node1")
        (job,) = running.jobs()
        assert (job["phase"], job["attempt"]) == ("succeeded", 2), job
        assert (
            running.run("logs", "elastic")
            == "[0] attempt 2 with 1 tasks, the first at an address\n[0] done\n"
        )
        assert running.lines("starburst", "with 1 of its 2 tasks, as it is elastic") == 1
