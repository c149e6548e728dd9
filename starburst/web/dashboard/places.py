"""Pages of one node and of one rented machine: what it is, what runs there, what was decided of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from starburst.domain.money import Money
from starburst.store.listings import dashboard_queries as board
from starburst.store.listings import queries
from starburst.store.listings.job_list import JobChoice, listed
from starburst.store.listings.row_types import DecisionRow, JobRow
from starburst.web.context import AppContext
from starburst.web.dashboard.answers import missing, page, signed_in
from starburst.web.dashboard.overview import NodeBox, machine_boxes, node_boxes, owed_by_job
from starburst.web.dashboard.render import draw_page

#: Jobs and decisions on a page.
JOBS, DECISIONS = 50, 100


@dataclass(frozen=True, slots=True)
class PlacePage:
    """The contents of the page of a node or a machine."""

    name: str
    #: "node" or "machine".
    kind: str
    #: Its GPUs and the jobs on them; None once a machine has ended.
    box: NodeBox | None
    facts: Sequence[tuple[str, str]]
    jobs: Sequence[JobRow]
    hits: int
    decisions: Sequence[DecisionRow]
    #: Micro-dollars by job for machines that have not ended.
    owed: Mapping[str, int]


def places(app_context: AppContext) -> APIRouter:
    """The routes of nodes and machines of one home."""
    router = APIRouter(include_in_schema=False)

    def answer(request: Request, found: PlacePage | None, what: str) -> Response:
        if found is None:
            return missing(what)
        html = draw_page("place.html", app_context.now(), signed_in=signed_in(request), place=found)
        return page(request, html)

    @router.get("/nodes/{name}")
    def node(request: Request, name: str) -> Response:
        return answer(request, _node(app_context, name), f"there is no node {name}")

    @router.get("/machines/{name}")
    def machine(request: Request, name: str) -> Response:
        return answer(request, _machine(app_context, name), f"there is no machine {name}")

    return router


def _node(app_context: AppContext, name: str) -> PlacePage | None:
    with app_context.store.read() as conn:
        found = [node for node in board.nodes(conn) if node.name == name]
        if not found:
            return None
        (box,) = node_boxes(found, board.placed_jobs(conn))
        jobs, hits = listed(conn, JobChoice(on=name), JOBS)
        owed = owed_by_job(queries.machines(conn), app_context.now())
    labels = ", ".join(f"{key}={value}" for key, value in found[0].labels)
    facts = [("Capacity", str(found[0].capacity)), ("Labels", labels or "none")]
    return PlacePage(name, "node", box, facts, jobs, hits, _decided(app_context, name), owed)


def _machine(app_context: AppContext, name: str) -> PlacePage | None:
    now = app_context.now()
    with app_context.store.read() as conn:
        record = queries.machine(conn, name)
        if record is None:
            return None
        boxes = machine_boxes([record], board.placed_jobs(conn), now) if record.ended_at is None else []
        jobs, hits = listed(conn, JobChoice(on=name), JOBS)
        owed = owed_by_job(queries.machines(conn), now)
    facts = [
        ("Offer", record.offer.title + (f", {len(record.lost)} lost" if record.lost else "")),
        ("Phase", record.phase.value),
        ("Capacity", str(record.offer.capacity)),
        ("Price", f"{record.present_rate}/h"),
        ("Cost", str(Money(record.cost(now).micro_usd))),
    ]
    box = boxes[0].box if boxes else None
    return PlacePage(name, "machine", box, facts, jobs, hits, _decided(app_context, name), owed)


def _decided(app_context: AppContext, name: str) -> list[DecisionRow]:
    return queries.decisions(app_context.store, name, last=DECISIONS)[::-1]
