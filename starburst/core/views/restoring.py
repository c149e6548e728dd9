"""A scheduler from a snapshot, as after a restart."""

from __future__ import annotations

from starburst.core.model.jobs import JobRecord
from starburst.core.model.settings import Settings
from starburst.core.model.throughput import Speeds
from starburst.core.scheduler import Scheduler
from starburst.core.state import State
from starburst.core.steps.budget import cost_of, is_capped
from starburst.core.steps.prerequisites import await_
from starburst.core.steps.starvation import order_key, protects
from starburst.core.views.snapshot import Snapshot
from starburst.domain.job import CloudChoice, Phase, Site
from starburst.policy.packing.plan import Packer


def restore(settings: Settings, snapshot: Snapshot, packer: Packer | None = None) -> Scheduler:
    """A scheduler with the state of the snapshot; it uses the snapshot's records without copying them.

    Runs and instances are unconfirmed until their site has reported which ones it knows (SiteSynced).
    """
    scheduler = Scheduler(settings, packer)
    state = scheduler.state
    known = snapshot.facts
    state.now, state.arrivals, state.decided = known.now, known.arrivals, known.decided
    if known.load is not None:
        past = known.load
        state.load.sizes, state.load.size_sum = past.sizes, past.size_sum
        state.load.runtimes, state.load.runtime_sum_s = past.runtimes, past.runtime_sum_s
        state.load.class_runtimes, state.load.class_sums_s = past.class_runtimes, past.class_sums_s
    state.run_times.accuracies = dict(snapshot.accuracies)
    state.meter.account = known.account
    state.meter.advance(0.0, known.now)
    state.tags, state.refusals = known.tags.copy(), known.refusals
    if protects(state):
        state.passed = known.passed
    state.next_round, state.fleet.memory = known.next_round, known.memory
    names = {cap.name for cap in settings.caps}
    state.ledgers = {name: ledger for name, ledger in known.ledgers.items() if name in names}
    fleet = state.fleet
    fleet.launches, fleet.settled, fleet.paused = known.launches, known.settled, dict(known.paused)
    fleet.wasted = dict(known.wasted)
    if snapshot.speeds is not None:
        fleet.speeds = Speeds.restored(snapshot.speeds)
    fleet.offers = {offer.name: offer for offer in snapshot.offers}
    in_order = sorted(snapshot.instances, key=lambda instance: (len(instance.id), instance.id))
    fleet.instances = {instance.id: instance for instance in in_order}  # as they were launched
    fleet.troubled = {
        instance.id
        for instance in snapshot.instances
        if instance.unreachable_since is not None or instance.unfit_since is not None
    }
    state.unconfirmed_instances = set(fleet.instances)
    state.capacity.update(snapshot.nodes)
    for record in sorted(snapshot.jobs, key=lambda r: r.seq):
        _take_over(state, record, anew=known.order not in ("", settings.order))
    held_up = (record for record in state.jobs.values() if record.obstacle is not None)
    state.capped = {record.id: cost_of(record) for record in held_up if is_capped(record)}
    state.capacity.keep(state.passed.job_id, state.passed.nodes)
    state.turns.go_round()
    state.homesick = dict.fromkeys(sorted(state.homesick, key=lambda name: state.jobs[name].look_at or 0.0))
    state.walk.rebuild(state.queue, state.capacity, known.configurations)
    state.walk.grew(state.queue)
    return scheduler


def _take_over(state: State, record: JobRecord, *, anew: bool) -> None:
    """Add a job to the state; `anew`: its key is of another queue order."""
    state.jobs[record.id] = record
    if record.phase.is_end:
        return
    state.take(record, record.reserved)
    if record.phase is Phase.QUEUED:
        _line_up(state, record, anew=anew)
    _gate(state, record)
    if record.wait is not None and not (record.alive and record.started_at is not None):
        state.meter.expects(record, state.given_runtime_s(record))
    if record.phase is Phase.OFFLOADING and not record.slots:
        state.departing[record.id] = state.now
    elif state.keeps_machines(record):
        state.pauses.set(record.not_before, record)
    if record.alive:
        state.unconfirmed_runs.add((record.id, record.attempt))
        if record.started_at is not None:
            state.meter.runs(record, state.released_at(record))
        if record.site is Site.CLUSTER:
            state.take(record, record.slots)
    if record.phase is Phase.RUNNING and record.look_at is not None:
        if record.look_at <= state.now:
            state.homesick[record.id] = None
        else:
            state.looks.set(record.look_at, record)


def _line_up(state: State, record: JobRecord, *, anew: bool) -> None:
    """Put a queued job into the queue, and set its timer."""
    if record.job.cloud is not CloudChoice.ONLY:
        if anew:
            record.order_key = order_key(state, record)
            state.touch(record)
        state.queue.add(record)
        state.meter.waits(record)
        if record.wait is not None and record.wait.predicted_s is not None:
            state.meter.predict(record, record.queued_at + record.wait.predicted_s)
        elif state.meter.calibrated:
            state.forecast.newcomers.append(record)
        if state.prospects is not None:
            state.prospects.suspect(record)
    state.attend(record)


def _gate(state: State, record: JobRecord) -> None:
    """Restore the prerequisites of a held or blocked job, and the array turn of any other."""
    for name in record.awaits:
        await_(state, record, name)
    if record.phase is Phase.HELD:
        return
    if record.phase is not Phase.BLOCKED:
        state.turns.take(record)
    elif record.not_before > state.now:
        state.pauses.set(record.tries_at, record)
    elif record.doomed_by or not (record.awaits or record.awaits_volumes or state.turns.wait(record)):
        state.freed.append(record.id)
