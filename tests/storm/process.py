"""One process of the scheduler as `starburst up` builds it; it can be killed at any call and started anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from errno import ENOSPC
from pathlib import Path
from traceback import extract_tb
from typing import Any
from unittest.mock import patch

from starburst.aio import first_of
from starburst.app.config import Config
from starburst.app.config.bus import BusConfig
from starburst.app.config.home import Home
from starburst.app.daemon.controller import Controller
from starburst.app.leadership.election import Election
from starburst.app.leadership.lease import LeaseTerms
from starburst.app.wiring.build import build
from starburst.clouds.sky.cloud import SkyCloud
from starburst.clouds.sky.context import SkyContext, SkySettings
from starburst.clouds.sky.journal import claimed
from starburst.clouds.sky.runs.inputs import RunInputs
from starburst.core.model.actions import Action, StartRun
from starburst.core.model.events import (
    Event,
    InstanceFailed,
    InstanceGone,
    InstanceReady,
    RunEnded,
    RunStarted,
    SiteSynced,
)
from starburst.domain.cloud import Offer
from starburst.domain.job import Site
from starburst.runs.fence import LeaderFence
from starburst.runs.supervisor.files import write_json
from starburst.store.errors import FencedError, UnusableError
from starburst.store.leader import LeaderClaim, epoch_fence
from starburst.store.store import Step, Store
from tests.app.leadership.world import NoHome
from tests.storm.loop import LIFE, KilledError, StormLoop, of_life
from tests.storm.model.broker import ModelBroker, ModelClient
from tests.storm.model.cloud import ModelCloud, offers
from tests.storm.model.cloud_line import ModelLine
from tests.storm.model.cluster import ModelApi, ModelCluster
from tests.storm.storm_store import DISK, StormStore
from tests.storm.weather import Weather

#: Reports that a site may repeat.
TWICE = (RunStarted, RunEnded, InstanceReady, InstanceGone, InstanceFailed)
#: What is asked for in place of an action that was given up.
UNDONE_BY = {"start": "stop", "launch": "terminate"}
#: Forty times the real terms of the leader's lease and more: a renewal is a write.
TERMS = LeaseTerms(360.0, 240.0, 110.0, 90.0)
#: Faults with which a scheduler may find that its store cannot be used.
UNUSABLE = {*DISK, "disk-away", "fsync-fails", "power-lost", "restored", "leader-stopped"}
#: Failures after which a run is broken off.
HOPELESS = 3
#: Bytes of the header of SQLite's write-ahead log, and of a frame of it: a page with its own header.
WAL_HEADER, WAL_FRAME = 32, 24 + 4096


class StormElection(Election):
    """Its rounds are made in the loop in place of a thread."""

    def start(self) -> None:
        """See `Election`."""
        self.round()
        self._rounds = asyncio.create_task(self._go_round())

    async def _go_round(self) -> None:
        while not self.lost:
            await asyncio.sleep(self.pause_s())
            self.round()

    def close(self) -> None:
        """See `Election`."""
        self._rounds.cancel()
        super().close()


class StormController(Controller):
    """Its sites say some things late, or twice, and what was carried out is noted."""

    weather: Weather
    #: Keys of actions that a site took.
    carried_out: set[str]

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._synced: set[Site] = set()
        call = self._performer._call

        async def noted(action: Action) -> None:
            await call(action)
            self.carried_out.add(action.key)

        is_listed = self._performer._is_listed

        async def dropped(start: StartRun, tried: asyncio.Event) -> bool:
            """A start that waits for the cluster's listing is dropped for its stop, which comes next."""
            listed = await is_listed(start, tried)
            if not listed:
                self.carried_out.add(start.key)
            return listed

        self._performer._call = noted  # type: ignore[method-assign]
        self._performer._is_listed = dropped  # type: ignore[method-assign]

    def _report(self, event: Event) -> None:
        if isinstance(event, RunEnded):  # it need not be started any more
            self.carried_out.add(f"start/{event.job_id}/{event.attempt}")
        if isinstance(event, SiteSynced):
            self._synced.add(event.site)
            for job_id, attempt in self.scheduler.state.unconfirmed_runs - event.known:
                record = self.scheduler.state.current(job_id, attempt)
                if record is not None and record.site is event.site:  # nor is one that waits for this listing
                    self.carried_out.add(f"start/{job_id}/{attempt}")
        # What comes before `SiteSynced` is part of the first listing.
        if isinstance(event, TWICE) and len(self._synced) == len(Site):
            if self.weather.strikes("report-late", type(event).__name__):
                self._report_later(event, 300.0, "report-late")
                return
            if self.weather.strikes("report-doubled", type(event).__name__):
                self._report_later(event, 7200.0, "report-doubled")
        super()._report(event)

    def _report_later(self, event: Event, most_s: float, fault: str) -> None:
        later_s = self.weather.draw(fault).uniform(0.0, most_s)
        asyncio.get_running_loop().call_later(later_s, super()._report, event)


class SchedulerProcess:
    """Lives of the schedulers on one home: of one, or of two of which one leads.

    What ends a life but a kill or a lost lead is noted in `failures`.
    """

    def __init__(
        self, loop: StormLoop, home: Home, config: Config, cluster: ModelCluster, cloud: ModelCloud
    ) -> None:
        self._loop = loop
        self.home, self.config = home, config
        self._cluster, self._cloud = cluster, cloud
        self.weather: Weather = cluster.weather
        self.broker = ModelBroker(self.weather)
        #: How many there are to be at a time.
        self.replicas = 2 if any(name.startswith("leader-") for name in self.weather.on) else 1
        #: The life that leads, or did last.
        self.leading = 0
        cluster.marks.may_act = self._may_act
        self.failures: list[str] = []
        #: What SQLite says of every write, and "" as long as the disk is there.
        self.disk_says = ""
        #: Actions that a site took, in any life, and those that were marked as done without that.
        self.carried_out: set[str] = set()
        self.never_done: list[str] = []
        #: Done when it has failed so often that nothing more can come of the run.
        self.hopeless: asyncio.Future[None] = loop.create_future()
        #: Told of each step that was stored.
        self.heard: Callable[[Step], None] = lambda _step: None
        self.controller: Controller | None = None
        #: The lives that were not killed, and what each has open.
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._stores: dict[int, list[Store]] = {}
        #: What the dead hold: collected now it would run their `finally` blocks.
        self._graves: list[object] = []

    @property
    def is_up(self) -> bool:
        """Whether one leads, as far as can be seen."""
        return self._lives(self.leading)

    @property
    def is_short(self) -> bool:
        """Whether there are fewer than there are to be."""
        return sum(map(self._lives, self._tasks)) < self.replicas

    def _lives(self, life: int) -> bool:
        return life in self._tasks and not self._tasks[life].done() and not self._loop.is_dead(life)

    def start(self) -> None:
        """As many new lives as there are to be."""
        for life in [life for life in self._tasks if not self._lives(life)]:
            self._bury(life)
        while self.is_short:
            self._loop.lives = life = self._loop.lives + 1
            if self.replicas == 1:
                self.leading = life
            self._tasks[life] = of_life(life, lambda: self._loop.create_task(self._live(LIFE.get())))

    def kill(self) -> None:
        """SIGKILL of all of them, or the machine's power."""
        for life in list(self._tasks):
            self._bury(life)

    @property
    def lives(self) -> list[int]:
        """Those that were not killed."""
        return [life for life in self._tasks if self._lives(life)]

    def kill_leader(self) -> None:
        """SIGKILL of the one that leads."""
        self._bury(self.leading)

    def _bury(self, life: int) -> None:
        self._loop.kill(life)
        self._graves += [self._tasks.pop(life, None), *self._loop.tasks_of(life)]
        stores = self._stores.pop(life, [])
        self.let_go(stores)
        self._graves += stores

    @staticmethod
    def let_go(stores: Sequence[Store]) -> None:
        """Close what they have open; they open it again when they are asked."""
        for store in stores:
            store._asks.close()
            store._readers.dispose()
            store._engine.dispose()

    def lose_power(self, others: Sequence[Store]) -> bool:
        """The machine is off in the middle of a write: what was synced is there, and half of a page after it.

        `others` have the store open, too. Whether there was anything to tear.
        """
        database = self.home.database
        log = database.with_name(f"{database.name}-wal")
        synced = {path: path.read_bytes() for path in (database, log) if path.exists()}
        self.kill()
        self.let_go(others)
        if (
            log.exists() or len(synced.get(log, b"")) <= WAL_HEADER
        ):  # somebody still has it open, or it is empty
            return False
        page = synced[log][-WAL_FRAME:]
        for path, body in synced.items():
            path.write_bytes(body)
        with log.open("ab") as torn:
            torn.write(page[: WAL_FRAME // 2] + bytes(WAL_FRAME // 2))
        return True

    def may_die(self, fault: str, subject: str = "") -> None:
        """Die here, if that is drawn.

        Raises:
            KilledError: it is dead.
        """
        life = LIFE.get()
        if life in self._tasks and self.weather.strikes(fault, subject):
            self._loop.kill(life)
            raise KilledError

    def settled(self, key: str) -> None:
        """An action is about to be marked as done: a site took it, or its opposite if it was given up."""
        kind, _, subject = key.partition("/")
        opposite = f"{UNDONE_BY[kind]}/{subject}" if kind in UNDONE_BY else key
        if kind != "prepare" and not {key, opposite} & self.carried_out:
            self.never_done.append(f"{key}: marked as done, and no site was ever asked for it")

    def committed(self, step: Step) -> None:
        """A step is stored."""
        if not self._may_act():
            self.failures.append(f"a step is stored by one that leads no longer, at {step.now:.0f} s")
        self.heard(step)

    def _may_act(self) -> bool:
        """Whether nobody else has taken the lead from the caller."""
        return LIFE.get() in (0, self.leading)

    async def _live(self, life: int) -> None:
        try:
            store = StormStore.open(self.home.database, 1000)
            assert isinstance(store, StormStore)
            self._stores.setdefault(life, []).append(store)
            store.join(self)
            try:
                if self.replicas == 1:
                    self.controller = controller = build(self.home, self._told(), store)
                    await controller.run(asyncio.Event())
                else:
                    await self._compete(life, store)
            except FencedError:  # `up` says so and ends; it is started again
                return
            except UnusableError as error:
                if not self.weather.on & UNUSABLE:
                    self.failures.append(f"the store cannot be used: {error}")
                return
        except Exception as error:  # whatever it is: up would have ended
            where = "; ".join(
                f"{Path(at.filename).name}:{at.lineno}" for at in extract_tb(error.__traceback__)[-4:]
            )
            self.failures.append(f"the scheduler ended by itself: {error!r} at {where}"[:2000])
            if len(self.failures) >= HOPELESS and not self.hopeless.done():
                self.hopeless.set_result(None)

    async def _compete(self, life: int, store: StormStore) -> None:
        """What `up --standby` does."""
        election = StormElection(
            lambda: self._opened(life), LeaderClaim(f"replica/{life}"), NoHome(), terms=TERMS
        )
        election.start()
        try:
            await election.led(patient=True)
            store.fence = epoch_fence(election.epoch)
            controller = build(self.home, self._told(), store, election=election)
            self.controller, self.leading = controller, life
            with election.leading():
                await first_of({"scheduler": controller.run(asyncio.Event()), "leader": election.over()})
        finally:
            election.close()

    def _told(self) -> Config:
        """The config, with a bus where a broker can fail."""
        heard = any(name.startswith("broker-") for name in self.weather.on)
        bus = BusConfig(kind="mqtt" if heard else "in-process")
        return self.config.model_copy(update={"bus": bus})

    def _opened(self, life: int) -> Store:
        store = Store.open(self.home.database, 1000)
        self._stores.setdefault(life, []).append(store)
        return store

    @contextmanager
    def models(self) -> Iterator[None]:
        """Until the end of the block, what is built is connected to the cluster and the cloud of the run."""

        async def price_list() -> list[Offer]:
            cloud = self._cloud
            return [offer for offer in offers(cloud.prices) if offer.name not in cloud.withdrawn]

        async def connect(_config: object, fence: LeaderFence) -> ModelApi:
            return ModelApi(self._cluster, fence)

        def sky_cloud(config: Any, home: Home, checkpoints: Path, **more: Any) -> SkyCloud:
            line = ModelLine(self._cloud)
            line.fence = more["fence"]
            settings = SkySettings(
                owner="starburst",
                controller=more["controller"],
                logs=home.cloud / "runs",
                checkpoints=checkpoints,
                lease_s=config.lease,
                idle_minutes=config.idle_minutes,
                launch_limit_s=config.launch_limit,
                max_log=more["max_log"],
            )
            (home.cloud / "sky").mkdir(parents=True, exist_ok=True)
            journal = claimed(home.cloud / "sky", line.fence)
            inputs = RunInputs(None, more["inputs"].stores)
            return SkyCloud(
                SkyContext(line, line, line, journal, more["clock"], settings, inputs, line.fence.certain),
                price_list,
                more["in_books"],
            )

        outer = self
        broker = self.broker

        def write(path: Path, value: object) -> None:
            if outer.disk_says:
                raise OSError(ENOSPC, "No space left on device", str(path))
            write_json(path, value)

        class Tracked(Store):
            @classmethod
            def open(cls, where: Any, busy_ms: int | None = None) -> Store:
                store = Store.open(where, busy_ms)
                outer._stores.setdefault(LIFE.get(), []).append(store)
                return store

        class Doubting(StormController):
            weather = outer.weather
            carried_out = outer.carried_out

        with ExitStack() as stack:
            for name, value in (
                ("starburst.app.wiring.build.connect", connect),
                ("starburst.clouds.sky.journal.write_json", write),
                ("starburst.app.wiring.sky.sky_cloud", sky_cloud),
                ("starburst.app.wiring.build.Store", Tracked),
                ("starburst.app.wiring.bus.Store", Tracked),
                ("starburst.bus.mqtt.MqttBus._client", lambda _bus: ModelClient(broker)),
                ("starburst.app.wiring.build.Controller", Doubting),
            ):
                stack.enter_context(patch(name, value))
            yield
