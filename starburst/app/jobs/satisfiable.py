"""Refuses jobs at submission that no node and no offer could ever hold.

The nodes of the embedded cluster stand in the config. Those of a Kubernetes cluster come and go (a drain, an
autoscaler), so there a job is taken, with a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from starburst.app.errors import UserError
from starburst.app.wiring.stored import idle_core
from starburst.core.views.satisfiability import Satisfiability, satisfiability
from starburst.domain.job import CloudChoice, Job, Submission
from starburst.store.store import Store

MEND = "ask for less, or submit it with --allow-unsatisfiable if such machines will come"


def refuse_unsatisfiable(
    store: Store, submissions: Sequence[Submission], *, nodes_change: bool
) -> list[Submission]:
    """The submissions; a note tells where a job may not go to the only site that could hold it.

    `nodes_change`: nodes come and go, so a job that no present node could hold waits, with a note.

    Raises:
        UserError: jobs that neither the cluster, if it were empty, nor any offer could hold.
    """
    state = idle_core(store).state
    known: dict[object, Satisfiability] = {}
    problems, kept = dict[str, None](), list[Submission]()
    for item in submissions:
        job = item.job
        asked = (job.shape, job.offer_rules, job.cloud)
        found = known.get(asked) or known.setdefault(asked, satisfiability(state, job))
        if found.lacks and nodes_change and job.cloud is not CloudChoice.ONLY:
            kept.append(_noted(item, f"{found.lacks}: it waits for such a node"))
            continue
        if found.lacks:
            problems[f"job {item.job.name}: {found.lacks}; {MEND}"] = None
        kept.append(_noted(item, _stuck(job, found)))
    if problems:
        raise UserError("\n".join(problems))
    return kept


def _stuck(job: Job, found: Satisfiability) -> str:
    """Why a job waits although a site could hold it; "" if it does not."""
    if job.cloud is CloudChoice.NEVER and not found.cluster:
        return (
            f"only the cloud could hold it, and {job.stays or 'its starburst.io/cloud says never'}: it waits"
        )
    if job.cloud is CloudChoice.ONLY and not found.cloud:
        return "only the cluster could hold it, and its starburst.io/cloud says only: it waits"
    return ""


def _noted(item: Submission, note: str) -> Submission:
    return replace(item, notes=(*item.notes, note)) if note else item
