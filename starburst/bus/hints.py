"""What others would like us to know. A hint is never truth: nothing happens that an API call would not do.

It is read strictly, checked by the same functions as what people type, and acts on nothing but the job and
the attempt it names. What is malformed, late, doubled or refused changes nothing; it is counted, and said in
the log, each kind once in a while.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Annotated, Literal

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from starburst.core.events import Progress

log = structlog.get_logger()

#: Larger messages are not looked at.
MAX_BYTES = 256 * 1024
#: Wall seconds in which one kind of outcome is said once.
SAY_S = 60.0
#: Signs of the ends of ids; as those that are drawn, but so many that no two hints share them by chance.
SIGNS, LENGTH = "bcdfghjklmnpqrstvwxz2456789", 10

Id = Annotated[str, Field(min_length=1, max_length=253)]
Count = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]


class _Hint(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Submit(_Hint):
    """Manifests to be submitted, once per `id`, however often it is said."""

    id: Id
    manifest: Annotated[str, Field(min_length=1)]
    user: Annotated[str, Field(max_length=253)] = ""

    def suffixes(self) -> Iterator[str]:
        """Ends of the ids of its jobs: always the same ones."""
        number = 0
        while True:
            digest = hashlib.sha256(f"{number}/{self.id}".encode()).digest()
            yield "".join(SIGNS[byte % len(SIGNS)] for byte in digest[:LENGTH])
            number += 1


class Cancel(_Hint):
    """A job that is no longer wanted, by its whole id."""

    job: Id


class Throughput(_Hint):
    """How far an attempt of a job is: iterations done, of how many, and how many a second."""

    job: Id
    attempt: Annotated[int, Field(ge=1, le=1_000_000)]
    done: Count
    total: Count
    per_s: Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]

    def event(self) -> Progress:
        """As the core takes it."""
        return Progress(self.job, self.attempt, self.done, self.total, self.per_s)


class Outcome(str, Enum):
    """What became of a hint."""

    TAKEN = "taken"
    DOUBLED = "doubled"  # known already
    LATE = "late"  # its job is over, or its attempt
    MALFORMED = "malformed"
    REFUSED = "refused"  # as an API call would be
    OFF = "off"  # hints of this kind are not listened to


class RefusedError(Exception):
    """A hint does not do what it would; `outcome` says in which way."""

    def __init__(self, outcome: Outcome, why: str = "") -> None:
        super().__init__(why)
        self.outcome = outcome


Kind = Literal["submit", "cancel", "throughput"]
_MODELS: dict[str, type[Submit] | type[Cancel] | type[Throughput]] = {
    "submit": Submit,
    "cancel": Cancel,
    "throughput": Throughput,
}


class Hints:
    """Takes hints in, each by a function that may raise RefusedError; what writes is called in a thread."""

    def __init__(
        self,
        accept: list[Kind],
        *,
        submit: Callable[[Submit], None],
        cancel: Callable[[Cancel], None],
        throughput: Callable[[Throughput], None],
    ) -> None:
        self._accept = accept
        self._submit = submit
        self._cancel = cancel
        self._throughput = throughput
        #: How many hints of a kind came to what.
        self.counts: Counter[tuple[str, Outcome]] = Counter()
        self._said: dict[tuple[str, Outcome], float] = {}

    async def take(self, topic: str, payload: bytes) -> None:
        """One hint. Never raises: whatever it is, the bus goes on."""
        kind = topic.rpartition("/")[2]
        kind, why = kind if kind in _MODELS else "unknown", ""
        try:
            await self._do(kind, payload)
            outcome = Outcome.TAKEN
        except RefusedError as refused:
            outcome, why = refused.outcome, str(refused)
        except Exception as error:  # a broken disk is no reason to stop listening
            outcome, why = Outcome.REFUSED, f"{type(error).__name__}: {error}"
        self._count(kind, outcome, why)

    async def _do(self, kind: str, payload: bytes) -> None:
        if kind not in self._accept:
            raise RefusedError(Outcome.OFF)
        hint = _read(kind, payload)
        if isinstance(hint, Submit):
            await asyncio.to_thread(self._submit, hint)
        elif isinstance(hint, Cancel):
            await asyncio.to_thread(self._cancel, hint)
        else:
            self._throughput(hint)

    def _count(self, kind: str, outcome: Outcome, why: str) -> None:
        key = kind, outcome
        self.counts[key] += 1
        now = time.monotonic()
        if outcome is not Outcome.TAKEN and now - self._said.get(key, -SAY_S) >= SAY_S:
            self._said[key] = now
            log.warning("hint", kind=kind, outcome=outcome.value, why=why[:500], so_far=self.counts[key])


def _read(kind: str, payload: bytes) -> Submit | Cancel | Throughput:
    if len(payload) > MAX_BYTES:
        raise RefusedError(Outcome.MALFORMED, f"{len(payload)} bytes, which is more than {MAX_BYTES}")
    try:
        return _MODELS[kind].model_validate_json(payload)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RefusedError(Outcome.MALFORMED, f"{where}: {first['msg']}") from None
