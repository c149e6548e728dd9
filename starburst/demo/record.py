"""Evaluation of the demo: runs and waits for the picture, and checks for the summary."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sim.reports.gantt import Span, WaitSpan
from starburst.domain.job import is_over
from starburst.store.listings import queries
from starburst.store.store import Store


@dataclass(frozen=True, slots=True)
class History:
    """All runs and waits of a store's jobs; scheduler seconds."""

    spans: tuple[Span, ...]
    waits: tuple[WaitSpan, ...]


def history(store: Store) -> History:
    """Reconstruct the runs and waits from the event log and the decision log."""
    jobs = {row.id: row for row in queries.jobs(store)}
    gpus = {job_id: record.job for job_id in jobs if (record := queries.record(store, job_id)) is not None}
    started: dict[tuple[str, int], tuple[float, str]] = {}
    waits = []
    spans: list[Span] = []
    waiting = {job_id: row.submitted_at for job_id, row in jobs.items()}
    for decision in queries.decisions(store):
        job_id, numbers = decision.subject, decision.numbers
        if decision.kind == "started":
            started[job_id, numbers["attempt"]] = (decision.at, numbers["where"])
        elif decision.kind in ("placed", "offloaded") and job_id in waiting:
            waits.append(WaitSpan(job_id, waiting.pop(job_id), decision.at))
    for event in queries.events(store):
        if event.kind != "RunEnded":
            continue
        key = (event.body["job_id"], event.body["attempt"])
        if key not in started:
            continue
        start, where = started.pop(key)
        for place, task in zip(where.split(", "), gpus[key[0]].tasks, strict=False):
            cloud, cut = place.startswith("i-"), event.body["end"] != "exited"
            spans.append(Span(key[0], place, cloud, task.gpus, start, event.at, cut))
    return History(tuple(spans), tuple(waits))


def worked_s(spans: Sequence[Span]) -> dict[str, float]:
    """Run time of each job, summed over its runs; scheduler seconds."""
    runs: dict[str, set[tuple[float, float]]] = defaultdict(set)
    for span in spans:
        runs[span.job_id].add((span.start, span.end))
    return {job_id: sum(end - start for start, end in times) for job_id, times in runs.items()}


def ran_twice(witness: Path) -> list[str]:
    """Jobs with concurrent runs, or that finished or ran an attempt twice, by their own witness notes."""
    notes = [json.loads(line) for line in witness.read_text().splitlines()] if witness.exists() else []
    seen: Counter[tuple[str, ...]] = Counter()
    for note in notes:
        what = (note["STARBURST_JOB"], note["STARBURST_RANK"], note["what"])
        seen[what] += 1
        attempt = (*what, note["STARBURST_ATTEMPT"])
        seen[attempt] += 1
    return sorted(
        {
            key[0]
            for key, times in seen.items()
            if key[2] == "twin" or (key[2] == "end" and times > 1) or (len(key) == 4 and times > 1)
        }
    )


def lost(store: Store, submitted: Sequence[str]) -> list[str]:
    """Jobs that were submitted and did not end."""
    over = {row.id for row in queries.jobs(store) if is_over(row.phase)}
    return sorted(set(submitted) - over)
