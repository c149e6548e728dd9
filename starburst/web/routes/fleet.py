"""Routes about machines, bills, caps, nodes, offers and the decision log."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from starburst import __version__
from starburst.app.jobs.caps_view import cap_rows
from starburst.app.jobs.job_keys import decision_keys
from starburst.app.jobs.queue_rows import queue_rows
from starburst.app.jobs.serializers import (
    InstanceRow,
    cost_keys,
    instance_keys,
    instance_rows,
    node_keys,
    offer_keys,
)
from starburst.app.times import iso
from starburst.app.wiring.stored import stored_config
from starburst.store.listings import pages
from starburst.store.listings.costs import CostRow, CostSplit, costs, dearest_first
from starburst.web.dependencies import RequestContext, ViewerContext
from starburst.web.errors import HttpError
from starburst.web.routes.jobs import After, Limit

router = APIRouter()


@router.get("/instances", summary="List the rented machines", tags=["machines"])
def instances(
    context: ViewerContext, all: Annotated[bool, Query(description="also those that have ended")] = False
) -> JSONResponse:
    """An array of what `starburst instances -o json` shows; with a scoped token machines of its jobs only."""
    return JSONResponse([instance_keys(row) for row in _machines(context, include_ended=all)])


@router.get("/cost", summary="The cloud's bill", tags=["machines"])
def cost(
    context: ViewerContext,
    by: Annotated[CostSplit, Query(description="what it is split by")] = CostSplit.USER,
) -> JSONResponse:
    """An array of what `starburst cost -o json` shows; a scoped token's is split by user, queue or job."""
    rows = costs(
        context.store,
        by.value if context.principal.queues is None else "job",
        context.services.app_context.now(),
    )
    if context.principal.queues is not None:
        rows = _regroup(context, rows, by)
    return JSONResponse([cost_keys(by.value, row) for row in rows])


@router.get("/caps", summary="How the caps on spending stand", tags=["machines"])
def caps(context: ViewerContext) -> JSONResponse:
    """An array of what `starburst cost --caps -o json` shows; a scoped token sees those on its queues."""
    rows = cap_rows(
        context.store, stored_config(context.store).settings(), context.services.app_context.now()
    )
    queues = context.principal.queues
    return JSONResponse([row for row in rows if queues is None or row["queue"] in queues])


@router.get("/events", summary="The decision log", tags=["log"])
def events(
    context: ViewerContext,
    subject: Annotated[str | None, Query(description="only about this job or machine, by its id")] = None,
    after: After = 0,
    limit: Limit = 1000,
    newest: Annotated[bool, Query(description="the last rows, not the first")] = False,
) -> JSONResponse:
    """An array of what `starburst events -o json` shows; one shorter than `limit` is the last page."""
    rows, _ = pages.decisions(
        context.store, context.principal.queues, subject, after_seq=after, limit=limit, newest=newest
    )
    return JSONResponse(context.shown([decision_keys(row) for row in rows]))


@router.get("/nodes", summary="The cluster's nodes and what is free on them", tags=["machines"])
def nodes(context: ViewerContext) -> JSONResponse:
    """An array; amounts are what jobs may use. A node that jobs may not start on is not `schedulable`."""
    with context.snapshots.current(waiting=False) as core:
        return JSONResponse(
            [node_keys(node, core.state.capacity.free(node.name)) for node in core.state.capacity.nodes]
        )


@router.get("/queues", summary="The queues and their jobs by phase", tags=["jobs"])
def queues(context: ViewerContext) -> JSONResponse:
    """An array of what `starburst queues -o json` shows; with a scoped token its queues only."""
    return JSONResponse(queue_rows(context.store, context.principal.queues))


@router.get("/offers", summary="What the cloud sells", tags=["machines"])
def offers(context: ViewerContext) -> JSONResponse:
    """An array; the price is null if it is unknown."""
    with context.snapshots.current(waiting=False) as core:
        return JSONResponse([offer_keys(offer) for offer in core.state.fleet.offers.values()])


@router.get("/summary", summary="How things stand, in a few numbers", tags=["log"])
def summary(context: ViewerContext) -> JSONResponse:
    """Jobs and machines by phase, dollars per hour at present, and the newest row of the log."""
    app_context, queues = context.services.app_context, context.principal.queues
    machines = _machines(context)
    _, head = pages.decisions(context.store, queues, limit=1, newest=True)
    return JSONResponse(
        {
            "version": __version__,
            "now": iso(app_context.now()),
            "scheduler_running": app_context.scheduler() is not None,
            "leader": app_context.leader(),
            "jobs": pages.counts(context.store, queues),
            "instances": Counter(row.phase for row in machines),
            "usd_per_hour": sum(row.rate.micro_usd for row in machines) / 1_000_000,
            "last_seq": head,
        }
    )


def _machines(context: RequestContext, *, include_ended: bool = False) -> list[InstanceRow]:
    rows = instance_rows(context.store, context.services.app_context.now(), include_ended=include_ended)
    queues = context.principal.queues
    if queues is None:
        return rows
    mine = pages.among(context.store, {job for row in rows for job in row.jobs}, queues)
    return [row.of_jobs(mine) for row in rows if not mine.isdisjoint(row.jobs)]


def _regroup(context: RequestContext, rows: list[CostRow], by: CostSplit) -> list[CostRow]:
    """Bills of jobs in the principal's scope, grouped by user, queue or job."""
    if by in (CostSplit.DAY, CostSplit.MONTH, CostSplit.OFFER):
        raise HttpError(403, f"by: {by.value}: a token for some queues sees bills by user, queue or job only")
    total, running, at_home = Counter[str](), Counter[str](), Counter[str]()
    owners = pages.owners(context.store, [row.name for row in rows])
    for row in rows:
        user, queue = owners[row.name]
        if context.principal.sees(queue):
            name = {CostSplit.USER: user, CostSplit.QUEUE: queue}.get(by, row.name)
            total[name] += row.micro_usd
            running[name] += row.running_micro_usd
            if row.cluster_micro_usd is not None:  # all rows have it, or none
                at_home[name] += row.cluster_micro_usd
    found = [CostRow(name, micro_usd, running[name], at_home.get(name)) for name, micro_usd in total.items()]
    return sorted(found, key=lambda row: (*dearest_first(row), row.name))
