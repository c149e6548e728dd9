"""Assembles the controller and its sites from home, config and store."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from starburst.app.config import Config
from starburst.app.config.caps import caps_of
from starburst.app.config.home import Home
from starburst.app.config.notify import NotifyRule
from starburst.app.config.sites import CloudSection, KubernetesConfig, LocalClusterConfig, SkyConfig
from starburst.app.daemon.controller import Companion, Controller, Surroundings
from starburst.app.daemon.cron_ticker import CronTicker
from starburst.app.daemon.home_lock import HomeLock
from starburst.app.daemon.home_watch import keep_watch, watch_home
from starburst.app.daemon.observers import StepObserver, StepTimes
from starburst.app.daemon.progress_inbox import ProgressInbox, inbox_of, reporting, together
from starburst.app.daemon.prune import prune
from starburst.app.daemon.reaper import ReapRules
from starburst.app.daemon.retention import keep_small, kept_s
from starburst.app.daemon.shortages import ShortageRetry
from starburst.app.daemon.wall_clock import scheduler_clock, steady_wall
from starburst.app.errors import UserError
from starburst.app.jobs.caps_view import open_books
from starburst.app.jobs.intake import JobIntake
from starburst.app.leadership.election import Election
from starburst.app.notices.notifier import Notifier
from starburst.app.notices.senders import deliver
from starburst.app.reading.adopted import object_reader
from starburst.app.wiring.kube_client import connect, need_kubernetes
from starburst.app.wiring.resuming import resume
from starburst.app.wiring.stored import intake_rules
from starburst.app.wiring.tracing import tracing_of
from starburst.clouds.local import LocalCloud
from starburst.clusters.local import LocalCluster
from starburst.core.scheduler import Scheduler
from starburst.domain.clock import Pace
from starburst.domain.cloud import Offer
from starburst.domain.job import Site
from starburst.runs.fence import NO_FENCE, LeaderFence
from starburst.runs.ports import Cloud, Cluster, Report, Run, RunSite
from starburst.runs.processes import ProcessRunner
from starburst.store.listings import queries
from starburst.store.store import Store
from translator.manifests.tenancy import Tenancy, rule
from translator.tasks.runtime_values import UnresolvedError

if TYPE_CHECKING:
    from starburst.clouds.sky.runs.inputs import ValueSource
    from starburst.clusters.kubernetes.leadership import LeaseOptions


#: Longest wait of the scheduler's event loop for another writer, milliseconds; then it tries again later.
BUSY_MS = 1_000


def build(
    home: Home,
    config: Config,
    store: Store,
    *,
    observers: Sequence[StepObserver] = (),
    inbox: ProgressInbox | None = None,
    held: HomeLock | None = None,
    election: Election | None = None,
    resumed: Scheduler | None = None,
) -> Controller:
    """A controller that goes on from the store. The config is stored too, for the other commands.

    Progress in `inbox` is reported while it runs. `held`, this process's lock of the home, shows shortages to
    others. `election`: what it leads by; None if it is alone. `resumed`: what `resume` has loaded elsewhere.

    Raises:
        UserError: an extra that the config needs is not installed, or jobs live on a cluster of another kind.
    """
    scheduler = resume(config.settings(), store) if resumed is None else resumed
    _refuse_to_leave_behind(store, scheduler, config)
    open_books(store, scheduler, max(scheduler.state.now, queries.pace(store).scheduler_time(time.time())))
    store.set_fact("config", config.model_dump(mode="json", exclude={"store", "notify", "smtp"}))
    pace = _pace(store, config)
    wall = steady_wall(pace.wall_time(scheduler.state.now))

    async def forget(jobs: Collection[str], machines: Collection[str]) -> None:
        if config.home.keep:
            await prune(home, time.time() - config.home.keep, jobs, machines)

    now, fence = _now(scheduler, pace, wall), NO_FENCE if election is None else election.fence
    scheduler_time = scheduler_clock(now, pace.speed)
    cluster = _cluster(home, config, store, scheduler, scheduler_time, held=held, election=election)
    cloud = cloud_of(home, config, store, pace, now, fence=fence)
    patience = ShortageRetry() if held is None else ShortageRetry(held.tell)
    beside = [
        _bus(home, config, store, scheduler, {Site.CLUSTER: cluster, Site.CLOUD: cloud}),
        None if inbox is None else inbox_of(inbox, scheduler),
        None if held is None else _watch_over(held, home, patience),
        _cron(home, config, store, steady_wall()),
        _notices(home, config, store),
        _retention(store, config, pace, patience),
    ]
    return Controller(
        store,
        scheduler,
        cluster,
        cloud,
        pace,
        wall=wall,
        patience=patience,
        around=Surroundings(
            reaping=reaping(config, store),
            prune=forget,
            companion=together(beside, patience),
            observers=[StepTimes(store), *tracing_of(config, store, pace), *observers],
            validates=config.debug.validates,
            fence=fence,
        ),
    )


def _retention(store: Store, config: Config, pace: Pace, patience: ShortageRetry) -> Companion | None:
    keep_s = kept_s(config, pace.speed)
    if not keep_s:
        return None

    async def run(_report: Report) -> None:
        await keep_small(store, lambda: pace.scheduler_time(time.time() - keep_s), patience)

    return run


def _cron(home: Home, config: Config, leading: Store, wall: Callable[[], float]) -> Companion:
    async def run(report: Report) -> None:
        with Store.open(home.store, BUSY_MS) as store:
            store.fence = leading.fence
            await CronTicker(store, wall, config.limits.quota(config.queues)).run(report)

    return run


def _notices(home: Home, config: Config, leading: Store) -> Companion | None:
    if not config.notify:
        return None

    async def run(_report: Report) -> None:
        with Store.open(home.store, BUSY_MS) as store:
            store.fence = leading.fence
            deliver_by = partial(_delivered, config)
            await Notifier(store, config.notify, caps_of(config.caps), deliver_by).run()

    return run


async def _delivered(config: Config, rule: NotifyRule, text: str) -> bool:
    return await deliver(rule, config.smtp, text)


def _watch_over(held: HomeLock, home: Home, patience: ShortageRetry) -> Companion:
    if isinstance(home.store, str):

        async def look(_report: Report) -> None:
            await watch_home(held, home.root, patience)

        return look
    there = home.database.stat()

    async def run(_report: Report) -> None:
        await keep_watch(held, home.database, there, patience)

    return run


def cloud_of(
    home: Home,
    config: Config,
    store: Store,
    pace: Pace,
    now: Callable[[], float],
    *,
    fence: LeaderFence = NO_FENCE,
) -> Cloud:
    """The cloud of a config; its instances are tagged with this store's controller id.

    Raises:
        UserError: an extra that the config needs is not installed, or a catalog cannot be read.
    """
    if isinstance(config.cloud, SkyConfig):
        from starburst.app.wiring.sky import sky_cloud  # noqa: PLC0415 - an optional dependency
        from starburst.clouds.sky.context import SkyClock  # noqa: PLC0415
        from starburst.clouds.sky.runs.inputs import RunInputs  # noqa: PLC0415

        return sky_cloud(
            config.cloud,
            home,
            checkpoints_of(home, config),
            clock=SkyClock(now, pace),
            controller=_controller_id(store),
            max_log=config.home.max_log,
            inputs=RunInputs(values_of(config), config.stores(), partial(_admit, config.tenancy())),
            in_books=[machine.id for machine in queries.instance_records(store)],
            fence=fence,
        )
    run_as = config.on_this_machine().get("cloud", config.cloud).runs_as(home)
    return LocalCloud(
        config.cloud.catalog(),
        home.cloud,
        ProcessRunner(
            home.cloud / "runs",
            checkpoints_of(home, config),
            Site.CLOUD,
            run_as=run_as,
            max_log=config.home.max_log,
            scheduler_time=scheduler_clock(now, pace.speed),
        ),
        pace=pace,
        now=now,
        lease_s=config.cloud.lease,
        owner="starburst",
        controller=_controller_id(store),
    )


def values_of(config: Config) -> ValueSource | None:
    """A reader of ConfigMaps and Secrets for offloaded jobs; None without a Kubernetes cluster."""
    chosen = config.cluster
    if not isinstance(chosen, KubernetesConfig):
        return None
    need_kubernetes()
    from starburst.clusters.kubernetes.config_data import ClusterValues  # noqa: PLC0415 - an optional dependency

    return ClusterValues(lambda: connect(chosen), chosen.namespace)


def _admit(tenancy: Tenancy | None, run: Run) -> None:
    """Check an offloaded job's manifest against the present tenancy rules; adopted jobs are not checked.

    Raises:
        UnresolvedError: its submitter lacks a right.
    """
    workload = run.workload
    if tenancy is None or workload.manifest is None or workload.adopted is not None:
        return
    ruling = rule(tenancy, json.loads(workload.manifest), run.job.queue, workload.submitter, leaves=True)
    if ruling.errors:
        raise UnresolvedError("; ".join(error.line for error in ruling.errors))


def checkpoints_of(home: Home, config: Config) -> Path:
    """The directory for checkpoints fetched from the cloud: the cluster's own volume if mounted here."""
    here = config.cluster.checkpoints_here if isinstance(config.cluster, KubernetesConfig) else None
    return home.checkpoints if here is None else Path(here)


def offers_of(cloud: CloudSection) -> tuple[Offer, ...]:
    """The offers of a cloud.

    Raises:
        UserError: the extra that reads them is not installed, or a catalog cannot be read.
    """
    if isinstance(cloud, SkyConfig):
        from starburst.app.wiring.sky import sky_offers  # noqa: PLC0415 - an optional dependency

        return tuple(sky_offers(cloud))
    return cloud.known_offers()


def reaping(config: Config, store: Store) -> ReapRules:
    """The reaper's rules of a config."""
    return ReapRules(_controller_id(store), config.cloud.reap_after, config.cloud.reap_others)


def _refuse_to_leave_behind(store: Store, scheduler: Scheduler, config: Config) -> None:
    """Refuse a change of the cluster's kind while jobs live on the previous cluster: the new one would not
    report their runs, which would then count as lost and be started a second time.

    Raises:
        UserError: jobs live there.
    """
    kind, last = config.cluster.kind, (store.fact("config") or {}).get("cluster", {}).get("kind", "local")
    if kind == last:
        return
    running = {job.id for job in scheduler.state.jobs.values() if job.alive and job.site is Site.CLUSTER}
    left = running | queries.adopted(store).keys()
    if left:
        raise UserError(
            f"cluster.kind: {kind}: {len(left)} of this home's jobs live on its {last} cluster, such as "
            f"{min(left)}; start with that config, cancel them there, or set STARBURST_HOME to another home"
        )


def _cluster(
    home: Home,
    config: Config,
    store: Store,
    scheduler: Scheduler,
    scheduler_time: Callable[[float], float],
    *,
    held: HomeLock | None,
    election: Election | None,
) -> Cluster:
    chosen, tenancy = config.cluster, config.tenancy()
    if isinstance(chosen, LocalClusterConfig):
        return LocalCluster(
            chosen.known_nodes(),
            home.cluster,
            home.checkpoints,
            run_as=chosen.runs_as(home),
            max_log=config.home.max_log,
            scheduler_time=scheduler_time,
        )
    need_kubernetes()
    assert tenancy is not None  # set for every Kubernetes cluster
    from starburst.clusters.kubernetes.cluster import KubernetesCluster  # noqa: PLC0415 - an optional dependency
    from starburst.clusters.kubernetes.options import ClusterOptions  # noqa: PLC0415 - an optional dependency
    from starburst.clusters.kubernetes.runs.stalls import StartLimits  # noqa: PLC0415 - an optional dependency

    intake, fence = Store.open(home.store, BUSY_MS), NO_FENCE if election is None else election.fence
    intake.fence = store.fence
    controller = _controller_id(store)
    shared = controller if election is not None and election.shared else None
    return KubernetesCluster(
        lambda: connect(chosen, fence),
        JobIntake(store, intake, scheduler, config.limits.quota(config.queues)),
        ClusterOptions(
            controller=controller,
            tenancy=tenancy,
            limits=StartLimits(chosen.bind_limit, chosen.start_limit),
            logs=home.cluster,
            read=object_reader(config, chosen, intake_rules(config)),
            queues=[queue.name for queue in config.queues],
            reporting=reporting(config, store),
            clock=time.time,
            scheduler_time=scheduler_time,
            lease=None if held is None else lease_options(chosen, home, held.stand_by, shared),
        ),
    )


def lease_options(
    cluster: KubernetesConfig,
    home: Home,
    stands_by: Callable[[str], None] = lambda _leader: None,
    shared: str | None = None,
) -> LeaseOptions | None:
    """Of the Lease by which several Starbursts share a cluster; None if the config wants none.

    `shared` is the id of the store if several processes lead by turns on that: the Lease is theirs together.
    """
    from starburst.clusters.kubernetes.leadership import (  # noqa: PLC0415 - an optional dependency
        LeaseOptions,
        identity_of,
        shared_identity,
    )

    if cluster.lease is False:
        return None
    identity = identity_of(home.root) if shared is None else shared_identity(shared)
    required = cluster.lease is True
    return LeaseOptions(cluster.lease_namespace or "", cluster.lease_name, identity, required, stands_by)


def _bus(
    home: Home, config: Config, store: Store, scheduler: Scheduler, sites: Mapping[Site, RunSite]
) -> Companion | None:
    if config.bus.kind != "mqtt":
        return None
    from starburst.app.wiring.bus import bus_of  # noqa: PLC0415 - an optional dependency

    return bus_of(home.store, config.bus, store, scheduler, sites)


def _pace(store: Store, config: Config) -> Pace:
    """The stored clock. A changed speed takes effect from now on; scheduler time stays continuous."""
    pace, wall = queries.pace(store), time.time()
    if pace.speed != config.clock.speed or store.fact("clock") is None:
        pace = pace.with_speed(config.clock.speed, wall)
        store.set_fact("clock", {"origin": pace.origin, "speed": pace.speed, "start": pace.start})
    return pace


def _now(scheduler: Scheduler, pace: Pace, wall: Callable[[], float]) -> Callable[[], float]:
    """The scheduler's time, which never goes back."""
    return lambda: max(scheduler.state.now, pace.scheduler_time(wall()))


def _controller_id(store: Store) -> str:
    return str(store.fact("controller"))
