"""Streaming routes: the decision log as server-sent events, and the logs of jobs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timezone
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Header, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from starburst.aio import TaskSet
from starburst.app.logs.job_log import read_log, refuse_unknown
from starburst.app.logs.sites import LogPart, LogPosition
from starburst.store.listings import pages
from starburst.store.listings.row_types import JobRow
from starburst.web.dependencies import RequestContext, ViewerContext
from starburst.web.routes.jobs import JobText

router = APIRouter()

#: Content type of server-sent events.
EVENTS = "text/event-stream"
#: Wall seconds between two checks whether the server stops.
POLL_S = 0.3
#: Wall seconds of silence after which a stream sends a keepalive and checks its token.
QUIET_S = 15.0
#: Rows per batch.
ROWS = 500
#: Log pieces read ahead of the client.
AHEAD = 8
#: Wall seconds that the answer waits for the first piece of a followed log.
FIRST_S = 0.5


Close = Callable[[], Awaitable[None]]


class Stream(StreamingResponse):
    """A streaming response that counts against the principal's limit until it ends in any way."""

    def __init__(
        self,
        context: RequestContext,
        content: AsyncIterator[str],
        media_type: str,
        close: Close | None = None,
    ) -> None:
        """`close` runs at the end, even if the content was never iterated."""
        super().__init__(content, media_type=media_type, headers={"X-Accel-Buffering": "no"})
        self._context = context
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._context.services.authenticator.limits.give_stream(self._context.principal.key)
            if self._close is not None:
                await self._close()


@router.get(
    "/watch",
    summary="The decision log as it grows",
    tags=["log"],
    response_class=Response,
    responses={200: {"content": {EVENTS: {}}}},
)
async def watch(
    context: ViewerContext,
    after: Annotated[int | None, Query(ge=0, lt=2**63, description="row to go on from; the last one")] = None,
    last_event_id: Annotated[str, Header(description="the same, as browsers send it")] = "",
) -> Response:
    """Server-sent events named `decision`, of what `/events` shows; their ids are the rows' `seq`.

    Whoever comes back with the last id it has seen misses nothing.
    """
    start = int(last_event_id) if last_event_id.isdecimal() and len(last_event_id) < 19 else after
    if start is None:
        start = await run_in_threadpool(_end, context)
    context.services.authenticator.limits.take_stream(context.principal.key)
    return Stream(context, _decisions(context, start), EVENTS)


@router.get(
    "/jobs/{job}/logs",
    summary="What a job wrote",
    tags=["jobs"],
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {}, EVENTS: {}}},
        204: {"description": "it has written nothing"},
    },
)
async def logs(
    *,
    context: ViewerContext,
    job: JobText,
    attempt: Annotated[int | None, Query(ge=1, le=2**31, description="of this run; the last")] = None,
    rank: Annotated[int | None, Query(ge=0, le=2**31, description="of this task of a gang; all")] = None,
    follow: Annotated[bool, Query(description="go on until the job ends")] = False,
    since: Annotated[
        datetime | None, Query(description="only lines from this time on (RFC 3339; without a zone, UTC)")
    ] = None,
    timestamps: Annotated[bool, Query(description="each line begins with its time")] = False,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
    last_event_id: Annotated[str, Header(description="the last id seen, to go on behind it")] = "",
) -> Response:
    """Plain text; lines of a gang begin with their rank.

    To who accepts `text/event-stream`: events named `log` (`{"text"}`), whose ids are where to go on from if
    the connection breaks, also when the server was started again; maybe `note` (`{"text"}`) beside them; at
    last `end` (`{"found"}`: whether there was any log) or `error` (`{"error"}`). Without either it was cut.
    """
    position = LogPosition.parse(last_event_id)
    row = await run_in_threadpool(context.job, job)
    part = LogPart(attempt, rank, None if since is None else _epoch(since), timestamps)
    if follow:
        await run_in_threadpool(refuse_unknown, context.store, row, LogPart(rank=rank))
    limits = context.services.authenticator.limits
    limits.take_stream(context.principal.key)
    reading, begun, events = _Reading(context, row, part, position, follow=follow), False, EVENTS in accept
    try:
        begun = await reading.begin() or events
    finally:
        if not begun:
            limits.give_stream(context.principal.key)
            await reading.close()
    if events:
        return Stream(context, reading.events(), EVENTS, reading.close)
    return (
        Stream(context, reading.text(), "text/plain", reading.close) if begun else Response(status_code=204)
    )


def _epoch(at: datetime) -> float:
    return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()


def _end(context: RequestContext) -> int:
    """The sequence number of the newest decision."""
    return pages.decisions(context.store, context.principal.queues, limit=1, newest=True)[1]


async def _decisions(context: RequestContext, seq: int) -> AsyncIterator[str]:
    """Rows after `seq` as they are written.

    An id without data, at the start and in pauses, marks the position.
    """
    yield f"id: {seq}\n\n"
    services, queues, said_at = context.services, context.principal.queues, time.monotonic()
    with services.feed as feed:
        while not services.closing.is_set():
            batch = await feed.after(queues, seq, ROWS)
            seq = batch.seq
            if batch.text:
                yield batch.text
            if time.monotonic() - said_at > QUIET_S:
                if not await run_in_threadpool(services.authenticator.still_admits, context.principal):
                    return
                yield f"id: {seq}\n\n"
                said_at = time.monotonic()
            if batch.more:
                continue
            await feed.beyond(seq, max(POLL_S, said_at + QUIET_S - time.monotonic()))


class _Piece(NamedTuple):
    """A piece of a log, possibly empty, and the position behind it as an event id; "" is unknown."""

    text: str
    id: str


class _Reading:
    """The reader of one log request. The bounded queue slows the reading down to the speed of the client."""

    def __init__(
        self, context: RequestContext, row: JobRow, part: LogPart, position: LogPosition, *, follow: bool
    ) -> None:
        self._context = context
        self._follow = follow
        self._position = position
        self._pieces = asyncio.Queue[_Piece](AHEAD)
        self._notes: list[str] = []
        #: The position of the last piece that was sent, and whether the log ended.
        self._sent = str(position)
        self._whole = False
        app_context = context.services.app_context
        reading = read_log(
            app_context.store,
            app_context.home,
            row.id,
            part,
            self._take,
            follow=follow,
            note=self._notes.append,
            position=position,
        )
        self._tasks = TaskSet()
        self._task = self._tasks.ensure(f"log of {row.id}", lambda: reading)
        self._next = self._tasks.ensure("next piece", self._pieces.get)

    async def begin(self) -> bool:
        """Wait for the first piece or the end; whether there is or may be a log.

        Raises:
            UserError: the part does not exist, or the log cannot be read.
        """
        await self._wait(FIRST_S if self._follow else None)
        if self._next.done() or not self._task.done():
            return True
        return self._task.result()

    async def text(self) -> AsyncIterator[str]:
        """The log as plain text, until the job ends, the server stops, or the token becomes invalid."""
        async for piece in self._arriving():
            if piece.text:
                yield piece.text
        error = self._task.exception() if self._whole else None
        if error is not None:  # the status was sent already
            yield f"error: {error}\n"

    async def events(self) -> AsyncIterator[str]:
        """The log as server-sent events. An id without data, in pauses, marks the position."""
        async for piece in self._arriving():
            yield self._noted() + (f"id: {piece.id}\n" if piece.id else ": nothing yet\n")
            yield named_event("log", text=piece.text) if piece.text else "\n"
        if self._whole:
            error = self._task.exception()
            end = (
                named_event("end", found=self._task.result())
                if error is None
                else named_event("error", error=str(error))
            )
            yield self._noted() + end

    async def close(self) -> None:
        """Cancel the reading."""
        await self._tasks.cancel()

    async def _take(self, text: str) -> None:
        await self._pieces.put(_Piece(text, str(self._position)))

    async def _arriving(self) -> AsyncIterator[_Piece]:
        """The pieces; empty ones in long pauses."""
        services, asked_at = self._context.services, time.monotonic()
        while not services.closing.is_set():
            if self._next.done():
                piece = self._next.result()
                self._sent = piece.id
                yield piece
                self._next = self._tasks.ensure("next piece", self._pieces.get)
                await asyncio.sleep(0)  # lets the task take a queued piece
            elif self._task.done():
                self._whole = True
                return
            else:
                await self._wait(POLL_S)
            if time.monotonic() - asked_at > QUIET_S:
                asked_at = time.monotonic()
                if not await run_in_threadpool(services.authenticator.still_admits, self._context.principal):
                    return
                yield _Piece("", self._sent)

    def _noted(self) -> str:
        notes = "".join(named_event("note", text=note) for note in self._notes)
        self._notes.clear()
        return notes

    async def _wait(self, limit_s: float | None) -> None:
        """Wait for the next piece or the end of the log."""
        either = (self._next, self._task)
        await asyncio.wait(either, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)


def named_event(name: str, **data: object) -> str:
    """A server-sent event."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
