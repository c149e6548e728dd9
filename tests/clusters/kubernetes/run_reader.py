"""A book of runs, fed with the states of objects, and what it is to tell."""

from __future__ import annotations

from starburst.clusters.kubernetes.runs.end_times import EndTimes
from starburst.clusters.kubernetes.runs.identity import RunIdentity
from starburst.clusters.kubernetes.runs.registry import WALL, RunRegistry
from starburst.core.model.events import Event, RunEnd, RunEnded
from starburst.kube import names
from starburst.kube.objects import JobView, PodView
from tests.clusters.kubernetes.scene import FakeDesk
from tests.clusters.kubernetes.views import ME, a_job

View = JobView | PodView
ADOPTED = {names.ADOPTED: "true"}


class Reader:
    """A book, fed with the states of objects in their order; None takes the last one away."""

    def __init__(self, *, restarts: bool = False, end_times: EndTimes = WALL) -> None:
        self.book = RunRegistry(RunIdentity(FakeDesk(), ME, "ns"), lambda _: restarts, end_times)
        self._last: dict[str, View] = {}

    def see(self, *views: View) -> list[Event]:
        """What it tells after these."""
        for view in views:
            self._change(self._last.get(view.uid), view)
            self._last[view.uid] = view
        return self.book.take_events()

    def lose(self, *views: View) -> list[Event]:
        """What it tells after these are gone."""
        for view in views:
            self._change(self._last.pop(view.uid), None)
        return self.book.take_events()

    def _change(self, old: View | None, new: View | None) -> None:
        if isinstance(new or old, JobView):
            self.book.job_changed(old, new)  # type: ignore[arg-type]
        else:
            self.book.pod_changed(old, new)  # type: ignore[arg-type]


def ended(how: RunEnd, code: int | None = None, message: str = "", key: tuple[str, int] = ("a", 1)) -> Event:
    return RunEnded(*key, how, code, message)


def adopted(attempt: int | None = 1, **more: object) -> JobView:
    more["annotations"] = {**ADOPTED, **more.get("annotations", {})}  # type: ignore[dict-item]
    return a_job(attempt=attempt, uid="uid-a", name="a", **more)
