"""The state of each run, derived from its Job and pods. A cache: the API server is the truth."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from starburst.clusters.kubernetes.runs.end_times import EndTimes
from starburst.clusters.kubernetes.runs.identity import RunIdentity, RunKey
from starburst.clusters.kubernetes.runs.run_object import RunObject
from starburst.core.model.events import CancelRequested, Event, RunEnd, RunEnded, RunStarted
from starburst.kube import names
from starburst.kube.objects import JobView, PodView

WALL = EndTimes()
NO_TRACE = "the cluster has no trace of it"


class RunRegistry:
    """All runs of one scheduler: events of watches go in, events of the core come out.

    `restarts` says of a job whether its failed containers are restarted in place; `end_times` judges when
    runs have ended.
    """

    def __init__(
        self,
        identity: RunIdentity,
        restarts: Callable[[str], bool] = lambda _: False,
        end_times: EndTimes = WALL,
    ) -> None:
        self._identity = identity
        self.believed = identity.believed
        self._restarts = restarts
        self._end_times = end_times
        self._units: dict[RunKey, RunObject] = {}
        #: Attempts of jobs that have such objects.
        self._attempts: dict[str, set[int]] = {}
        self._by_uid: dict[str, RunKey] = {}
        #: Pods by the uid of the Job that owns them.
        self._pods: dict[str, dict[tuple[str, str], PodView]] = {}
        #: Jobs of runs, by the uids of pods that were taken out of them.
        self._taken_out: dict[str, str] = {}
        #: Those that a list found and of which the watch has not told, by that uid, namespace and name.
        self._ahead: dict[tuple[str, tuple[str, str]], None] = {}
        self._news: dict[RunKey, None] = {}
        #: uids of objects of runs that Starburst ended and of which nothing was seen.
        self._ending: dict[str, None] = {}
        #: Whether everything was listed.
        self.complete = False
        #: Called when there is news that is no event of a watch.
        self.wake: Callable[[], None] = lambda: None
        #: Runs of earlier watches whose ends were not told.
        self._before: dict[RunKey, RunObject] = {}

    def __iter__(self) -> Iterator[RunObject]:
        return iter(list(self._units.values()))

    def get(self, key: RunKey) -> RunObject | None:
        """One run, if anything of it was seen."""
        return self._units.get(key)

    def is_ours(self, view: JobView | PodView) -> bool:
        """Whether an object belongs to this scheduler."""
        return self._identity.is_ours(view)

    def is_ending(self, view: JobView | PodView) -> bool:
        """Whether Starburst is ending the run that an object is for, or it had ended by itself."""
        unit = self._units.get(self.key_of(view) or ("", 0))
        if unit is None:  # of a Pod that was deleted while nobody watched, its marks were not seen either
            return isinstance(view, PodView) and view.uid in self._ending
        return unit.stopping is not None or unit.unseen_end is not None

    def active_pods(self, uid: str) -> list[PodView]:
        """Pods of a Job of which something may be alive."""
        return [pod for pod in self._pods.get(uid, {}).values() if not pod.over]

    def has_active_pods(self, uid: str) -> bool:
        """Whether a Job has such pods."""
        return bool(self.active_pods(uid))

    def key_of(self, view: JobView | PodView) -> RunKey | None:
        """The run that an object is for: the one it was known for under its uid, or see `RunIdentity.of`.

        An object goes on to later runs only.
        """
        known, found = self._by_uid.get(view.uid), self._identity.of(view)
        if known is None or found is None:
            return known or found
        return found if found[0] == known[0] and found[1] > known[1] else known

    def run_of(self, pod: PodView) -> RunKey | None:
        """The run that a pod is part of; those that we made are marked with it.

        Without an owner these marks count for nothing: anybody may write them (see `left_over`).
        """
        job = self._job_of(pod)
        return self._by_uid.get(job) or self._identity.marked(pod) if job else self.key_of(pod)

    def left_over(self, pod: PodView) -> RunKey | None:
        """The run that a pod without an owner is marked with: its Job, which is gone, may have made it."""
        marked = self._identity.marked(pod)
        if marked is None or pod.owner is not None or names.ADOPTED in pod.annotations:
            return None
        return None if self._job_of(pod) or self.key_of(pod) is not None else marked

    def nodes_of(self, uid: str) -> set[str]:
        """Where a Job has pods that may be alive."""
        return {pod.node for pod in self._pods.get(uid, {}).values() if pod.node and not pod.over}

    def orphans(self) -> frozenset[RunKey]:
        """Runs of which pods live on without the Job that made them."""
        return frozenset(
            key
            for uid, pods in self._pods.items()
            if uid not in self._by_uid
            for pod in pods.values()
            if not pod.over and (key := self._identity.marked(pod)) is not None and key not in self._units
        )

    def begin_anew(self) -> None:
        """Forget what was seen, before everything is listed again: what went away meanwhile is not told."""
        self._before |= {unit.key: unit for unit in self if not unit.told_end}
        self.complete = False
        for seen in (self._units, self._attempts, self._by_uid, self._pods, self._taken_out, self._news):
            seen.clear()
        self._ahead.clear()
        self._ending.clear()

    def vanished(self, known: Collection[RunKey]) -> list[RunEnded]:
        """All was listed: the ends of runs of earlier watches that are not among it, so are not in `known`.

        One that ended, or that Starburst was ending, ends as was known then; of the others nothing is known.
        """
        self.complete = True
        gone = [unit for key, unit in self._before.items() if key not in known]
        self._before = {}
        return [self._end_of_vanished(unit) for unit in gone]

    def _end_of_vanished(self, unit: RunObject) -> RunEnded:
        over = unit.view.end if isinstance(unit.view, JobView) else unit.view.over
        unit.gone, unit.pods = True, {key: pod for key, pod in unit.pods.items() if pod.over}
        end = unit.end(self._restarts) if over or unit.stopping is not None else None
        if end is None:
            return RunEnded(*unit.key, RunEnd.LOST, message=NO_TRACE)
        return replace(end, ended_at=self._end_times.told(unit.ended_at))

    def job_changed(self, old: JobView | None, new: JobView | None) -> None:
        """An event of a watch of Jobs."""
        self._changed(old, new)

    def pod_changed(self, old: PodView | None, new: PodView | None) -> str:
        """An event of the watch of pods: one of a Job's, or a run by itself; returns the Job's uid or "".

        A pod that is taken out of its Job, as by `kubectl delete --cascade=orphan`, may run on: it stays
        a part of that run. What has the marks of a run and nothing else is kept under its own uid.
        """
        pod = new or old
        assert pod is not None
        if old is not None and old.owner is not None and old.owner != pod.owner:
            self._leaves(old, old.owner.uid)
        job = self._job_of(pod)
        if not job and self.left_over(pod) is None:
            self._changed(old, new)
            return ""
        kept_under = job or pod.uid
        self._ahead.pop((kept_under, pod.key), None)
        if new is None:
            self._taken_out.pop(pod.uid, None)
            self._remove(pod, kept_under)
        else:
            self._pods.setdefault(kept_under, {})[pod.key] = new
        key = self._by_uid.get(kept_under)
        if key is not None:
            self._news[key] = None
        return job

    def _job_of(self, pod: PodView) -> str:
        """The uid of the Job that a pod is of, also if it was taken out of that; "" if it is of none."""
        return self._taken_out.get(pod.uid) or ("" if pod.owner is None else pod.owner.uid)

    def _leaves(self, pod: PodView, job: str) -> None:
        if job in self._by_uid:
            self._taken_out.setdefault(pod.uid, job)
        elif pod.uid not in self._taken_out:
            self._remove(pod, job)

    def _remove(self, pod: PodView, job: str) -> None:
        pods = self._pods.get(job, {})
        pods.pop(pod.key, None)
        if not pods and job not in self._by_uid:
            self._pods.pop(job, None)

    def listed(self, uid: str, pods: Collection[PodView]) -> None:
        """The pods of a Job as listed just now: what lives counts though the watch has not told of it.

        It does so until the watch tells of it, or a later list is without it.
        """
        alive = {pod.key: pod for pod in pods if not pod.over}
        known = self._pods.setdefault(uid, {})
        for owner, key in [*self._ahead]:
            if owner == uid and key not in alive:
                del known[key], self._ahead[owner, key]
        self._ahead |= {(uid, key): None for key in alive if key not in known}
        for key, pod in alive.items():
            known.setdefault(key, pod)
        if uid in self._by_uid:
            self._news[self._by_uid[uid]] = None
            self.wake()

    def is_ahead(self, uid: str) -> bool:
        """Whether a Job has pods that were listed and of which the watch has not told."""
        return any(owner == uid for owner, _ in self._ahead)

    def _changed(self, old: JobView | PodView | None, new: JobView | PodView | None) -> None:
        view = new or old
        assert view is not None
        key = self.key_of(view)
        if key is None:
            return
        unit = self._units.get(key)
        if unit is None or (unit.gone and unit.told_end and unit.view.uid != view.uid):
            if new is None:
                return
            unit = self._keep(RunObject(key, view, self._pods.setdefault(view.uid, {})))
        elif unit.view.uid != view.uid:
            return  # not the object that this run is
        before = self._by_uid.get(view.uid, key)
        if before != key:  # an adopted object is on its next run
            self._drop(before)
            unit.earlier = frozenset(pod.uid for pod in unit.pods.values() if pod.over)
        self._by_uid[view.uid] = key
        unit.view, unit.gone = view, new is None
        if isinstance(view, PodView):
            unit.pods = {} if new is None else {view.key: view}
        self._news[key] = None

    def newest(self, job_id: str) -> int:
        """The last attempt of a job whose end was not told; 0 if there is none."""
        attempts = self._attempts.get(job_id, ())
        return max((each for each in attempts if not self._units[job_id, each].told_end), default=0)

    def known(self) -> frozenset[RunKey]:
        """Every run of which something was seen."""
        return frozenset(self._units)

    def take_events(self) -> list[Event]:
        """Starts, ends and cancellations by deletion since the last call."""
        events: list[Event] = []
        for key in self._news:
            unit = self._units.get(key)  # None if its object is on its next run
            if unit is None:
                continue
            if not unit.told_end:
                events += self._events_of(unit)
            if unit.gone and unit.told_end:
                self._forget(unit)
        self._news.clear()
        return events

    def again(self, key: RunKey) -> list[Event]:
        """What was told of a run, told again: who asks for it anew, with an older store, did not hear it."""
        unit = self._units.get(key)
        if unit is None:
            return []
        unit.told_started = unit.told_end = False
        return list(self._events_of(unit))

    def begins(self, key: RunKey, view: JobView | PodView) -> None:
        """An adopted object was marked for this run.

        If it was known for a later one, or for this one and its end was told, the store was put back to an
        earlier time: it begins anew.
        """
        known = self._by_uid.get(view.uid)
        unit = None if known is None else self._units.get(known)
        if known is None or unit is None or known < key or (known == key and not unit.told_end):
            return  # the watch says the rest
        self._drop(known)
        pods = self._pods.setdefault(view.uid, {}) if isinstance(view, JobView) else {view.key: view}
        self._keep(RunObject(key, view, pods, frozenset(pod.uid for pod in pods.values() if pod.over)))
        self._by_uid[view.uid] = key
        self._news[key] = None

    def ending(self, key: RunKey, uid: str, mark: str) -> None:
        """The object of a run has this mark now, and its deletion is not its user's."""
        unit = self._units.get(key)
        if unit is not None and unit.view.uid == uid:
            unit.written = mark
        elif unit is None:
            self._ending[uid] = None

    def ended_unseen(self, key: RunKey, end: RunEnded) -> None:
        """The Job of a run is gone, and events tell that it had ended so."""
        unit = self._units.get(key)
        if unit is not None:
            unit.unseen_end = end

    def taken(self, pod: PodView, why: str) -> None:
        """A bare Pod that is being deleted was taken by the cluster; `why` "": by its user."""
        unit = self._units.get(self._by_uid.get(pod.uid, ("", 0)))
        if unit is not None and unit.view.uid == pod.uid:
            unit.taken = why
            self._news[unit.key] = None

    def _events_of(self, unit: RunObject) -> Iterator[Event]:
        if not unit.told_started and not unit.gone and unit.started():
            unit.told_started = True
            yield RunStarted(*unit.key)
        if unit.deleted and not unit.told_deleted:
            unit.told_deleted = True
            yield CancelRequested(unit.key[0])
        end = unit.end(self._restarts)
        if end is not None:
            unit.told_end = True
            yield replace(end, ended_at=end.ended_at or self._end_times.told(unit.ended_at))

    def _forget(self, unit: RunObject) -> None:
        """Drop a run whose object is gone and whose end was reported."""
        self._drop(unit.key)
        if self._by_uid.get(unit.view.uid) == unit.key:
            del self._by_uid[unit.view.uid]
            pods = self._pods.get(unit.view.uid)
            if not pods:
                self._pods.pop(unit.view.uid, None)

    def _keep(self, unit: RunObject) -> RunObject:
        job_id, attempt = unit.key
        self._units[unit.key] = unit
        self._attempts.setdefault(job_id, set()).add(attempt)
        return unit

    def _drop(self, key: RunKey) -> None:
        if self._units.pop(key, None) is not None:
            attempts = self._attempts[key[0]]
            attempts.remove(key[1])
            if not attempts:
                del self._attempts[key[0]]
