"""What others would like us to know. A hint is never truth: nothing happens that an API call would not do.

It is read strictly, checked by the same functions as what people type, and acts on nothing but the job and
the attempt it names, which must be its user's: the one of its topic, for a broker can say who may publish
there. What is malformed, late, doubled or refused changes nothing; it is counted, and said in the log, each
kind once in a while.
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

#: Larger messages are not looked at.
MAX_BYTES = 256 * 1024
#: Wall seconds in which one kind of outcome is said once.
SAY_S = 60.0

Id = Annotated[str, Field(min_length=1, max_length=253)]
Attempt = Annotated[int, Field(ge=1, le=1_000_000)]
IterationCount = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]


class _Hint(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SubmitHint(_Hint):
    """Manifests to be submitted, once per `id`, however often it is said."""

    id: Id
    manifest: Annotated[str, Field(min_length=1)]
    #: Whose jobs they are, if its topic does not say.
    user: Annotated[str, Field(max_length=MAX_USER)] = ""

    def seed(self, user: str | None) -> str:
        """What the ids of its jobs are made of: always the same ones, and of each `user` others."""
        return self.id if user is None else f"{user}\0{self.id}"


class CancelHint(_Hint):
    """A job that is no longer wanted, by its whole id."""

    job: Id


class Said(_Hint):
    """How far a task is: iterations done, of how many if that is known, and how many a second."""

    done: IterationCount
    total: IterationCount | None
    per_s: Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
    #: Which task of a gang.
    rank: Annotated[int, Field(ge=0, le=1_000_000)] = 0


class ThroughputHint(Said):
    """The same, of an attempt of a job."""

    job: Id
    attempt: Attempt

    def event(self) -> Progress:
        """As the core takes it."""
        return Progress(self.job, self.attempt, self.done, self.total, self.per_s)


class HeartbeatHint(_Hint):
    """An attempt of a job runs, or a rented machine does, by its own account."""

    job: Id = ""
    attempt: Attempt = 0
    instance: Id = ""

    @model_validator(mode="after")
    def _one(self) -> HeartbeatHint:
        if self.model_fields_set not in ({"job", "attempt"}, {"instance"}):
            raise ValueError("names either a job and its attempt, or an instance")
        return self


class HintOutcome(str, Enum):
    """What became of a hint."""

    TAKEN = "taken"
    DOUBLED = "doubled"  # known already
    LATE = "late"  # its job is over, or its attempt
    MALFORMED = "malformed"
    REFUSED = "refused"  # as an API call would be
    OFF = "off"  # hints of this kind, or without a user, are not listened to


class HintRefusedError(Exception):
    """A hint does not do what it would; `outcome` says in which way."""

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
    """Does what hints ask for. `user` is whose a hint is, and whose jobs are its business; None: everybody's.

    Each may raise HintRefusedError. What writes is called in a thread.
    """

    def submit(self, hint: SubmitHint, user: str | None) -> None:
        """Hand jobs in."""

    def cancel(self, hint: CancelHint, user: str | None) -> None:
        """Ask for a job to be cancelled."""

    def throughput(self, hint: ThroughputHint, user: str | None) -> None:
        """Note how far an attempt is."""

    def heartbeat(self, hint: HeartbeatHint, user: str | None) -> None:
        """Look whether something is as it says, if we believe otherwise."""


class Hints:
    """Takes hints in."""

    def __init__(self, accept: list[HintKind], desk: HintHandler, *, anybody: bool = False) -> None:
        """`anybody`: also those that name no user in their topic, and speak for everybody."""
        self._accept = accept
        self._desk = desk
        self._anybody = anybody
        #: How many hints of a kind came to what.
        self.counts: Counter[tuple[str, HintOutcome]] = Counter()
        self._said: dict[tuple[str, HintOutcome], float] = {}

    async def take(self, topic: str, payload: bytes) -> None:
        """One hint. Never raises: whatever it is, the bus goes on."""
        *place, kind = topic.split("/")[3:] or [""]
        user = place[0] if place else None
        kind, why = kind if kind in _MODELS and len(place) <= 1 else "unknown", ""
        try:
            await self._do(kind, user, payload)
            outcome = HintOutcome.TAKEN
        except HintRefusedError as refused:
            outcome, why = refused.outcome, str(refused)
        except Exception as error:  # a broken disk is no reason to stop listening
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
