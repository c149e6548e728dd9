"""Hints: messages from the bus that may be wrong or missing. A hint does nothing that an API call could not.

Hints are parsed strictly and validated by the same functions as other user input. A hint affects only the job
and attempt that it names, which must belong to the user in its topic: a broker's access rules restrict who
may publish there. A hint that is malformed, late, a duplicate or refused changes nothing; it is counted, and
logged at most once per kind and outcome in SAY_S.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from enum import Enum
from typing import Annotated, Literal, Protocol

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from starburst.core.model.events import Progress
from starburst.domain.user import MAX_USER, USER_IS, is_user

log = structlog.get_logger()

#: Larger messages are refused unparsed.
MAX_BYTES = 256 * 1024
#: Wall seconds in which each kind and outcome is logged at most once.
SAY_S = 60.0

Id = Annotated[str, Field(min_length=1, max_length=253)]
Attempt = Annotated[int, Field(ge=1, le=1_000_000)]
IterationCount = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]


class _Hint(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SubmitHint(_Hint):
    """Manifests to submit. Idempotent: hints with one `id` submit the jobs once."""

    id: Id
    manifest: Annotated[str, Field(min_length=1)]
    #: Submitter of the jobs if the topic names no user.
    user: Annotated[str, Field(max_length=MAX_USER)] = ""

    def seed(self, user: str | None) -> str:
        """The seed of the job ids: a repeated hint yields the same ids, another `user` different ones."""
        return self.id if user is None else f"{user}\0{self.id}"


class CancelHint(_Hint):
    """A request to cancel the job with this full id."""

    job: Id


class Said(_Hint):
    """How far a task is: iterations done, of how many if that is known, and how many a second."""

    done: IterationCount
    total: IterationCount | None
    per_s: Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
    #: Rank of the task in its gang.
    rank: Annotated[int, Field(ge=0, le=1_000_000)] = 0


class ThroughputHint(Said):
    """Progress of a task of one attempt of a job."""

    job: Id
    attempt: Attempt

    def event(self) -> Progress:
        """The hint as an event of the core."""
        return Progress(self.job, self.attempt, self.done, self.total, self.per_s)


class HeartbeatHint(_Hint):
    """A report that an attempt of a job runs, or that an instance does."""

    job: Id = ""
    attempt: Attempt = 0
    instance: Id = ""

    @model_validator(mode="after")
    def _one(self) -> HeartbeatHint:
        if self.model_fields_set not in ({"job", "attempt"}, {"instance"}):
            raise ValueError("names either a job and its attempt, or an instance")
        return self


class HintOutcome(str, Enum):
    """The outcome of a hint."""

    TAKEN = "taken"
    DOUBLED = "doubled"  # duplicate of an earlier hint
    LATE = "late"  # its job or attempt has ended
    MALFORMED = "malformed"
    REFUSED = "refused"  # as an API call would be
    OFF = "off"  # hints of this kind, or without a user, are disabled


class HintRefusedError(Exception):
    """A hint has no effect; `outcome` is the category of the reason."""

    def __init__(self, outcome: HintOutcome, why: str = "") -> None:
        super().__init__(why)
        self.outcome = outcome


HintKind = Literal["submit", "cancel", "throughput", "heartbeat"]
_MODELS: dict[str, type[SubmitHint] | type[CancelHint] | type[ThroughputHint] | type[HeartbeatHint]] = {
    "submit": SubmitHint,
    "cancel": CancelHint,
    "throughput": ThroughputHint,
    "heartbeat": HeartbeatHint,
}


class HintHandler(Protocol):
    """Executes hints. A hint may affect only jobs of `user`; None allows jobs of all users.

    Each method may raise HintRefusedError. `submit` and `cancel`, which write to the store, run in a thread.
    """

    def submit(self, hint: SubmitHint, user: str | None) -> None:
        """Submit jobs."""

    def cancel(self, hint: CancelHint, user: str | None) -> None:
        """Request the cancellation of a job."""

    def throughput(self, hint: ThroughputHint, user: str | None) -> None:
        """Take the progress of a task."""

    def heartbeat(self, hint: HeartbeatHint, user: str | None) -> None:
        """Poll the site if the scheduler's state contradicts the heartbeat."""


class Hints:
    """Parses hints, passes them to a handler and counts the outcomes."""

    def __init__(self, accept: list[HintKind], desk: HintHandler, *, anybody: bool = False) -> None:
        """`anybody` also accepts hints whose topic names no user; they may affect jobs of all users."""
        self._accept = accept
        self._desk = desk
        self._anybody = anybody
        #: Numbers of hints by kind and outcome.
        self.counts: Counter[tuple[str, HintOutcome]] = Counter()
        self._said: dict[tuple[str, HintOutcome], float] = {}

    async def take(self, topic: str, payload: bytes) -> None:
        """Execute one hint. Never raises: every error becomes an outcome."""
        *place, kind = topic.split("/")[3:] or [""]
        user = place[0] if place else None
        kind, why = kind if kind in _MODELS and len(place) <= 1 else "unknown", ""
        try:
            await self._do(kind, user, payload)
            outcome = HintOutcome.TAKEN
        except HintRefusedError as refused:
            outcome, why = refused.outcome, str(refused)
        except Exception as error:  # for example of the disk; later hints are still received
            outcome, why = HintOutcome.REFUSED, f"{type(error).__name__}: {error}"
        self._count(kind, outcome, why)

    async def _do(self, kind: str, user: str | None, payload: bytes) -> None:
        if kind not in self._accept or (user is None and not self._anybody):
            raise HintRefusedError(HintOutcome.OFF)
        if user is not None and not is_user(user):
            raise HintRefusedError(HintOutcome.MALFORMED, f"user: {user[: 2 * MAX_USER]!r}: {USER_IS}")
        hint = _read(kind, payload)
        if isinstance(hint, SubmitHint):
            await asyncio.to_thread(self._desk.submit, hint, user)
        elif isinstance(hint, CancelHint):
            await asyncio.to_thread(self._desk.cancel, hint, user)
        elif isinstance(hint, ThroughputHint):
            self._desk.throughput(hint, user)
        else:
            self._desk.heartbeat(hint, user)

    def _count(self, kind: str, outcome: HintOutcome, why: str) -> None:
        key = kind, outcome
        self.counts[key] += 1
        now = time.monotonic()
        if outcome is not HintOutcome.TAKEN and now - self._said.get(key, -SAY_S) >= SAY_S:
            self._said[key] = now
            log.warning("hint", kind=kind, outcome=outcome.value, why=why[:500], so_far=self.counts[key])


def _read(kind: str, payload: bytes) -> SubmitHint | CancelHint | ThroughputHint | HeartbeatHint:
    if len(payload) > MAX_BYTES:
        raise HintRefusedError(HintOutcome.MALFORMED, f"{len(payload)} bytes, which is more than {MAX_BYTES}")
    try:
        return _MODELS[kind].model_validate_json(payload)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise HintRefusedError(HintOutcome.MALFORMED, f"{where}: {first['msg']}") from None
