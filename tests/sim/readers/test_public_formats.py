"""Traces as their authors publish them: small files in each format, made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.errors import SimulationError
from sim.readers import Read, read

HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)


def reading(path: Path, content: str) -> Read:
    path.write_text(content)
    return read(path)


def error(path: Path, content: str) -> str:
    with pytest.raises(SimulationError) as caught:
        reading(path, content)
    return str(caught.value).replace(str(path), path.name)


def job(name: str, submitted: str, *attempts: tuple[str | None, str | None, int]) -> dict[str, Any]:
    """A job of Philly with attempts (start, end, GPUs), all on one day."""
    day = "2017-10-07 "
    return {
        "status": "Pass", "vc": "v", "user": "u", "jobid": name, "submitted_time": day + submitted,
        "attempts": [
            {"start_time": start and day + start, "end_time": end and day + end,
             "detail": [{"ip": "m1", "gpus": ["gpu"] * gpus}]}
            for start, end, gpus in attempts
        ],
    }  # fmt: skip


def test_philly_sums_attempts_takes_the_last_gpus_and_sorts(tmp_path: Path) -> None:
    jobs = [
        job("late", "02:00:00", ("02:10:00", "02:40:00", 1)),
        job("twice", "01:00:00", ("01:00:00", "01:30:00", 8), ("02:00:00", "03:00:00", 16)),
        job("never", "00:30:00"),
        job("half", "01:30:00", ("01:30:00", None, 2), ("02:00:00", "02:15:00", 4)),
        job("going", "00:00:00", ("01:30:00", None, 2)),
    ]
    result = reading(tmp_path / "cluster_job_log", json.dumps(jobs))
    assert result.trace.ids == ["twice", "half", "late"]
    assert result.trace.arrival_h.tolist() == [0, 0.5, 1]
    assert result.trace.duration_h.tolist() == [1.5, 0.25, 0.5]
    assert result.trace.gpus.tolist() == [16, 4, 1]
    assert result.notes == [
        "2 jobs left out, since no attempt has a start and an end: never, going",
        "1 job with attempts not counted, since they have no start or no end after it: half",
    ]


def test_philly_errors(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert error(path, '[{"jobid": 1,') == (
        "log:1: not JSON (Expecting property name enclosed in double quotes): get the file again"
    )
    mend = "needs jobid, submitted_time and attempts, with times such as 2017-10-07 01:12:09"
    assert error(path, '[{"jobid": "a"}, 3]') == (
        f"log: job 1: a: no 'submitted_time': {mend}\nlog: job 2: jobid: no 'jobid': {mend}"
    )
    assert error(path, "[" * 100_000) == "log: not a list of jobs: get the file again"
    twice = [job("a", "01:00:00", ("01:00:00", "02:00:00", 1))] * 2
    assert error(path, json.dumps(twice)) == (
        "log: job 2: jobid: a: is used above; every job needs its own id"
    )
    assert error(path, json.dumps([job("a", "01:00:00")])) == "log: no jobs: there must be one that ran"


def test_helios(tmp_path: Path) -> None:
    rows = (
        "7,u,v,16,64,2,FAILED,2020-06-09 19:00:00,2020-06-09 19:30:00,2020-06-09 20:30:00,3600,1800\n"
        "8,u,v,1,2,1,COMPLETED,2020-06-09 18:00:00,2020-06-09 18:00:00,2020-06-09 18:30:00,1800,0\n"
        "9,u,v,1,2,1,CANCELLED,2020-06-09 18:00:00,,,,\n"
    )
    trace, notes = (result := reading(tmp_path / "cluster_log.csv", HELIOS + rows)).trace, result.notes
    assert trace.ids == ["8", "7"]
    assert (trace.arrival_h.tolist(), trace.duration_h.tolist()) == ([0, 1], [0.5, 1])
    assert (trace.gpus.tolist(), trace.cpus.tolist(), trace.nodes.tolist()) == ([1, 16], [2, 64], [1, 2])
    assert notes == ["1 job left out, since they never started or have no duration: 9"]


def test_helios_errors(tmp_path: Path) -> None:
    row = "7,u,v,.5,64,0,FAILED,yesterday,2020-06-09 19:30:00,,-1.5,1800\n"
    assert error(tmp_path / "log.csv", HELIOS + row).splitlines() == [
        "log.csv:2: submit_time: yesterday: must be a time such as 2020-06-09 18:41:01",
        "log.csv:2: gpu_num: 0.5: must be a whole number",
        "log.csv:2: node_num: 0: must be 1 or more",
        "log.csv:2: duration: -1.5: must be 0 or more",
    ]


def test_openb_gives_a_whole_gpu_for_a_share(tmp_path: Path) -> None:
    rows = (
        "a,6000,12288,1,460,,LS,Running,3600,9000,5400\n"
        "b,88000,327680,8,1000,,LS,Succeeded,7200,10800,7200\n"
        "c,1000,1024,0,0,,BE,Pending,7300,7400,\n"
    )
    result = reading(tmp_path / "openb_pod_list_default.csv", OPENB + rows)
    trace = result.trace
    assert (trace.ids, trace.gpus.tolist(), trace.cpus.tolist()) == (["a", "b"], [1, 8], [6, 88])
    assert (trace.arrival_h.tolist(), trace.duration_h.tolist()) == ([0, 1], [1, 1])
    assert trace.memory_gib.tolist() == [12, 320]
    assert result.notes == [
        "1 job left out, since they were never scheduled or never ended: c",
        "1 job with a share of a GPU given a whole one: a",
    ]
    assert error(tmp_path / "pods.csv", OPENB + "a,6000,12288,1,460,,LS,Running,1,5,9\n") == (
        "pods.csv:2: deletion_time: 5: must not be before scheduled_time (9)"
    )


def test_swf(tmp_path: Path) -> None:
    text = (
        "; Version: 2.2\n\n"
        "1 3600 5 1800 4 -1 1048576 -1 7200 -1 1 7 1 1 1 1 -1 -1\n"
        "2 7200 5 3600 4 -1 -1 8 -1 524288 1 -1 1 1 1 1 -1 -1 ; more\n"
        "3 7300 5 -1 4 -1 -1 8 -1 -1 1 1 1 1 1 1 -1 -1\n"
    )
    result = reading(tmp_path / "log.swf", text)
    trace = result.trace
    assert (trace.ids, trace.arrival_h.tolist(), trace.duration_h.tolist()) == (["1", "2"], [0, 1], [0.5, 1])
    assert (trace.gpus.tolist(), trace.cpus.tolist(), trace.memory_gib.tolist()) == ([4, 8], [0, 0], [4, 4])
    assert trace.users == ["7", ""]
    assert trace.estimate_h is not None
    assert np.array_equal(trace.estimate_h, [2, np.nan], equal_nan=True), "the requested time"
    assert result.notes == [
        "a processor counts as a GPU",
        "1 job left out, since their submission, run time or processors are unknown: 3",
    ]
    assert read(tmp_path / "log.swf", limit=1).trace.ids == ["1"]


def test_swf_errors(tmp_path: Path) -> None:
    rest = "-1 -1 8 -1 -1 1 1 1 1 1 1 -1 -1"
    text = f"1 0 5\n2 0 5 x 4 {rest}\n3 0 5 -7 4 {rest}\n"
    assert error(tmp_path / "log.swf", text).splitlines() == [
        "log.swf:1: row: 3 fields: must be 18",
        f"log.swf:2: row: 2 0 5 x 4 {rest}: every field must be a finite number",
        "log.swf:3: run: -7: must be 0 or more",
    ]


def test_swf_header_status_and_names_in_latin_1(tmp_path: Path) -> None:
    """A job cancelled in the queue never ran; lines of parts of a job are not jobs."""
    rest = "-1 -1 {} 1 -1 1 1 1 -1 -1"
    rows = [
        f"1 0 0 60 16 -1 -1 -1 {rest.format(1)}",
        f"2 9 -1 0 0 -1 -1 8 {rest.format(5)}",
        f"3 9 1 60 8 -1 -1 8 {rest.format(5)}",
        f"3 9 1 30 8 -1 -1 8 {rest.format(2)}",
        f"3 9 1 30 8 -1 -1 8 {rest.format(4)}",
    ]
    head = "; Installation: Universität\n; MaxNodes: 32\n; MaxProcs:  256 (some down)\n"
    path = tmp_path / "log"
    path.write_bytes("\n".join([head, *rows]).encode("latin-1"))
    result = read(path)
    assert (result.trace.ids, result.trace.gpus.tolist()) == (["1", "3"], [16, 8])
    assert result.notes == [
        "a processor counts as a GPU; the log's machine is --nodes 32 --gpus-per-node 8",
        "2 lines of parts of jobs passed over",
        "1 job left out, since they were cancelled before they started: 2",
    ]
    path.write_text("; MaxProcs: 100\n; MaxNodes: 32\n" + rows[0])
    assert read(path).notes[0].endswith("the log's machine had 100 processors: nodes × GPUs per node")


def test_acme_runs_from_start_to_end_whatever_its_duration_counts(tmp_path: Path) -> None:
    head = (
        "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,type,state,"
        "submit_time,start_time,end_time,duration,queue\n"
    )
    at = "2023-05-17 {}+00:00".format
    rows = (
        f"a,u1,2,16,240,1000,Other,FAILED,{at('11:00:00')},{at('11:00:10')},{at('11:00:20')},20,10\n"
        f"b,u2,1,8,96,100,Other,OK,2023-05-17 18:30:00+08:00,{at('10:30:00')},{at('11:30:00')},3600,0\n"
        f"c,u2,1,8,96,100,Other,CANCELLED,{at('10:30:00')},,,,\n"
    )
    result = reading(tmp_path / "trace_kalos.csv", head + rows)
    trace = result.trace
    assert (result.format, trace.ids, trace.users) == ("acme", ["b", "a"], ["u2", "u1"])
    assert (trace.arrival_h.tolist(), trace.duration_h.tolist()) == ([0, 0.5], [1, 10 / 3600])
    assert (trace.gpus.tolist(), trace.nodes.tolist()) == ([8, 16], [1, 2])
    assert result.notes == ["1 job left out, since they never started or never ended: c"]


def test_dlrm_takes_instances_of_gpu_nodes_that_are_whole_in_the_trace(tmp_path: Path) -> None:
    head = (
        "instance_sn,role,app_name,cpu_request,gpu_request,memory_request,max_instance_per_node,"
        "creation_time,scheduled_time,deletion_time\n"
    )
    rows = (
        "i1,HN,app_0,12,1,120.0,8,3600.0,3700.0,7300.0\ni2,CN,app_0,64,0,320.0,-1,0.0,0.0,10.0\n"
        "i3,HN,app_1,12,1,120.0,8,,,7300.0\ni4,HN,app_1,8,1,32.0,8,0.0,0.0,1800.0\n"
    )
    result = reading(tmp_path / "dlrm.csv", head + rows)
    trace = result.trace
    assert (trace.ids, trace.users, trace.gpus.tolist()) == (["i4", "i1"], ["app_1", "app_0"], [1, 1])
    assert (trace.arrival_h.tolist(), trace.duration_h.tolist()) == ([0, 1], [0.5, 1])
    assert result.notes == [
        "1 job left out, since their role is not HN: they run on no GPU node: i2",
        "1 job left out, since they began before the trace or ended after it: i3",
    ]


def test_genai_requests_are_jobs_of_one_gpu_numbered_from_1(tmp_path: Path) -> None:
    head = "gmt_create,predict_type,predict_status,exec_time_seconds,groupId,prompt_length\n"
    rows = (
        "2024-11-15 17:57:50,T,SUCCEED,36.0,G1,63.0\n2024-11-15 16:57:50,T,FAILED,18.0,G2,\n"
        "2024-11-15 16:57:51,T,PROCESSING,9.0,G2,1\n"
    )
    result = reading(tmp_path / "lora.csv", head + rows)
    trace = result.trace
    assert (trace.ids, trace.users, trace.gpus.tolist()) == (["2", "1"], ["G2", "G1"], [1, 1])
    assert (trace.arrival_h.tolist(), trace.duration_h.tolist()) == ([0, 1], [0.005, 0.01])
    assert result.notes == ["1 job left out, since they had not ended: 3"]


def test_spot_gpu_multiplies_by_the_workers(tmp_path: Path) -> None:
    head = (
        "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n"
    )
    result = reading(tmp_path / "job_info_df.csv", head + "7,13,A10,15,1,16,3600,7200,Spot\n")
    trace = result.trace
    assert (trace.gpus.tolist(), trace.cpus.tolist(), trace.users) == ([16], [240], ["13"])
    assert trace.duration_h.tolist() == [2]


def test_pai_excerpts(tmp_path: Path) -> None:
    head = "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user\n"
    rows = "a,2,3600,6.0,0.5,MISC,1800,u1\nb,1,0,,,CPU,3600,u2\n"
    result = reading(tmp_path / "pai_job_no_estimate_100K.csv", head + rows)
    trace = result.trace
    assert (trace.ids, trace.gpus.tolist(), trace.cpus.tolist()) == (["b", "a"], [0, 2], [0, 12])
    assert (trace.duration_h.tolist(), trace.users) == ([1, 0.5], ["u2", "u1"])
    assert result.notes == ["1 job with a share of a GPU given a whole one: a"]


@pytest.mark.parametrize("titled", [True, False])
def test_pai_tasks_of_a_name_are_a_job(tmp_path: Path, titled: bool) -> None:
    """The table's header is published as a file of its own, so most copies have none."""
    head = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
    rows = (
        "j,worker,4.0,Terminated,7200.0,10800.0,600.0,29.5,50.0,V100\n"
        "j,ps,1.0,Terminated,3600.0,9000.0,400.0,10.0,,\n"
        "k,evaluator,1.0,Failed,3000.0,3600.0,100.0,1.0,100.0,T4\n"
        "l,worker,1.0,Running,5000.0,,100.0,1.0,100.0,T4\n"
    )
    result = reading(tmp_path / "pai_task_table.csv", head * titled + rows)
    trace = result.trace
    assert (result.format, trace.ids) == ("pai-tasks", ["k", "j"])
    assert (trace.arrival_h[1], trace.duration_h[1]) == (pytest.approx(1 / 6), pytest.approx(2))
    assert (trace.gpus.tolist(), trace.cpus[1], trace.memory_gib[1]) == ([1, 4], 28, 128)
    assert result.notes == [
        "1 job left out, since a task has no start or no end after it: l",
        "1 job with a share of a GPU given a whole one: j",
    ]


def test_sia_takes_run_times_from_the_applications(tmp_path: Path) -> None:
    head = "name,time,application,num_replicas,batch_size\n"
    result = reading(tmp_path / "workload-1.csv", head + "a,7.2,bert,8,384\n")
    assert (result.trace.gpus.tolist(), result.trace.duration_h.tolist()) == ([8], [0.95])
    assert "measured on a T4" in result.notes[0]
    assert error(tmp_path / "workload-2.csv", head + "a,7.2,gpt,8,384\n") == (
        "workload-2.csv:2: application: gpt: has no known run time; "
        "known are ncf, cifar10, bert, deepspeech2, yolov3, imagenet"
    )


def test_a_negative_number_is_an_error_where_nothing_is_unknown(tmp_path: Path) -> None:
    head = "job_name,organization,cpu_request,gpu_request,worker_num,submit_time,duration\n"
    assert error(tmp_path / "jobs.csv", head + "7,13,15,-1,0,0,-1\n").splitlines() == [
        "jobs.csv:2: gpu_request: -1: must be 0 or more",
        "jobs.csv:2: duration: -1: must be 0 or more",
        "jobs.csv:2: worker_num: 0: must be 1 or more",
    ]


def test_a_format_that_is_not_told(tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    assert error(path, "hello\n") == (
        "jobs: unknown format: the first line of a CSV names its columns, such as "
        "job_id,arrival_h,duration_h,gpus; starburst traces lists the formats"
    )
    assert error(path, " \n") == "jobs: empty: give a file with jobs"
    with pytest.raises(SimulationError, match=r"jobs: format: xml: must be one of helios, acme, openb"):
        read(path, "xml")


@pytest.mark.parametrize(
    ("head", "told"),
    [
        ("sn,cpu_milli,memory_mib,gpu,model", "a list of nodes; give the list of pods, openb_pod_list*.csv"),
        (
            "job_name,inst_id,user,status,start_time,end_time",
            "a table of PAI without demands; give pai_task_table.csv",
        ),
    ],
)
def test_a_table_beside_a_trace_is_named(tmp_path: Path, head: str, told: str) -> None:
    assert error(tmp_path / "table.csv", f"{head}\n") == f"table.csv: {told}"
