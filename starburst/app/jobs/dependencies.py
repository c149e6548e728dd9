"""Resolves the names in `starburst.io/after-…` of a submission to job ids before it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from starburst.app.errors import UserError
from starburst.domain.job import Phase, Submission, is_over
from starburst.store.errors import AmbiguousJobError, JobNotFoundError
from starburst.store.listings import pages
from starburst.store.store import Store
from translator.manifests.hints import MAX_NAMES


def resolved(
    store: Store, submissions: Sequence[Submission], queues: pages.QueueScope = None
) -> list[Submission]:
    """The submissions with ids in place of names, in topological order.

    A name means a job of the same submission or, failing that, a stored job as `starburst status NAME`
    finds it, in these queues.

    Raises:
        UserError: a name is unknown or ambiguous, one is over and did not end as asked, or the dependencies
            have a cycle; one line per problem.
    """
    if not any(item.job.comes_after for item in submissions):
        return list(submissions)
    names = _Names(store, submissions, queues)
    found = [
        replace(
            item,
            job=replace(
                item.job,
                after_ok=names.ids(item, "after-ok", item.job.after_ok),
                after_any=names.ids(item, "after-any", item.job.after_any),
                after_not_ok=names.ids(item, NOT_OK, item.job.after_not_ok),
                after_start=names.ids(item, "after-start", item.job.after_start),
            ),
        )
        for item in submissions
    ]
    for item in found:
        names.check_both(item)
    if names.problems:
        raise UserError("\n".join(names.problems))
    return _in_order(found)


NOT_OK = "after-not-ok"
#: Whether a job that is over must have succeeded.
_WANTED = {"after-ok": True, NOT_OK: False}


class _Names:
    def __init__(self, store: Store, submissions: Iterable[Submission], queues: pages.QueueScope) -> None:
        self._store = store
        self._queues = queues
        self.problems: list[str] = []
        self._arrays: dict[str, list[str]] = {}
        self._new: dict[str, list[str]] = {}
        for item in submissions:
            for word in dict.fromkeys((item.job.id, item.job.name)):
                self._new.setdefault(word, []).append(item.job.id)
            if item.job.array is not None:
                name = item.job.name.removesuffix(f"-{item.job.array.index}")
                for word in (item.job.array.array, name):
                    self._arrays.setdefault(word, []).append(item.job.id)

    def ids(self, item: Submission, key: str, names: Sequence[str]) -> tuple[str, ...]:
        where = f"job {item.job.name}: starburst.io/{key}"
        found = tuple(dict.fromkeys(one for name in names for one in self._ids(where, key, name)))
        if len(found) > MAX_NAMES:
            self.problems.append(f"{where}: these are {len(found)} jobs, {MAX_NAMES} at most; name fewer")
        return found

    def check_both(self, item: Submission) -> None:
        """A problem for each job that would have to succeed, and not to."""
        self.problems += [
            f"job {item.job.name}: {one} is in starburst.io/after-ok and in {NOT_OK}; keep one of the two"
            for one in item.job.after_ok
            if one in item.job.after_not_ok
        ]

    def _ids(self, where: str, key: str, name: str) -> list[str]:
        here = self._new.get(name, [])
        if len(here) > 1:
            self.problems.append(f"{where}: {name!r} is the name of {len(here)} of these jobs; rename them")
        if here or name in self._arrays:
            found = here[:1] or self._arrays[name]
            self._refuse_several(where, key, name, len(found))
            return found
        try:
            rows = pages.named(self._store, [name], self._queues)
        except (JobNotFoundError, AmbiguousJobError) as error:
            self.problems.append(f"{where}: {error}")
            return []
        self._refuse_several(where, key, name, len(rows))
        self.problems += [
            f"{where}: {row.id} is {row.phase} already; submit it again first"
            for row in rows
            if is_over(row.phase) and _WANTED.get(key) == (row.phase != Phase.SUCCEEDED.value)
        ]
        return [row.id for row in rows]

    def _refuse_several(self, where: str, key: str, name: str, count: int) -> None:
        """Slurm waits for one failure in an array; here all jobs that are named have to fail."""
        if key == NOT_OK and count > 1:
            self.problems.append(
                f"{where}: {name!r} is an array of {count} jobs; name those that have to fail"
            )


def _in_order(submissions: Sequence[Submission]) -> list[Submission]:
    by_id = {item.job.id: item for item in submissions}
    before = {
        name: [other for other in item.job.comes_after if other in by_id] for name, item in by_id.items()
    }
    try:
        return [by_id[name] for name in TopologicalSorter(before).static_order()]
    except CycleError as error:
        circle = " after ".join(by_id[name].job.name for name in reversed(error.args[1]))
        raise UserError(f"jobs come after each other in a circle: {circle}; break it") from None
