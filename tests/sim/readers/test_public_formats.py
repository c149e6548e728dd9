"""Philly, Helios, Alibaba and SWF: small files in each format, made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sim.errors import SimulationError
from sim.readers import Read, read

HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
ALIBABA = (
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


def test_alibaba_gives_a_whole_gpu_for_a_share(tmp_path: Path) -> None:
    rows = (
        "a,6000,12288,1,460,,LS,Running,3600,9000,5400\n"
        "b,88000,327680,8,1000,,LS,Succeeded,7200,10800,7200\n"
        "c,1000,1024,0,0,,BE,Pending,7300,7400,\n"
    )
    result = reading(tmp_path / "openb_pod_list_default.csv", ALIBABA + rows)
    trace = result.trace
    assert (trace.ids, trace.gpus.tolist(), trace.cpus.tolist()) == (["a", "b"], [1, 8], [6, 88])
    assert (trace.arrival_h.tolist(), trace.duration_h.tolist()) == ([0, 1], [1, 1])
    assert trace.memory_gib.tolist() == [12, 320]
    assert result.notes == [
        "1 job left out, since they were never scheduled or never ended: c",
        "1 job with a share of a GPU given a whole one: a",
    ]
    assert error(tmp_path / "pods.csv", ALIBABA + "a,6000,12288,1,460,,LS,Running,1,5,9\n") == (
        "pods.csv:2: deletion_time: 5: must not be before scheduled_time (9)"
    )


def test_swf(tmp_path: Path) -> None:
    text = (
        "; Version: 2.2\n\n"
        "1 3600 5 1800 4 -1 1048576 -1 -1 -1 1 1 1 1 1 1 -1 -1\n"
        "2 7200 5 3600 4 -1 -1 8 -1 524288 1 1 1 1 1 1 -1 -1 ; more\n"
        "3 7300 5 -1 4 -1 -1 8 -1 -1 5 1 1 1 1 1 -1 -1\n"
    )
    result = reading(tmp_path / "log.swf", text)
    trace = result.trace
    assert (trace.ids, trace.arrival_h.tolist(), trace.duration_h.tolist()) == (["1", "2"], [0, 1], [0.5, 1])
    assert (trace.gpus.tolist(), trace.cpus.tolist(), trace.memory_gib.tolist()) == ([0, 0], [4, 8], [4, 4])
    assert result.notes == ["1 job left out, since their submission, run time or processors are unknown: 3"]
    assert read(tmp_path / "log.swf", limit=1).trace.ids == ["1"]


def test_swf_errors(tmp_path: Path) -> None:
    rest = "-1 -1 8 -1 -1 1 1 1 1 1 1 -1 -1"
    text = f"1 0 5\n2 0 5 x 4 {rest}\n3 0 5 -7 4 {rest}\n"
    assert error(tmp_path / "log.swf", text).splitlines() == [
        "log.swf:1: row: 3 fields: must be 18",
        f"log.swf:2: row: 2 0 5 x 4 {rest}: every field must be a finite number",
        "log.swf:3: run: -7: must be 0 or more",
    ]


def test_a_format_that_is_not_told(tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    known = "csv, philly, helios, alibaba, swf, spec"
    assert error(path, "hello\n") == (
        "jobs: unknown format: the first line of a CSV names its columns, such as "
        "job_id,arrival_h,duration_h,gpus"
    )
    assert error(path, " \n") == "jobs: empty: give a file with jobs"
    with pytest.raises(SimulationError, match=f"jobs: format: xml: must be one of {known}"):
        read(path, "xml")
