"""Philly's `cluster_job_log` (Microsoft, ATC'19): JSON, a list of jobs. Local times, taken as written.

A job's duration is the sum over its attempts; its GPUs are those of the last attempt. An attempt without a
start or an end, or with an end before its start, adds nothing. A job without a timed attempt is left out. The
recorded placement is not a request, so each job requests one node and is split if necessary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sim.errors import SimulationError
from sim.readers.columns import by_arrival, check_ids, note, trace_of
from sim.readers.files import open_text
from sim.readers.problems import Problems
from sim.readers.table import UNKNOWN, seconds, seconds_if_known
from sim.trace import Trace


def read_philly(path: Path, limit: int | None) -> tuple[Trace, list[str]]:
    """All jobs with at least one attempt that has a start and an end."""
    problems = Problems(str(path), "{file}: job {line}")
    reader = _Jobs(problems)
    for number, job in enumerate(_jobs(path), 1):
        reader.add(number, job)
    check_ids(problems, np.arange(1, len(reader.ids) + 1), "jobid", reader.ids)
    problems.check()
    duration = np.array(reader.duration_s, float) / 3600
    gpus = np.array(reader.gpus, float)
    trace = trace_of(
        reader.ids, np.array(reader.submitted_s, float) / 3600, duration, gpus, users=reader.users
    )
    notes = note(reader.untimed, "left out, since no attempt has a start and an end")
    notes += note(reader.partly, "with attempts not counted, since they have no start or no end after it")
    keep = np.ones(len(reader.ids), bool)
    keep[reader.unusable] = False
    return by_arrival(trace, keep, str(path), limit), notes


def _jobs(path: Path) -> list[object]:
    with open_text(path) as text:
        content = text.read()
    try:
        jobs = json.loads(content)
    except json.JSONDecodeError as error:
        raise SimulationError(f"{path}:{error.lineno}: not JSON ({error.msg}): get the file again") from None
    except (RecursionError, ValueError):
        raise SimulationError(f"{path}: not a list of jobs: get the file again") from None
    if not isinstance(jobs, list):
        raise SimulationError(f"{path}: not a list of jobs: get the file again")
    return jobs


class _Jobs:
    """Columns, filled job by job."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self.ids: list[str] = []
        self.submitted_s: list[float] = []
        self.duration_s: list[float] = []
        self.gpus: list[int] = []
        self.users: list[str] = []
        self.unusable: list[int] = []
        self.untimed: list[str] = []
        self.partly: list[str] = []

    def add(self, number: int, job: object) -> None:
        """Add one job, or report its problem."""
        job = job if isinstance(job, Mapping) else {}
        attempts = job.get("attempts")
        try:
            name, submitted_s = str(job["jobid"]), seconds(str(job["submitted_time"]))
            runs = [_duration_s(attempt) for attempt in attempts or []]
            gpus = sum(len(machine["gpus"]) for machine in attempts[-1]["detail"]) if attempts else 0
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else error
            remedy = "needs jobid, submitted_time and attempts, with times such as 2017-10-07 01:12:09"
            self._problems.add(number, str(job.get("jobid", "jobid")), what, remedy)
            return
        timed = [run for run in runs if run >= 0]
        if not timed:
            self.unusable.append(len(self.ids))
            self.untimed.append(name)
        elif len(timed) < len(runs):
            self.partly.append(name)
        self.ids.append(name)
        self.submitted_s.append(submitted_s)
        self.duration_s.append(sum(timed))
        self.gpus.append(gpus)
        self.users.append(str(job.get("user", "")))


def _duration_s(attempt: Mapping[str, object]) -> float:
    """Run time of an attempt, seconds; negative if unknown."""
    start, end = (seconds_if_known(str(attempt[key])) for key in ("start_time", "end_time"))
    return UNKNOWN if UNKNOWN in (start, end) else end - start
