"""The lists that the first report waits for, and the runs of namespaces whose Jobs cannot be listed."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from starburst.clusters.kubernetes.runs.identity import RunKey
from starburst.clusters.kubernetes.runs.registry import RunRegistry
from starburst.kube.errors import ApiError
from starburst.kube.resources import JOBS, NODES, PODS
from starburst.runs.ports import AdoptionPort

log = structlog.get_logger()

#: A watch: the plural of its resource, or the path of that of an operator, and its namespace, "" for all.
Watch = tuple[str, str]


class FirstLists:
    """One namespace that is refused, as one that was deleted with its rights, does not hold up all others.

    Nothing is concluded there until it can be listed. `where` as `ObjectWriter.object_of`.
    """

    def __init__(
        self, desk: AdoptionPort, registry: RunRegistry, where: Callable[[RunKey], tuple[str, str, str]]
    ) -> None:
        self._desk = desk
        self._registry = registry
        self._where = where
        #: Whether the first report was made.
        self.over = False
        self._awaited: set[Watch] = {(PODS.plural, ""), (NODES.plural, "")}
        self._refused: set[Watch] = set()
        #: Runs that are counted as known although nothing was seen of their Jobs.
        self.trusted: set[RunKey] = set()

    @property
    def pending(self) -> bool:
        """Whether the first report has to wait."""
        return bool(self._awaited) and not self.over

    def expect(self, watches: set[Watch]) -> None:
        """Wait for these, too, before the first report."""
        if not self.over:
            self._awaited |= watches

    def listed(self, watch: Watch) -> bool:
        """A watch has listed its objects; whether it lists Jobs and could not do so before."""
        late = watch in self._refused and watch[0] == JOBS.plural
        self._awaited.discard(watch)
        self._refused.discard(watch)
        return late

    def refused(self, watch: Watch, error: ApiError) -> None:
        """A watch cannot list: if it is that of one namespace, or operator, it is waited for no longer."""
        if watch in self._awaited and (watch[1] or "/" in watch[0]) and not self.over:
            log.warning("cannot-list", of=watch[0], namespace=watch[1], error=str(error))
            self._awaited.discard(watch)
            self._refused.add(watch)

    def hides(self, kind: str, namespace: str) -> bool:
        """Whether objects of this kind may be there unseen."""
        return kind == "Job" and (JOBS.plural, namespace) in self._refused

    def missing(self) -> list[RunKey]:
        """Stored runs of which nothing is there; from now on those that may be there unseen are trusted."""
        records = map(self._desk.record, self._desk.on_cluster())
        stored = [(record.id, record.attempt) for record in records if record is not None]
        orphans = self._registry.orphans()
        unseen = {*stored, *orphans} - self._registry.known()
        self.trusted = {key for key in unseen if self.hides(*self._where(key)[:2])}
        return [key for key in stored if key in unseen - orphans - self.trusted]

    def judged(self) -> set[RunKey]:
        """Runs that were trusted, whose Jobs would have been listed by now, and were not."""
        found = {key for key in self.trusted if not self.hides(*self._where(key)[:2])}
        self.trusted -= found
        return found - self._registry.known()
