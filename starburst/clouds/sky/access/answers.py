"""Parses what machines answer; nothing of it is trusted.

A machine is shared by jobs of several users, and any of them may have taken it over. So an answer must be
bounded in size and have the fields, types and ranges that `agent/protocol.py` gives it, or it is none. What
is wrong with one task counts for that task; what is wrong with the rest makes an exchange that failed.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from starburst.clouds.sky.access.ports import SkyError
from starburst.clouds.sky.agent.protocol import LOG_BYTES
from starburst.domain.images import LONGEST
from starburst.runs.supervisor.exits import MAX_TIME, Exit, exit_of
from starburst.visible import visible as printable

#: Bytes of an answer, and of what is said beside it: output of tasks is at most `LOG_BYTES`, in base64.
ANSWER_BYTES, WORDS_BYTES = 4 * LOG_BYTES, 1 << 16
#: Images of a machine at most.
IMAGES = 256
#: Characters of what a machine says that are shown to people.
SHOWN = 300

Model = TypeVar("Model", bound=BaseModel)
Text = Annotated[str, Field(max_length=4096)]
Image = Annotated[str, Field(max_length=LONGEST)]
Seconds = Annotated[float, Field(ge=0)]


class AnswerError(SkyError):
    """A machine's answer is not valid."""


@dataclass(frozen=True, slots=True)
class TaskState:
    """How a task stands by its machine; see `agent/protocol.py`."""

    known: bool
    began: bool
    started: bool
    over: bool
    #: None if its supervisor was killed, too, or what it left is no exit.
    exit: Exit | None
    #: Its output from the byte on that was asked for, and whether there is more.
    log: bytes
    more: bool
    #: What it says of its progress, in base64; None is nothing new.
    report: str | None
    #: Why something that was asked for was not done; "" if all was.
    trouble: str
    #: Why it does not run yet though it began; "" if it runs, or nothing is known.
    waits: str = ""


@dataclass(frozen=True, slots=True)
class MachineState:
    """How a machine stands, with the tasks that were asked about: its answer to `exchange`."""

    #: Epoch seconds on its own clock; `now` is None if it did not say.
    booted_at: float
    now: float | None
    #: Its lease has passed: it is on its way out.
    lapsed: bool
    #: Its lease was renewed, if that was asked for.
    renewed: bool
    #: Why it starts no task, or cannot be kept; "" if neither.
    trouble: str
    #: Its keeper stands in SkyPilot's queue; its own switch runs.
    kept: bool
    armed: bool
    #: Why its tasks are not kept apart; "" if they are, as far as is known.
    together: str
    #: Its images, with the seconds of their pull; None: was there before.
    images: tuple[tuple[str, float | None], ...]
    host: str
    address: str
    tasks: dict[str, TaskState]
    #: Why the others of those that were asked about are not among them.
    broken: dict[str, str]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class _Task(_Strict):
    known: bool
    began: bool
    started: bool
    over: bool
    exit: Any
    log: str
    more: bool
    report: Text | None
    trouble: Text
    waits: Text = ""


class _Uploads(_Strict):
    left: Text


class _Confirmation(_Strict):
    left: Text
    busy: bool


class _Machine(_Strict):
    booted_at: float = Field(ge=0, le=MAX_TIME)
    now: float | None = Field(default=None, ge=0, le=MAX_TIME)
    lapsed: bool
    renewed: bool = True
    trouble: Text = ""
    kept: bool = False
    armed: bool = False
    together: Text = ""
    images: dict[Image, Seconds | None] = Field(default={}, max_length=IMAGES)
    host: str = Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,252})$")
    address: str = Field(max_length=45)
    ranks: dict[str, Any]

    @field_validator("address")
    @classmethod
    def _is_address(cls, text: str) -> str:
        if "%" in text:  # the scope of an IPv6 address may hold any text
            raise ValueError("an address without a scope is expected")
        return str(ip_address(text))


def decoded(text: bytes) -> Any:
    """The value that an answer is, of whatever it consists.

    Raises:
        AnswerError: it is no JSON, or more of it than an answer is.
    """
    if len(text) > ANSWER_BYTES:
        raise AnswerError(f"its machine answered more than {ANSWER_BYTES >> 20} MiB")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise AnswerError(f"its machine answered no JSON: {visible(text[:SHOWN])}") from None


def parse_exchange(answer: object, asked: Collection[str] = ()) -> MachineState:
    """Parse an answer to `exchange` about the tasks that were `asked` about; ignores others.

    Raises:
        AnswerError: it is not valid.
    """
    machine = _whole(_Machine, answer)
    tasks, broken, room = {}, {}, LOG_BYTES
    for name in asked:
        try:
            tasks[name] = _task(machine.ranks.get(name), room)
            room -= len(tasks[name].log)
        except (ValueError, zlib.error, binascii.Error) as error:
            why = _first(error) if isinstance(error, ValidationError) else str(error)
            broken[name] = f"its machine answered {why}"
    return MachineState(
        booted_at=machine.booted_at,
        now=machine.now,
        lapsed=machine.lapsed,
        renewed=machine.renewed,
        trouble=visible(machine.trouble),
        kept=machine.kept,
        armed=machine.armed,
        together=visible(machine.together),
        images=tuple(sorted(machine.images.items())),
        host=machine.host,
        address=machine.address,
        tasks=tasks,
        broken=broken,
    )


def parse_uploads(answer: object) -> str:
    """What a machine has still to upload; "" is nothing.

    Raises:
        AnswerError: the answer is not valid.
    """
    return visible(_whole(_Uploads, answer).left)


def parse_confirmation(answer: object) -> tuple[str, bool]:
    """What a machine cannot say to be in a bucket, "" is nothing; and whether it may be there soon.

    Raises:
        AnswerError: the answer is not valid.
    """
    found = _whole(_Confirmation, answer)
    return visible(found.left), found.busy


def visible(text: str | bytes) -> str:
    """Text of a machine as one line of bounded length without control characters."""
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    line = printable(text[: SHOWN + 1])
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}…"


def _whole(model: type[Model], answer: object) -> Model:
    try:
        return model.model_validate(answer)
    except ValidationError as error:
        raise AnswerError(f"its machine answered {_first(error)}") from None


def _task(said: Any, room: int) -> TaskState:
    task = _Task.model_validate(said)
    return TaskState(
        known=task.known,
        began=task.began,
        started=task.started,
        over=task.over,
        exit=exit_of(task.exit),
        log=_unpacked(task.log, room),
        more=task.more,
        report=task.report,
        trouble=visible(task.trouble),
        waits=visible(task.waits),
    )


def _unpacked(log: str, room: int) -> bytes:
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(base64.b64decode(log, validate=True), room + 1)
    if len(text) > room or not unpacking.eof:
        raise ValueError(f"log: more than {LOG_BYTES} bytes in all, or not all of them")
    return text


def _first(error: ValidationError) -> str:
    """The first problem: its field, and what was expected."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return visible(f"{where}: {first['msg']}" if where else first["msg"])
