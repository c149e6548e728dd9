"""Alibaba PAI of 2020 (NSDI'22): the simulator's excerpts `pai_job_*_100K.csv`, and `pai_task_table.csv`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sim.readers.columns import by_arrival, check_numbers, marked, note, trace_of
from sim.readers.files import open_text
from sim.readers.problems import Problems
from sim.readers.published.job_table import JobTable
from sim.readers.table import UNKNOWN, TraceTable, number_if_known
from sim.trace import Bools, Floats, Trace

#: Columns of `pai_task_table.csv`, whose header is published as a file of its own.
TASK_COLUMNS = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)
PERCENT = 100


def read_pai_jobs(path: Path, limit: int | None) -> tuple[Trace, list[str]]:
    """Jobs with demands of one instance, which are multiplied by the instances; a blank demand is 0."""
    numbers = dict.fromkeys(("num_inst", "num_cpu", "num_gpu"), number_if_known)
    times = dict.fromkeys(("submit_time", "duration"), float)
    table = JobTable(path, "job_id", {**numbers, **times}, words=["user"])
    table.check("num_cpu", "num_gpu", "submit_time", "duration")
    table.check("num_inst", lowest=1, whole=True)
    instances = np.maximum(table["num_inst"], 1)
    return table.trace(
        limit,
        submit_s=table["submit_time"],
        run_s=table["duration"],
        gpus=table.whole_gpus(np.maximum(table["num_gpu"], 0)) * instances,
        cpus=np.maximum(table["num_cpu"], 0) * instances,
        users=table.words("user"),
    )


def read_pai_tasks(path: Path, limit: int | None) -> tuple[Trace, list[str]]:
    """Tasks of one job name are one job, from its first start to its last end, with all their instances.

    Submissions are in another table, so a job arrives when its first task starts. Demands are percent of a
    CPU or GPU and GiB, of an instance.
    """
    problems = Problems(str(path))
    numbers = ("inst_num", "plan_cpu", "plan_mem", "plan_gpu", "start_time", "end_time")
    with open_text(path) as text:
        titled = text.readline().startswith(TASK_COLUMNS[0])
        text.seek(0)
        table = TraceTable(text, problems, () if titled else TASK_COLUMNS)
        table.read("job_name", dict.fromkeys(numbers, number_if_known))
    known = {name: np.where(table[name] == UNKNOWN, 0, table[name]) for name in numbers}
    for name in numbers:
        check_numbers(problems, table.lines, name, known[name])
    problems.check()
    return _gathered(table.ids, known, path, limit)


def _gathered(
    names: list[str], of_task: dict[str, Floats], path: Path, limit: int | None
) -> tuple[Trace, list[str]]:
    """One job of the tasks of each name, in order of their first tasks."""
    ids = list(dict.fromkeys(names))
    rows = {name: row for row, name in enumerate(ids)}
    job = np.fromiter((rows[name] for name in names), np.int64, len(names))

    def total(of_instance: Floats) -> Floats:
        weights = of_instance * np.maximum(of_task["inst_num"], 1)
        return np.bincount(job, weights, len(ids)).astype(np.float64)

    def any_of(tasks: Bools) -> Bools:
        return np.bincount(job, tasks, len(ids)) > 0

    begin_s, end_s = np.full(len(ids), np.inf), np.zeros(len(ids))
    np.minimum.at(begin_s, job, of_task["start_time"])
    np.maximum.at(end_s, job, of_task["end_time"])
    untimed = (of_task["start_time"] == 0) | (of_task["end_time"] < of_task["start_time"])
    ran, shares = ~any_of(untimed), of_task["plan_gpu"] / PERCENT
    trace = trace_of(
        ids,
        begin_s / 3600,
        (end_s - begin_s) / 3600,
        total(np.ceil(shares)),
        cpus=total(of_task["plan_cpu"] / PERCENT),
        memory_gib=total(of_task["plan_mem"]),
    )
    notes = note(marked(ids, ~ran), "left out, since a task has no start or no end after it")
    notes += note(marked(ids, any_of(shares % 1 > 0) & ran), "with a share of a GPU given a whole one")
    return by_arrival(trace, ran, str(path), limit), notes
