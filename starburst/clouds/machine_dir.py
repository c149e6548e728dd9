"""One machine of the embedded cloud on disk: a directory with a file per fact.

    <root>/<controller>/<intent>/
        tags.json        its owner, controller and intent
        launch.json      it was rented: when, as what; written once
        failed.json      the launch failed, and why; written once, instead
        lease.json       until when it lives unless the lease is renewed (`runs/supervisor/lease.py`)
        terminate.json   it is being given back
        preempted.json   the cloud takes it away; any process may write this
        ended.json       its bill is closed; written once, last

A file per fact lets another process preempt a machine while its controller renews the lease. Intents are
numbered from one again when a store is lost; the controller's id, which is new then, keeps machines apart.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from starburst.domain.cloud import InstancePhase
from starburst.runs.files import claim_directory, directory_name, id_of, write_json_once
from starburst.runs.supervisor.files import read_fact, read_json, write_json
from starburst.runs.supervisor.lease import lease_left_s, new_lease


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """A machine, or several as one, that was rented; times are seconds of the scheduler's clock."""

    offer: str
    #: Of each machine.
    gpus: int
    launched_at: float
    boot_s: float
    setup_s: float
    nodes: int = 1

    @property
    def ready_at(self) -> float:
        """When it accepts runs."""
        return self.launched_at + self.boot_s + self.setup_s


@dataclass(frozen=True, slots=True)
class LaunchFailure:
    """Why a launch failed."""

    message: str
    sold_out: bool


@dataclass(frozen=True, slots=True)
class ClosedBill:
    """A closed bill, in scheduler time; of a machine that was never rented, both times are the same."""

    launched_at: float
    ended_at: float
    preempted: bool = False


@dataclass(frozen=True, slots=True)
class MachineDir:
    """One machine of the embedded cloud."""

    path: Path

    @classmethod
    def of(cls, root: Path, controller: str, intent: str) -> MachineDir:
        """The directory of a machine, whether it exists or not."""
        return cls(root / directory_name(controller) / directory_name(intent))

    @property
    def intent(self) -> str:
        """The intent under which it was launched."""
        return id_of(self.path)

    @property
    def controller(self) -> str:
        """The controller of that intent."""
        return id_of(self.path.parent)

    def id(self, controller: str) -> str:
        """Its id for this controller: `intent`, or `<its controller>/<intent>` for another's machine."""
        return self.intent if self.controller == controller else f"{self.controller}/{self.intent}"

    @property
    def lease_path(self) -> Path:
        """The file that supervisors of its runs read."""
        return self.path / "lease.json"

    def claim(
        self, tags: dict[str, str], fact: LaunchRecord | LaunchFailure | ClosedBill, lease_s: float = 0.0
    ) -> bool:
        """Create it as rented, failed or ended; False if it exists."""
        files: dict[str, Any] = {"tags.json": tags}
        if isinstance(fact, LaunchRecord):
            files |= {"launch.json": asdict(fact), "lease.json": new_lease(lease_s)}
        else:
            files["failed.json" if isinstance(fact, LaunchFailure) else "ended.json"] = asdict(fact)
        return claim_directory(self.path, files)

    def tags(self) -> dict[str, str]:
        """Its owner, controller and intent; empty if it was removed meanwhile."""
        tags: dict[str, str] | None = read_json(self.path / "tags.json")
        return tags or {}

    def launch(self) -> LaunchRecord | None:
        """How it was rented; None if it never was."""
        data = read_json(self.path / "launch.json")
        return None if data is None else LaunchRecord(**data)

    def failure(self) -> LaunchFailure | None:
        """Why its launch failed; None if it did not."""
        data = read_json(self.path / "failed.json")
        return None if data is None else LaunchFailure(**data)

    def ending(self) -> ClosedBill | None:
        """Its closed bill; None while it is open."""
        data = read_json(self.path / "ended.json")
        return None if data is None else ClosedBill(**data)

    def end(self, ending: ClosedBill) -> None:
        """Close its bill; a bill that is closed stays as it is."""
        write_json_once(self.path / "ended.json", asdict(ending))

    def lease_left_s(self) -> float:
        """Wall seconds until its lease passes; negative once it has."""
        return lease_left_s(read_fact(self.lease_path))

    def lease_until(self) -> float:
        """The end of its lease in epoch seconds, as of the last renewal; 0 if it is unreadable."""
        until = (read_fact(self.lease_path) or {}).get("until")
        return float(until) if isinstance(until, int | float) else 0.0

    def renew(self, lease_s: float) -> None:
        """Extend the lease to `lease_s` from now."""
        write_json(self.lease_path, new_lease(lease_s))

    def ask_termination(self) -> None:
        """Record that it is to be given back."""
        write_json_once(self.path / "terminate.json", {})

    def preempt(self, at: float) -> None:
        """Record that the cloud takes it away, at this scheduler time."""
        write_json_once(self.path / "preempted.json", {"at": at})

    def preempted_at(self) -> float | None:
        """When it was taken away, in scheduler time; None if it was not."""
        data = read_json(self.path / "preempted.json")
        return None if data is None else float(data["at"])

    def is_ending(self) -> bool:
        """Whether it was given back or preempted, or its lease has passed."""
        told = any((self.path / name).exists() for name in ("terminate.json", "preempted.json"))
        return told or self.lease_left_s() <= 0

    def phase(self, now: float) -> InstancePhase | None:
        """Its phase at this scheduler time; None if it was never rented."""
        launch = self.launch()
        if launch is None:
            return None
        if self.ending() is not None:
            return InstancePhase.GONE
        if self.is_ending():
            return InstancePhase.TERMINATING
        return InstancePhase.LAUNCHING if now < launch.ready_at else InstancePhase.READY


def machines_under(root: Path) -> list[MachineDir]:
    """Every machine of the cloud, ended ones included, by controller and intent."""
    return [MachineDir(path) for path in sorted(root.glob("[!.]*/[!.]*/"))]
