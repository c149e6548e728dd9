"""The bus of a config: what its hints may do, and what it is told."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from starburst.app import submitting
from starburst.app.config_bus import BusConfig
from starburst.app.controller import Companion
from starburst.app.errors import UserError
from starburst.app.sources import Source
from starburst.app.views import decision_keys, job_keys
from starburst.bus.hints import Cancel, Hints, Outcome, RefusedError, Submit, Throughput
from starburst.bus.messages import Topics
from starburst.bus.outbox import Outbox
from starburst.core.scheduler import Scheduler
from starburst.domain.job import is_over
from starburst.runs.ports import Report
from starburst.store import queries
from starburst.store.errors import DuplicateJobError
from starburst.store.store import Store


def outbox_of(store: Store, bus: BusConfig) -> Outbox:
    """The decision log as messages: for a broker, and for who listens in this process."""
    return Outbox(store, Topics(bus.cluster), decision=decision_keys, job=job_keys, keep_s=bus.keep)


def bus_of(database: Path, bus: BusConfig, controller: str, scheduler: Scheduler) -> Companion:
    """What goes on beside the scheduler to tell a broker. `controller` is the store's id.

    Raises:
        UserError: what it needs is not installed.
    """
    if find_spec("aiomqtt") is None:
        raise UserError("bus.kind: mqtt: needs the extra: pip install 'starburst-scheduler[mqtt]'")
    from starburst.bus.mqtt import Broker, MqttBus  # noqa: PLC0415 - its needs are an extra

    def path(name: str | None) -> Path | None:
        return None if name is None else Path(name)

    broker = Broker(
        bus.host,
        bus.port or (8883 if bus.tls else 1883),
        client_id=f"starburst-{controller}",
        username=bus.username,
        password_file=path(bus.password_file),
        tls=bus.tls,
        ca=path(bus.ca),
        cert=path(bus.cert),
        key=path(bus.key),
    )

    async def run(report: Report) -> None:
        with Store.open(database) as store:  # of its own: the controller hears of what others write
            hints = hints_of(store, bus, scheduler, report)
            outbox = outbox_of(store, bus)
            await MqttBus(broker, Topics(bus.cluster), outbox, hints=bus.accept, take=hints.take).run()

    return run


def hints_of(store: Store, bus: BusConfig, scheduler: Scheduler, report: Report) -> Hints:
    """Hints that do what the API would, over a connection of their own."""

    def submit(hint: Submit) -> None:
        ends = hint.suffixes()
        source = Source(f"hint {hint.id}", hint.manifest)
        try:
            found = submitting.read_sources(store, [source], hint.user, suffix=lambda: next(ends))
            submitting.submit(store, found)
        except DuplicateJobError:
            raise RefusedError(Outcome.DOUBLED) from None
        except UserError as error:
            raise RefusedError(Outcome.REFUSED, str(error)) from None

    def cancel(hint: Cancel) -> None:
        rows = queries.jobs(store, ids=[hint.job])
        if not rows:
            raise RefusedError(Outcome.REFUSED, f"there is no job {hint.job!r}")
        if all(is_over(row.phase) for row in rows):
            raise RefusedError(Outcome.LATE)
        submitting.cancel(store, rows)

    def throughput(hint: Throughput) -> None:
        if scheduler.current(hint.job, hint.attempt) is None:
            raise RefusedError(Outcome.LATE)
        report(hint.event())

    return Hints(bus.accept, submit=submit, cancel=cancel, throughput=throughput)
