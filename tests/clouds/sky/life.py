"""One life of a SkyCloud over a FakeSky, and what it reported; notes live on, as files do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from starburst.aio import in_thread
from starburst.app.daemon.orphan_ledger import OrphanLedger
from starburst.app.daemon.reaper import Reaper, ReapRules
from starburst.clouds.sky.cloud import SkyCloud
from starburst.clouds.sky.context import SkyClock, SkyContext, SkySettings
from starburst.clouds.sky.journal import FileJournal
from starburst.clouds.sky.network_tier import STANDARD
from starburst.clouds.sky.runs.inputs import RunInputs, ValueSource
from starburst.core.model.actions import Slot
from starburst.core.model.events import Event, InstanceReady, RunEnded
from starburst.domain.clock import Pace
from starburst.domain.cloud import Offer
from starburst.domain.job import Job, Workload
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.runs.ports import Run
from tests.app.virtual import run, wall
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.fake_line import Hook, Line, nothing
from translator.carried import CloudStorage

E = TypeVar("E", bound=Event)
Kind: TypeAlias = "type[E] | tuple[type[E], ...]"

SIZE = Resources.of(4, 32, 244, "V100")
OFFER = Offer("aws/us-east-1/p3.8xlarge", SIZE, Money.of("12.24"), "us-east-1")
SPOT = Offer("aws/us-east-1/p3.8xlarge/spot", SIZE, Money.of("3.67"), "us-east-1", spot=True)


async def _offers() -> list[Offer]:
    return [OFFER, SPOT]


def run_of(job: str, work_s: float, code: int = 0, gpus: int = 1, *where: str, **more: Any) -> Run:
    """A run that works so long on these machines."""
    need = Resources.of(gpus, 1, 1)
    places = where or ("i-1",)
    slots = tuple(Slot(rank, place, need) for rank, place in enumerate(places))
    tasks = (need,) * len(places)
    return Run(Job(job, job, tasks, **more), 1, slots, Workload(("work", str(work_s), str(code))))


@dataclass(slots=True)
class Life:
    """A controller's part: it owns the cloud and hears its reports."""

    sky: FakeSky
    home: Path
    hook: Hook = nothing
    controller: str = "c"
    source: ValueSource | None = None
    stores: Mapping[str, CloudStorage] = field(default_factory=dict)
    own_prices: bool = False
    extra: Money = field(default_factory=Money)
    lease_s: float = 900.0
    launch_limit_s: float = 1800.0
    network_tier: str = STANDARD
    bucket: str | None = None
    #: Machines that have not ended by the store.
    in_books: Sequence[str] = ()
    events: list[Event] = field(default_factory=list)
    cloud: SkyCloud = field(init=False)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _watch: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        line = Line(self.sky, self.hook)
        settings = SkySettings(
            owner="starburst",
            controller=self.controller,
            logs=self.home / "runs",
            checkpoints=self.home / "checkpoints",
            own_prices=self.own_prices,
            extra=self.extra,
            lease_s=self.lease_s,
            launch_limit_s=self.launch_limit_s,
            network_tier=self.network_tier,
            bucket=self.bucket,
        )
        journal, clock = FileJournal(self.home / "notes"), SkyClock(wall, Pace())
        inputs = RunInputs(self.source, self.stores)
        context = SkyContext(line, line, line, journal, clock, settings, inputs)
        self.cloud = SkyCloud(context, _offers, self.in_books)

    def report(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()

    async def __aenter__(self) -> Life:
        self._watch = asyncio.create_task(self.cloud.watch(self.report))
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._watch.cancel()
        with suppress(asyncio.CancelledError):
            await self._watch

    def of(self, kind: Kind[E]) -> list[E]:
        """Reports of a kind, in order, each once."""
        return list(dict.fromkeys(event for event in self.events if isinstance(event, kind)))

    async def heard(self, kind: Kind[E], when: Callable[[E], bool] = lambda _event: True) -> E:
        """The first report of a kind, once it has come."""
        while True:
            for event in self.of(kind):
                if when(event):
                    return event
            self._news.clear()
            news = asyncio.create_task(self._news.wait())
            await asyncio.wait({news, self._watch}, return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
            if self._watch.done():
                self._watch.result()


Story: TypeAlias = "Callable[[Life, FakeSky], Coroutine[Any, Any, None]]"


def play(tmp_path: Path, story: Story, **life: Any) -> None:
    """A story over one life, in virtual time."""

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky")
        async with Life(sky, tmp_path / "home", **life) as one:
            await story(one, sky)

    run(main())


def of(job: str) -> Callable[[RunEnded], bool]:
    """Ends of this job's runs."""
    return lambda event: event.job_id == job


def at(instance_id: str) -> Callable[[InstanceReady], bool]:
    """This machine's."""
    return lambda event: event.instance_id == instance_id


class Drawer:
    """Facts in memory."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}

    def fact(self, key: str) -> Any:
        return self.facts.get(key)

    def set_fact(self, key: str, value: object) -> None:
        self.facts[key] = value


def reaper_of(cloud: SkyCloud, *claimed: str, rules: ReapRules, now: Callable[[], float] = wall) -> Reaper:
    """A reaper over a store that claims these machines."""
    return Reaper(
        cloud,
        rules,
        OrphanLedger(Drawer()),
        claimed=lambda: set(claimed),
        now=now,
        rate=lambda _offer: None,
        in_order=in_thread,
    )


async def ready(life: Life, instance_id: str = "i-1", offer: Offer = OFFER) -> None:
    """Rent a machine and wait until it is up."""
    await life.cloud.launch(instance_id, offer)
    await life.heard(InstanceReady, at(instance_id))
