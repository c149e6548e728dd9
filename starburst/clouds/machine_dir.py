"""What the embedded cloud knows of one machine: a directory with a file per fact.

    <root>/<controller>/<intent>/
        tags.json        whose it is, and the intent it was made under
        launch.json      it was rented: when, as what; written once
        failed.json      or the launch came to nothing, and why; written once, instead
        lease.json       until when it lives unless the lease is renewed: on the clock of this boot, which
                         nobody sets; a machine that was booted since goes by the wall's
        terminate.json   it is being given back
        preempted.json   the cloud takes it away; any process may write this
        ended.json       its bill is closed; written once, last

A file per fact lets another process preempt a machine while its controller renews the lease. Intents are
numbered anew when a store is lost; its id, which the new one does not have, keeps their machines apart.
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
    """What a machine was rented as; `launched_at`, `boot_s` and `setup_s` are the scheduler's seconds."""

    offer: str
    gpus: int
    launched_at: float
    boot_s: float
    setup_s: float

    @property
    def ready_at(self) -> float:
        """When it takes jobs."""
        return self.launched_at + self.boot_s + self.setup_s


@dataclass(frozen=True, slots=True)
class LaunchFailure:
    """Why no machine came of a launch."""

    message: str
    sold_out: bool


@dataclass(frozen=True, slots=True)
class ClosedBill:
    """A closed bill, in scheduler time. One of a machine that never was has no time between its ends."""

    launched_at: float
    ended_at: float
    preempted: bool = False


@dataclass(frozen=True, slots=True)
class MachineDir:
    """One machine of the embedded cloud."""

    path: Path

    @classmethod
    def of(cls, root: Path, controller: str, intent: str) -> MachineDir:
        """Where a machine is, or would be."""
        return cls(root / directory_name(controller) / directory_name(intent))

    @property
    def intent(self) -> str:
        """The intent it was launched under."""
        return id_of(self.path)

    @property
    def controller(self) -> str:
        """Whose intent that was."""
        return id_of(self.path.parent)

    def id(self, controller: str) -> str:
        """What this controller calls it."""
        return self.intent if self.controller == controller else f"{self.controller}/{self.intent}"

    @property
    def lease_path(self) -> Path:
        """The file its shims look at."""
        return self.path / "lease.json"

    def claim(
        self, tags: dict[str, str], fact: LaunchRecord | LaunchFailure | ClosedBill, lease_s: float = 0.0
    ) -> bool:
        """Take its name with what became of it: rented, failed, or not to be. False if the name is taken."""
        files: dict[str, Any] = {"tags.json": tags}
        if isinstance(fact, LaunchRecord):
            files |= {"launch.json": asdict(fact), "lease.json": new_lease(lease_s)}
        else:
            files["failed.json" if isinstance(fact, LaunchFailure) else "ended.json"] = asdict(fact)
        return claim_directory(self.path, files)

    def tags(self) -> dict[str, str]:
        """Its owner, controller and intent; nothing if it was removed just now."""
        tags: dict[str, str] | None = read_json(self.path / "tags.json")
        return tags or {}

    def launch(self) -> LaunchRecord | None:
        """What it was rented as; None where no machine ever was."""
        data = read_json(self.path / "launch.json")
        return None if data is None else LaunchRecord(**data)

    def failure(self) -> LaunchFailure | None:
        """Why its launch failed."""
        data = read_json(self.path / "failed.json")
        return None if data is None else LaunchFailure(**data)

    def ending(self) -> ClosedBill | None:
        """Its closed bill."""
        data = read_json(self.path / "ended.json")
        return None if data is None else ClosedBill(**data)

    def end(self, ending: ClosedBill) -> None:
        """Close its bill, for good."""
        write_json_once(self.path / "ended.json", asdict(ending))

    def lease_left_s(self) -> float:
        """Wall seconds until it ends by itself; less than nothing once that is past."""
        return lease_left_s(read_fact(self.lease_path))

    def lease_until(self) -> float:
        """The wall time of that, as it was noted when the lease was renewed."""
        until = (read_fact(self.lease_path) or {}).get("until")
        return float(until) if isinstance(until, int | float) else 0.0

    def renew(self, lease_s: float) -> None:
        """Put that off until then."""
        write_json(self.lease_path, new_lease(lease_s))

    def ask_termination(self) -> None:
        """Note that it is to be given back."""
        write_json_once(self.path / "terminate.json", {})

    def preempt(self, at: float) -> None:
        """Take it away, at this scheduler time."""
        write_json_once(self.path / "preempted.json", {"at": at})

    def preempted_at(self) -> float | None:
        """When it was taken away, in scheduler time."""
        data = read_json(self.path / "preempted.json")
        return None if data is None else float(data["at"])

    def is_ending(self) -> bool:
        """Whether a rented machine is on its way out."""
        told = any((self.path / name).exists() for name in ("terminate.json", "preempted.json"))
        return told or self.lease_left_s() <= 0

    def phase(self, now: float) -> InstancePhase | None:
        """How it stands at this scheduler time; None where no machine ever was."""
        launch = self.launch()
        if launch is None:
            return None
        if self.ending() is not None:
            return InstancePhase.GONE
        if self.is_ending():
            return InstancePhase.TERMINATING
        return InstancePhase.LAUNCHING if now < launch.ready_at else InstancePhase.READY


def machines_under(root: Path) -> list[MachineDir]:
    """Every machine there is or was, by controller and intent."""
    return [MachineDir(path) for path in sorted(root.glob("[!.]*/[!.]*/"))]
