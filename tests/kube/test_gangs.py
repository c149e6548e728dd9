"""The pods of a gang on real kubelets know each other and reduce over a socket, without DNS or a Service."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kube.lab import Lab
from tests.kube.live import give_gpus, job_manifest, live

#: Each pod adds its number; rank 0 listens, and tells the sum.
REDUCE = """
begun=$(date +%s)
until [ -s "$STARBURST_HOSTS_FILE" ]; do sleep 1; done
echo "knows its hosts after $(($(date +%s) - begun)) s"
export SKYPILOT_NODE_IPS="$(cat "$STARBURST_HOSTS_FILE")"
[ "$(echo "$SKYPILOT_NODE_IPS" | sed -n $((RANK + 1))p)" = "$(hostname -i)" ] || exit 9
[ "$RANK" = 0 ] || [ "$(echo "$SKYPILOT_NODE_IPS" | head -n1)" = "$MASTER_ADDR" ] || exit 8
wc -l <"$STARBURST_HOSTS_FILE"
mine=$((RANK + 1))
if [ "$RANK" = 0 ]; then
  mkfifo /tmp/answer
  exec 3<>/tmp/answer
  nc -l -p "$MASTER_PORT" <&3 | {
    read theirs
    sum=$((mine + theirs))
    echo "sum $sum of $WORLD_SIZE"
    echo "$sum" >&3
  }
else
  sum=
  until [ -n "$sum" ]; do
    sum=$({ echo "$mine"; sleep 1; } | nc "$MASTER_ADDR" "$MASTER_PORT" | { read found; echo "$found"; })
  done
  echo "sum $sum of $WORLD_SIZE"
fi
"""


def test_the_pods_of_a_gang_on_two_nodes_reduce(two_kubelets: Lab, tmp_path: Path) -> None:
    give_gpus(two_kubelets, ["node0", "node1"], 8)
    manifest = job_manifest("reduce", REDUCE, gpus=8)
    manifest["spec"] |= {"parallelism": 2, "completions": 2}
    (tmp_path / "reduce.json").write_text(json.dumps(manifest))
    with live(two_kubelets, tmp_path) as running:
        running.configure("cluster: {kind: kubernetes}")
        running.up()
        running.chakra()
        running.run("submit", "reduce.json")
        running.wait_for("it is over", lambda: running.jobs()[0]["phase"] in ("succeeded", "failed"))
        logs = running.run("logs", "reduce")
        assert logs.count("sum 3 of 2") == 2, logs
        assert running.jobs()[0]["phase"] == "succeeded"
        print(logs)
