"""What must outlive the scheduler: small facts by key, each written before what it announces happens."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import structlog
from pydantic import TypeAdapter

from starburst.clouds.sky.access.ports import Access, CloudId
from starburst.core.model.events import InstanceFailed, InstanceGone, InstanceReady, RunEnd, RunEnded
from starburst.domain.cloud import Offer
from starburst.domain.money import Money
from starburst.runs.files import directory_name, id_of
from starburst.runs.outcome import verdict
from starburst.runs.supervisor.exits import Exit, exit_of
from starburst.runs.supervisor.files import read_json, write_json

log = structlog.get_logger()


class Notes(Protocol):
    """A durable map of keys to JSON values."""

    def get(self, key: str) -> Any:
        """The value of a key; None if there is none."""

    def put(self, key: str, value: Any) -> None:
        """Set a value; when this returns it is durable."""

    def drop(self, key: str) -> None:
        """Forget a key, if it is there."""

    def all_keys(self, prefix: str) -> list[str]:
        """Every key that begins so, sorted."""


class FileNotes:
    """Notes as files of a directory, readable by their owner only: a workload's environment may be secret."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o700)

    def get(self, key: str) -> Any:
        """See `Notes`."""
        return read_json(self._path(key))

    def put(self, key: str, value: Any) -> None:
        """See `Notes`."""
        write_json(self._path(key), value)

    def drop(self, key: str) -> None:
        """See `Notes`."""
        self._path(key).unlink(missing_ok=True)

    def all_keys(self, prefix: str) -> list[str]:
        """See `Notes`."""
        files = self._root.glob(f"{directory_name(prefix)}*.json")
        return sorted(id_of(path.with_suffix("")) for path in files)

    def _path(self, key: str) -> Path:
        return self._root / f"{directory_name(key)}.json"


@dataclass(slots=True)
class MachineNote:
    """One machine, from its intent on. Times are scheduler seconds."""

    id: str
    offer: str
    spot: bool
    asked_at: float
    gpu_type: str = ""
    #: The request that launches it.
    request: str | None = None
    #: Its launch was asked for, whatever became of the request.
    asked: bool = False
    #: How to log in, as SkyPilot last said: it need not be there for a machine to be attended to.
    access: Access | None = None
    #: Which instance it is; known once its cloud has said so of a machine that answered.
    at: CloudId | None = None
    #: When its bill began: by its cloud, else by its boot, and until somebody logged in by SkyPilot.
    launched_at: float | None = None
    #: What it really costs an hour; None if SkyPilot does not say.
    micro_usd: int | None = None
    ready: bool = False
    #: Its keeper is in its queue; its own switch runs.
    kept: bool = False
    armed: bool = False
    #: It lives, and SkyPilot does not list it.
    forgotten: bool = False
    ending: bool = False
    #: The request that takes it down, and that this was done, as far as SkyPilot knows.
    down: str | None = None
    taken_down: bool = False
    down_at: float | None = None
    #: When its bill ended, by its cloud: it was stopped, or was over.
    halted_at: float | None = None
    #: Why no machine came of it.
    failed: str | None = None
    sold_out: bool = False
    #: When the cloud no longer had it.
    ended_at: float | None = None
    preempted: bool = False

    @classmethod
    def intent(cls, instance_id: str, offer: Offer, now: float) -> MachineNote:
        """Before anything is asked of the cloud."""
        return cls(instance_id, offer.name, offer.spot, now, offer.resources.gpu_type)

    @property
    def key(self) -> str:
        """Where it is noted."""
        return f"machine/{self.id}"

    @property
    def is_over(self) -> bool:
        """Whether nothing can change any more."""
        return self.ended_at is not None or self.failed is not None

    def told_by(self) -> float:
        """When it was over."""
        return self.asked_at if self.ended_at is None else self.ended_at

    def up(self) -> InstanceReady:
        """What is to be reported of one that takes runs."""
        assert self.launched_at is not None
        rate = None if self.micro_usd is None else Money(self.micro_usd)
        return InstanceReady(self.id, self.launched_at, rate)

    def end(self) -> InstanceGone | InstanceFailed:
        """What is to be reported of one that is over."""
        ended_at = self.told_by()
        launched_at = ended_at if self.launched_at is None else self.launched_at
        if self.failed is not None:
            return InstanceFailed(self.id, self.failed, self.sold_out, launched_at, ended_at)
        return InstanceGone(self.id, launched_at, ended_at, self.preempted)


@dataclass(slots=True)
class RankNote:
    """One task of a run: where it is and what is known of it."""

    where: str
    #: What the machine is to run (a `TaskSpec` of `agent/protocol.py`); emptied once the run is over.
    spec: dict[str, Any] = field(default_factory=dict)
    started: bool = False
    #: Nothing of it is alive.
    over: bool = False
    #: How it ended, as its supervisor says; None if that was killed, too, or never was.
    exit: Exit | None = None
    #: Seconds of grace it was told to end in, because another task of its gang ended badly.
    told: float | None = None
    #: Checkpoints of the job were brought to its machine.
    supplied: bool = False
    #: Of a run with late values: its machine knows it.
    known: bool = False

    @property
    def went_well(self) -> bool:
        """Whether it ended as it should."""
        return self.exit is not None and self.exit.went_well


@dataclass(slots=True)
class RunNote:
    """One attempt of a job."""

    job: str
    attempt: int
    ranks: list[RankNote]
    checkpoint: bool = False
    #: The first stop it was told, as `verdict` takes it: end, message, grace_s, and at (wall seconds); a
    #: later one can only shorten the grace.
    stop: dict[str, Any] | None = None
    end: dict[str, Any] | None = None
    ended_at: float = 0.0
    #: Its manifest, if that takes values from elsewhere; they are noted nowhere (`late.py`).
    late: str | None = None
    #: Until when its checkpoints may be brought home, wall seconds; None while it is not over.
    home_by: float | None = None

    @property
    def key(self) -> tuple[str, int]:
        """The job's id and the attempt's number."""
        return self.job, self.attempt

    @property
    def started(self) -> bool:
        """Whether every task was started."""
        return bool(self.ranks) and all(rank.started for rank in self.ranks)

    def number(self, rank: RankNote) -> int:
        """A task's place among the others."""
        return next(number for number, one in enumerate(self.ranks) if one is rank)

    def grace(self, rank: RankNote) -> float | None:
        """Seconds of grace a task is to end in; None if it may go on."""
        return rank.told if self.stop is None else float(self.stop["grace_s"])

    def ended(self) -> RunEnded | None:
        """How it ended, once that is settled."""
        if self.end is None:
            return None
        return RunEnded(*self.key, RunEnd(self.end["end"]), self.end["exit_code"], self.end["message"])


def save_machine(notes: Notes, note: MachineNote) -> None:
    """Note a machine."""
    notes.put(note.key, {"key": note.key, **asdict(note)})


def save_run(notes: Notes, note: RunNote) -> None:
    """Note a run."""
    key = f"run/{note.job}/{note.attempt}"
    notes.put(key, {"key": key, **asdict(note)})


def drop_run(notes: Notes, note: RunNote) -> None:
    """Forget a run."""
    notes.drop(f"run/{note.job}/{note.attempt}")


def drop_machine(notes: Notes, note: MachineNote) -> None:
    """Forget a machine."""
    notes.drop(note.key)


def load_machines(notes: Notes) -> dict[str, MachineNote]:
    """Every machine noted, by id."""
    found = [MachineNote(**_body(notes, key)) for key in notes.all_keys("machine/")]
    for note in found:
        note.access = None if note.access is None else Access(**cast("dict[str, Any]", note.access))
        note.at = None if note.at is None else CloudId(**cast("dict[str, Any]", note.at))
    return {note.id: note for note in found}


def load_runs(notes: Notes, now: float) -> dict[tuple[str, int], RunNote]:
    """Every run noted, by job and attempt; `now` is in wall seconds.

    A note that cannot be read is its run's matter, and no other's.
    """
    names = [key.split("/") for key in notes.all_keys("run/")]
    keys = [("/".join(job), int(attempt)) for _, *job, attempt in names if attempt.isdigit()]
    return {(job, attempt): _load_run(notes, job, attempt, now) for job, attempt in keys}


def _load_run(notes: Notes, job: str, attempt: int, now: float) -> RunNote:
    body = None
    try:
        body = _body(notes, f"run/{job}/{attempt}")
        note = _read_run(body)
        if note.key != (job, attempt):
            raise ValueError("it is of another run")
        return note
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        log.error("note-cannot-be-read", job=job, attempt=attempt, error=str(error))
        note = _given_up(job, attempt, body, now)
        save_run(notes, note)
        return note


def _read_run(body: dict[str, Any]) -> RunNote:
    """A run by what was noted of it; an exit that is none counts as none.

    Raises:
        ValueError, TypeError, KeyError, AttributeError, RecursionError: it is no run.
    """
    exits = [exit_of(rank["exit"]) for rank in body["ranks"]]
    bare = [{**rank, "exit": None} for rank in body["ranks"]]
    note = TypeAdapter(RunNote).validate_json(json.dumps({**body, "ranks": bare}), strict=True)
    for rank, exit_ in zip(note.ranks, exits, strict=True):
        rank.exit = exit_
    if note.stop is not None:
        verdict(note.key, [None], note.stop)
    note.ended()
    return note


def _given_up(job: str, attempt: int, body: Any, now: float) -> RunNote:
    """Of a run whose note says nothing else: it is to end where it is, or is lost if nobody knows where."""
    why = "its note cannot be read"
    try:
        places = [str(rank["where"]) for rank in body["ranks"]]
    except (TypeError, KeyError):
        places = []
    if places:
        stop = {"end": RunEnd.LOST.value, "message": why, "grace_s": 0.0, "at": now}
        return RunNote(job, attempt, [RankNote(place) for place in places], stop=stop)
    end = {"end": RunEnd.LOST.value, "exit_code": None, "message": why}
    return RunNote(job, attempt, [], end=end, ended_at=now)


def _body(notes: Notes, key: str) -> dict[str, Any]:
    return {name: value for name, value in notes.get(key).items() if name != "key"}
