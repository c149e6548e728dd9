"""Assembles the bus from the config: the outbox, the MQTT connection and the handler of hints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from starburst.app.config.bus import BusConfig
from starburst.app.daemon.controller import Companion
from starburst.app.daemon.progress_inbox import GangProgress
from starburst.app.errors import UserError
from starburst.app.jobs import submitting
from starburst.app.jobs.job_keys import decision_keys, job_keys
from starburst.app.reading.sources import ManifestText
from starburst.app.reading.workers import shared
from starburst.bus.hints import (
    CancelHint,
    HeartbeatHint,
    HintOutcome,
    HintRefusedError,
    Hints,
    SubmitHint,
    ThroughputHint,
)
from starburst.bus.messages import Topics
from starburst.bus.outbox import Outbox
from starburst.core.model.jobs import JobRecord
from starburst.core.parts.instance_record import OPEN_PHASES, InstanceRecord
from starburst.core.scheduler import Scheduler
from starburst.domain.cloud import InstancePhase
from starburst.domain.job import Phase, Site, is_over
from starburst.runs.ports import Report, RunSite
from starburst.store.errors import DuplicateJobError
from starburst.store.listings import queries
from starburst.store.quota import QuotaError
from starburst.store.store import Store


def outbox_of(store: Store, bus: BusConfig) -> Outbox:
    """The decision log as messages, for a broker or for listeners in this process."""
    return Outbox(store, Topics(bus.cluster), decision=decision_keys, job=job_keys, keep_s=bus.keep)


def bus_of(
    database: Path | str, bus: BusConfig, leading: Store, scheduler: Scheduler, sites: Mapping[Site, RunSite]
) -> Companion:
    """The companion that publishes to a broker and receives hints. `leading` is the scheduler's store, which
    `database` is opened as once more.

    Raises:
        UserError: the extra is not installed.
    """
    if find_spec("aiomqtt") is None:
        raise UserError("bus.kind: mqtt: needs the extra: pip install 'starburst-hybrid[mqtt]'")
    from starburst.bus.mqtt import Broker, MqttBus  # noqa: PLC0415 - an optional dependency

    def path(name: str | None) -> Path | None:
        return None if name is None else Path(name)

    broker = Broker(
        bus.host,
        bus.port or (8883 if bus.tls else 1883),
        client_id=f"starburst-{leading.fact('controller')}",
        username=bus.username,
        password_file=path(bus.password_file),
        tls=bus.tls,
        ca=path(bus.ca),
        cert=path(bus.cert),
        key=path(bus.key),
    )

    async def run(report: Report) -> None:
        with Store.open(database) as store:  # the controller notices only writes of other connections
            store.fence = leading.fence
            hints = hints_of(store, bus, scheduler, report, sites)
            outbox, topics = outbox_of(store, bus), Topics(bus.cluster)
            await MqttBus(broker, topics, outbox, hints=_heard(topics, bus), take=hints.take).run()

    return run


def _heard(topics: Topics, bus: BusConfig) -> list[str]:
    """The topics to subscribe to, by the config's accepted kinds of hints."""
    users = ["+", None] if bus.anybody else ["+"]
    return [topics.hint(kind, user) for kind in bus.accept for user in users]


def hints_of(
    store: Store, bus: BusConfig, scheduler: Scheduler, report: Report, sites: Mapping[Site, RunSite]
) -> Hints:
    """Hints that act on `store`, a connection of their own, as the API would."""
    return Hints(
        bus.accept,
        StoreHintHandler(store, scheduler, GangProgress(scheduler, report), sites),
        anybody=bus.anybody,
    )


@dataclass(frozen=True, slots=True)
class StoreHintHandler:
    """Executes hints by the store's requests and the scheduler's state."""

    store: Store
    scheduler: Scheduler
    tasks: GangProgress
    sites: Mapping[Site, RunSite]

    def submit(self, hint: SubmitHint, user: str | None) -> None:
        if user is not None and hint.user not in ("", user):
            raise HintRefusedError(HintOutcome.REFUSED, f"user: {hint.user!r}: this is the topic of {user!r}")
        source = ManifestText(f"hint {hint.id}", hint.manifest)
        try:
            found = submitting.read_sources(
                self.store,
                [source],
                user or hint.user,
                seed=hint.seed(user),
                read=shared().read,
            )
            submitting.submit(self.store, found)
        except DuplicateJobError:
            raise HintRefusedError(HintOutcome.DOUBLED) from None
        except (UserError, QuotaError) as error:
            raise HintRefusedError(HintOutcome.REFUSED, str(error)) from None

    def cancel(self, hint: CancelHint, user: str | None) -> None:
        rows = queries.jobs(self.store, ids=[hint.job])
        if not rows:
            raise HintRefusedError(HintOutcome.REFUSED, f"there is no job {hint.job!r}")
        _refuse_others(user, (row.user for row in rows))
        if all(is_over(row.phase) for row in rows):
            raise HintRefusedError(HintOutcome.LATE)
        submitting.cancel(self.store, rows, by=user or "")

    def throughput(self, hint: ThroughputHint, user: str | None) -> None:
        self._running(hint.job, hint.attempt, user)
        self.tasks.hear(hint)

    def heartbeat(self, hint: HeartbeatHint, user: str | None) -> None:
        """Poll the site at once if the run still counts as starting, or an instance as launching or
        unreachable.
        """
        fleet = self.scheduler.state.fleet.instances
        if hint.instance:
            machine = fleet.get(hint.instance)
            if machine is None or machine.phase not in OPEN_PHASES:
                raise HintRefusedError(HintOutcome.LATE)
            _refuse_others(user, (self.scheduler.state.jobs[job].job.user for job in machine.job_ids))
            site: Site | None = Site.CLOUD
            doubted = _is_doubted(machine)
        else:
            record = self._running(hint.job, hint.attempt, user)
            machines = [fleet[slot.where] for slot in record.slots if slot.where in fleet]
            site, doubted = record.site, record.phase is Phase.STARTING or any(map(_is_doubted, machines))
        if site is not None and doubted:
            self.sites[site].nudge()

    def _running(self, job: str, attempt: int, user: str | None) -> JobRecord:
        record = self.scheduler.state.current(job, attempt)
        if record is None:
            raise HintRefusedError(HintOutcome.LATE)
        _refuse_others(user, [record.job.user])
        return record


def _is_doubted(machine: InstanceRecord) -> bool:
    return machine.phase is InstancePhase.LAUNCHING or machine.unreachable_since is not None


def _refuse_others(user: str | None, owners: Iterable[str]) -> None:
    """Refuse a hint if the user owns none of the jobs; None owns all."""
    if user is not None and user not in owners:
        raise HintRefusedError(HintOutcome.REFUSED, f"it is not {user!r}'s")
