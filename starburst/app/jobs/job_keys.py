"""Jobs and decisions by the keys of `-o json` and of the HTTP API, which are stable (docs/cli.md)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from starburst.app.times import iso
from starburst.store.listings.row_types import DecisionRow, JobRow

if TYPE_CHECKING:
    from starburst.core.views.explain import Explanation

Keys = dict[str, object]


def job_keys(row: JobRow) -> Keys:
    """A job of a listing."""
    return {
        "id": row.id,
        "name": row.name,
        "user": row.user,
        "queue": row.queue,
        "need": row.need,
        "phase": row.phase,
        "site": row.site,
        "runs_on": row.runs_on,
        "attempt": row.attempt,
        "submitted_at": iso(row.submitted_at),
        "leaves_at": iso(row.deadline) if row.phase == "queued" else None,
        "started_at": iso(row.started_at),
        "ended_at": iso(row.ended_at),
        "exit_code": row.exit_code,
        "message": row.message,
        "cloud_cost_usd": row.cloud_micro_usd / 1_000_000,
    }


def story_keys(row: JobRow, sentence: str, story: Iterable[DecisionRow]) -> Keys:
    """A job with its explanation and its decisions."""
    decisions = [{"at": iso(d.at), "decision": d.kind, "reason": d.reason} for d in story]
    return {**job_keys(row), "explanation": sentence, "decisions": decisions}


def explanation_keys(told: Explanation) -> Keys:
    """An explanation without the job's id."""
    return {
        "phase": told.phase,
        "explanation": told.sentence,
        "leaves_at": iso(told.leaves_at),
        "position": told.position,
        "cloud_cost_usd": None if told.cloud_cost is None else float(told.cloud_cost.dollars),
        "offers": list(told.offers),
    }


def decision_keys(row: DecisionRow) -> Keys:
    """A row of the decision log."""
    return {
        "seq": row.seq,
        "at": iso(row.at),
        "subject": row.subject,
        "event": row.event,
        "decision": row.kind,
        "reason": row.reason,
        "numbers": row.numbers,
    }
