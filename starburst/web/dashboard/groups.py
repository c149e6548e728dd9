"""Pages of one queue, one user and one array: what runs and waits, what was spent, its share and its caps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from starburst.app.jobs.caps_view import stored_standings
from starburst.app.jobs.queue_rows import queue_rows
from starburst.app.wiring.stored import stored_config
from starburst.domain.money import Money
from starburst.store.listings import dashboard_queries as board
from starburst.store.listings import group_counts, queries
from starburst.store.listings.job_list import JobChoice, listed
from starburst.store.listings.row_types import JobRow
from starburst.web.context import AppContext
from starburst.web.dashboard.answers import missing, page, signed_in
from starburst.web.dashboard.caps import CapRow, cap_lines
from starburst.web.dashboard.overview import PHASES, owed_by_job
from starburst.web.dashboard.render import draw_page

#: Jobs on a page.
JOBS = 50


@dataclass(frozen=True, slots=True)
class GroupPage:
    """The contents of the page of a group of jobs."""

    name: str
    #: "queue", "user" or "array".
    kind: str
    #: Numbers of jobs by phase, in the order of phases.
    counts: Mapping[str, int]
    #: GPUs that its jobs have on the cluster and in the cloud, and those of the cluster.
    at_home: int
    away: int
    of: int
    #: What its jobs have cost up to now, and the part that their present machines are owed.
    spent: Money
    running: Money
    facts: Sequence[tuple[str, str]]
    caps: Sequence[CapRow]
    jobs: Sequence[JobRow]
    hits: int
    owed: Mapping[str, int]


def groups(app_context: AppContext) -> APIRouter:
    """The routes of queues, users and arrays of one home."""
    router = APIRouter(include_in_schema=False)

    def drawn(template: str, request: Request, found: GroupPage | None, what: str) -> Response:
        if found is None:
            return missing(what)
        html = draw_page(template, app_context.now(), signed_in=signed_in(request), group=found)
        return page(request, html)

    def routes(kind: str, of: Callable[[AppContext, str], GroupPage | None]) -> None:
        @router.get(f"/{kind}s/{{name:path}}")
        def whole(request: Request, name: str) -> Response:
            return drawn("group.html", request, of(app_context, name), f"there is no {kind} {name}")

        @router.get(f"/dashboard/{kind}s/{{name:path}}")
        def parts(request: Request, name: str) -> Response:
            return drawn("group_parts.html", request, of(app_context, name), f"there is no {kind} {name}")

    routes("queue", _queue)
    routes("user", _user)
    routes("array", _array)
    return router


def _queue(app_context: AppContext, name: str) -> GroupPage | None:
    known = next((row for row in queue_rows(app_context.store) if row["name"] == name), None)
    if known is None:
        return None
    facts = [
        ("Weight in fair order", f"{known['share']:g}"),
        ("Priority", str(known["priority"])),
        ("Wait budget", f"{known['budget_percent']:g} %"),
    ]
    return _group(app_context, "queue", name, JobChoice(queue=name), facts)


def _user(app_context: AppContext, name: str) -> GroupPage | None:
    found = _group(app_context, "user", name, JobChoice(user=name), ())
    return found if found.counts or found.caps or found.spent.micro_usd else None


def _array(app_context: AppContext, name: str) -> GroupPage | None:
    found = _group(app_context, "array", name, JobChoice(array=name), ())
    return found if found.counts else None


def _group(
    app_context: AppContext, kind: str, name: str, choice: JobChoice, facts: Sequence[tuple[str, str]]
) -> GroupPage:
    store, now = app_context.store, app_context.now()
    standings = stored_standings(store, stored_config(store).settings(), now)
    caps = [line for line in cap_lines(standings, now) if name == getattr(line.cap, kind, None)]
    with store.read() as conn:
        tally = group_counts.tally(conn, choice)
        owed = owed_by_job(queries.machines(conn), now)
        jobs, hits = listed(conn, choice, JOBS)
        at_home, away = _gpus(conn, tally.placed)
        running = Money(sum(owed[job_id] for job_id in tally.sharing))
        return GroupPage(
            name,
            kind,
            {phase: tally.counts[phase] for phase in PHASES if tally.counts[phase]},
            at_home,
            away,
            sum(node.capacity.gpus for node in board.nodes(conn)),
            Money(tally.settled_micro_usd) + running,
            running,
            facts,
            caps,
            jobs,
            hits,
            owed,
        )


def _gpus(conn: Connection, ids: frozenset[str]) -> tuple[int, int]:
    """The GPUs of these jobs on the cluster and in the cloud."""
    counted = Counter[bool]()
    for holder in board.placed_jobs(conn):
        if holder.id in ids:
            home = bool(board.on_cluster(holder))
            counted[home] += sum(slot.resources.gpus for slot in holder.slots)
    return counted[True], counted[False]
