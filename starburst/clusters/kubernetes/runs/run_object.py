"""One run: its Job or bare Pod with its pods, and what they say of its start and its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from starburst.clusters.kubernetes.runs.identity import RunKey
from starburst.core.model.events import RunEnd, RunEnded
from starburst.kube import names
from starburst.kube.objects import JobView, PodView
from starburst.kube.pods.outcome import NEVER_RAN, USUAL

#: Reasons of failed pods that are not the fault of their command: node, kubelet or scheduler ended them.
SITE_REASONS = frozenset(
    {
        NEVER_RAN,
        "Evicted",
        "NodeAffinity",
        "NodeLost",
        "NodeShutdown",
        "Preempted",
        "Preempting",
        "Shutdown",
        "Terminated",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
    }
)
#: What a container runtime says that gave up on a start, or whose sandbox died meanwhile; whatever else keeps
#: a container from starting (StartError) is its command's or image's fault.
GAVE_UP = ("context canceled", "context deadline exceeded", "namespace path: lstat /proc/")
#: Reasons of a Failed Job that stand for the failures of its pods: how they ended decides.
BY_ITS_PODS = ("", "BackoffLimitExceeded", "FailedIndexes", "MaxFailedIndexesExceeded")
#: Reason of a Job or a pod that was active for longer than its activeDeadlineSeconds.
OUT_OF_TIME = "DeadlineExceeded"
#: Ends of runs that Starburst took back because of the cluster.
TAKEN_BACK = (RunEnd.DISPLACED, RunEnd.NOT_STARTED, RunEnd.SUSPENDED)
DELETED = "it was deleted in the cluster"
_ENDS = {end.value: end for end in RunEnd}
_POD_ENDS = {"Succeeded": "Complete", "Failed": "Failed"}


@dataclass(slots=True)
class RunObject:
    """The object of a run, a Job or a bare Pod, and its pods."""

    key: RunKey
    view: JobView | PodView
    pods: dict[tuple[str, str], PodView] = field(default_factory=dict)
    #: uids of pods that were over before this run of its object began.
    earlier: frozenset[str] = frozenset()
    gone: bool = False
    told_started: bool = False
    told_deleted: bool = False
    told_end: bool = False
    #: Why a bare Pod was deleted, if not by Starburst: by its user "", else the cluster's reason; None while
    #: that is not known.
    taken: str | None = None
    #: The mark that was written into its object when Starburst began to end it: a watch may miss it.
    written: str = ""
    #: Its end by the events about its Job, of one that ended and went away while no watch saw it.
    unseen_end: RunEnded | None = None

    @property
    def active(self) -> list[PodView]:
        """Pods whose containers may be alive."""
        return [pod for pod in self.pods.values() if not pod.over]

    @property
    def stopping(self) -> RunEnd | None:
        """What the end will count as, if Starburst is ending the run; else None."""
        return _ENDS.get(self._stopping_words[0])

    @property
    def stopping_why(self) -> str:
        """The message that was written when Starburst began to end the run."""
        return self._stopping_words[1]

    @property
    def _stopping_words(self) -> tuple[str, str]:
        """How the end will count, and why, by the mark of this run."""
        for mark in (self.view.annotations.get(names.STOPPING, ""), self.written):
            attempt, _, rest = mark.partition(" ")
            if attempt == str(self.key[1]):
                how, _, why = rest.partition(" ")
                return how, why
        return "", ""

    @property
    def adopted(self) -> bool:
        """Whether its object was created by a user."""
        return names.ADOPTED in self.view.annotations

    @property
    def suspended(self) -> bool:
        """Whether its user suspended its Job; one that Starburst suspends has no nodes any more."""
        view = self.view
        return isinstance(view, JobView) and view.suspended and bool(view.annotations.get(names.NODES))

    @property
    def deleted(self) -> bool:
        """Whether its object was deleted before the run ended, not by Starburst nor by the cluster."""
        by_whom = self.stopping is not None or self._may_be_taken
        return self.gone and not (by_whom or self._ended or self.unseen_end)

    @property
    def _may_be_taken(self) -> bool:
        """Whether the cluster took it away, or may have."""
        return isinstance(self.view, PodView) and bool(self.view.node) and self.taken != ""

    @property
    def outliving(self) -> list[PodView]:
        """Pods that may be alive of a Job that has ended, but for those that were taken out of it."""
        ended = isinstance(self.view, JobView) and self.view.end
        return [pod for pod in self.active if pod not in self.taken_out] if ended else []

    @property
    def taken_out(self) -> list[PodView]:
        """Pods that may be alive and are not their Job's any more; the run is not over before they are."""
        if not isinstance(self.view, JobView):
            return []
        return [pod for pod in self.active if pod.owner is None or pod.owner.uid != self.view.uid]

    @property
    def _ended(self) -> str:
        """As Kubernetes says it; one that is being deleted can be marked Failed for the pods it loses."""
        view = self.view
        ended = view.end if isinstance(view, JobView) else _POD_ENDS.get(view.phase, "")
        return "" if ended == "Failed" and view.deleting and self.stopping is None else ended

    @property
    def void(self) -> str:
        """Why its Job is called Complete although not all of its tasks succeeded; "" if that is not so."""
        if not isinstance(self.view, JobView) or self.view.end != "Complete":
            return ""
        idle = [pod for pod in self._pods() if pod.reason == NEVER_RAN]
        done = sum(pod.phase == "Succeeded" for pod in self._pods())
        return _words(idle[0]) if idle and done < self.view.completions else ""

    def started(self) -> bool:
        """Whether every task has begun. A Job without pods that Starburst called Complete ran elsewhere."""
        if isinstance(self.view, JobView):
            begun = sum(pod.over or pod.phase == "Running" for pod in self._pods())
            completed = self.view.end == "Complete" and not self.view.withdrawn
            return completed or begun >= max(1, self.view.parallelism)
        return self.view.over or self.view.phase == "Running"

    @property
    def ended_at(self) -> float | None:
        """When the last of its pods ended, by the clocks of their nodes; epoch seconds.

        If a pod is gone, such as those that the Job controller deletes at a time limit, it is when the Job
        was told to be over. None: its object is not over, or nothing says when.
        """
        view, pods = self.view, self._pods()
        known = [pod.ended_at for pod in pods if pod.ended_at is not None]
        all_there = isinstance(view, PodView) or len(pods) >= view.ended_pods
        if not self._ended:
            return None
        return max(known) if known and len(known) == len(pods) and all_there else view.ended_at

    def end(self, restarts: Callable[[str], bool]) -> RunEnded | None:
        """How it ended, once nothing of it is alive; `restarts` as `RunRegistry` has it."""
        view, stopping = self.view, self.stopping
        if self.active:
            return None
        if self.unseen_end is not None:
            return self.unseen_end
        if self._ended == "Complete":
            void = self.void
            how = RunEnd.EXITED if not void else stopping or RunEnd.LOST
            return RunEnded(*self.key, how, None if void else 0, void)
        if self._ended == "Failed":
            return self._failed(restarts)
        if self.gone and stopping is None and self._may_be_taken:
            return None if self.taken is None else RunEnded(*self.key, RunEnd.DISPLACED, message=self.taken)
        if self.gone:
            message = DELETED if self.deleted else self.stopping_why
            return RunEnded(*self.key, stopping or RunEnd.STOPPED, message=message)
        if stopping is not None and isinstance(view, JobView) and view.withdrawn:
            if stopping is RunEnd.SUSPENDED and self.adopted and names.KEPT not in view.annotations:
                stopping = RunEnd.DISPLACED  # it was resumed meanwhile
            return RunEnded(*self.key, stopping, message=self.stopping_why)
        return None

    def _failed(self, restarts: Callable[[str], bool]) -> RunEnded:
        """A Job that another controller made is not made anew: its failure ends its job, whatever it was."""
        stopping = self.stopping
        is_last = self.adopted and isinstance(self.view, JobView) and self.view.owned
        if stopping is not None and not (is_last and stopping in TAKEN_BACK):
            return RunEnded(*self.key, stopping, message=self.stopping_why)
        failed = [pod for pod in self._pods() if pod.phase == "Failed"]
        own = [pod for pod in failed if not _was_taken(pod)]
        lost_some = not own or self._lost_a_peer(failed)
        if lost_some and not is_last and self._lost_its_pods(failed, restarts):
            taken = next(filter(_says_it_was_taken, failed), failed[0] if failed else None)
            why = taken.disruption or _words(taken) if taken is not None else ""
            how = RunEnd.LOST if taken is not None and taken.reason == NEVER_RAN else RunEnd.DISPLACED
            return RunEnded(*self.key, how, message=why or "its pods were taken away")
        code = max((pod.exit_code for pod in own or failed if pod.exit_code is not None), default=1)
        reasons = [pod.reason for pod in own]  # a pod may have a limit of its own
        if isinstance(self.view, JobView):
            reasons.append(self.view.end_reason)
        end = RunEnd.OUT_OF_TIME if OUT_OF_TIME in reasons else RunEnd.EXITED
        return RunEnded(*self.key, end, code or 1, self._why_failed(own or failed))

    def _lost_a_peer(self, failed: list[PodView]) -> bool:
        """Whether it is a gang that ends with its first failure, and one of `failed` was taken away.

        The others failed for want of that one, often before their controller deleted them.
        """
        view = self.view
        fails_as_one = isinstance(view, JobView) and view.parallelism > 1 and view.backoff_limit == 0
        return fails_as_one and any(map(_says_it_was_taken, failed))

    def _lost_its_pods(self, failed: list[PodView], restarts: Callable[[str], bool]) -> bool:
        """Whether it failed for pods that are gone or were taken away; of `failed`, none was first by itself.

        A Job of containers that are restarted in place has no pods that failed by themselves either: at its
        limit of restarts the Job controller deletes those that run. Only pods that say so were taken away.
        """
        view = self.view
        if isinstance(view, PodView):
            return True
        if view.end_reason not in BY_ITS_PODS:
            return False
        return any(map(_says_it_was_taken, failed)) or not restarts(self.key[0])

    def _pods(self) -> list[PodView]:
        if isinstance(self.view, PodView):
            return [self.view]
        return [pod for pod in self.pods.values() if pod.uid not in self.earlier]

    def _why_failed(self, failed: list[PodView]) -> str:
        """Kubernetes' reason and message, if they say more than the exit code."""
        telling = [pod for pod in failed if pod.reason not in ("", "Error", *USUAL)]
        if telling:
            return _words(telling[0])
        if isinstance(self.view, JobView) and self.view.end_reason not in ("", "BackoffLimitExceeded"):
            return f"{self.view.end_reason}: {self.view.end_message}"
        return ""


def _words(pod: PodView) -> str:
    return ": ".join(part for part in (pod.reason, pod.message) if part)


def _was_taken(pod: PodView) -> bool:
    """Whether a pod failed for a reason of the site, or because it was deleted."""
    return pod.deleting or _says_it_was_taken(pod)


def _says_it_was_taken(pod: PodView) -> bool:
    """Whether a failed pod itself names a reason of the site."""
    gave_up = pod.reason == "StartError" and any(words in pod.message for words in GAVE_UP)
    return gave_up or pod.reason in SITE_REASONS or pod.reason.startswith("OutOf") or bool(pod.disruption)
