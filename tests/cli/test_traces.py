"""`starburst traces`, and published traces in `simulate`: nothing has to be rewritten first."""

from __future__ import annotations

import json
from pathlib import Path

from sim.readers import FORMATS

SWF = "; MaxNodes: 4\n; MaxProcs: 16\n" + "".join(
    f"{job} {job * 600} 0 3600 {size} -1 -1 {size} -1 -1 1 {job % 2} 1 1 1 1 -1 -1\n"
    for job, size in enumerate((4, 8, 1, 64, 2), 1)
)
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "a,200000,1024,2,1000,,LS,Succeeded,0,3600,0\nb,900000,1024,1,1000,,LS,Succeeded,10,3600,10\n"
)


def test_the_formats_and_where_they_are_published(cli) -> None:
    told = json.loads(cli("traces", "-o", "json").out)
    assert [form["format"] for form in told] == list(FORMATS)
    assert all(form["source"] for form in told if form["format"] not in ("csv", "spec"))
    assert "github.com/alibaba/clusterdata" in cli("traces").out


def test_the_size_of_a_file_and_what_was_left_out(cli, tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text(SWF)
    (told,) = json.loads(cli("traces", file, "-o", "json").out)
    assert (told["format"], told["jobs"], told["users"], told["largest_gpus"]) == ("swf", 5, 2, 64)
    assert (told["gpu_hours"], round(told["span_h"], 6)) == (79, 0.666667)
    assert "--nodes 4 --gpus-per-node 4" in cli("traces", file).err


def test_a_published_trace_is_made_to_fit_the_cluster(cli, tmp_path: Path) -> None:
    """What exceeds a node becomes a gang; what exceeds the cluster is left out, with a note."""
    file = tmp_path / "log"
    file.write_text(SWF)
    told = cli("simulate", file, "--nodes", 4, "--gpus-per-node", 4, "-o", "json")
    assert json.loads(told.out)["jobs_counted"] == 4
    assert f"note: {file}: left out what this cluster cannot hold: 1 of 5 jobs" in told.err
    pods = tmp_path / "pods"
    pods.write_text(OPENB)
    told = cli("simulate", pods, "--nodes", 3, "--cpus-per-node", 96, "-o", "json")
    assert json.loads(told.out)["jobs_counted"] == 1, "200 CPUs are three nodes of 96"
    assert "1 of 2 jobs" in told.err
    assert cli("simulate", pods, "--nodes", 1, "--cpus-per-node", 96).err.splitlines()[-1] == (
        f"error: {pods}: this cluster holds none of the 2 jobs; simulate more nodes, or larger ones"
    )
