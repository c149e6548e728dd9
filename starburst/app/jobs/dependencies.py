"""Resolves the names in `starburst.io/after-…` of a submission to job ids before it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile

from starburst.app.errors import UserError
from starburst.domain.array import member_ids, members
from starburst.domain.job import Job, Phase, Submission, is_over
from starburst.store.errors import AmbiguousJobError, JobNotFoundError, RolledUpError
from starburst.store.listings import pages
from starburst.store.store import Store
from translator.manifests.hints import MAX_NAMES


def resolved(
    store: Store, submissions: Sequence[Submission], queues: pages.QueueScope = None
) -> list[Submission]:
    """The submissions with ids in place of names, in topological order.

    A name means a job of the same submission or, failing that, a stored job as `starburst status NAME`
    finds it, in these queues. A singleton comes after its user's earlier jobs of its name that are not over.

    Raises:
        UserError: a name is unknown or ambiguous, one is over and did not end as asked, a singleton is an
            array or a CronJob, or the dependencies have a cycle; one line per problem.
    """
    if not any(item.job.comes_after or item.singleton for item in submissions):
        return list(submissions)
    names = _Names(store, [job for item in submissions for job in members(item)], queues)
    found = [
        replace(
            item,
            job=replace(
                item.job,
                after_ok=names.ids(item, "after-ok", item.job.after_ok),
                after_any=names.ids(item, "after-any", item.job.after_any, names.before(item)),
                after_not_ok=names.ids(item, NOT_OK, item.job.after_not_ok),
                after_start=names.ids(item, "after-start", item.job.after_start),
            ),
            singleton=False,
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
        self._submissions = tuple(submissions)
        self.problems: list[str] = []
        self._arrays: dict[str, list[str]] = {}
        self._new: dict[str, list[str]] = {}
        for item in submissions:
            for word in dict.fromkeys((item.job.id, item.job.name)):
                self._new.setdefault(word, []).append(item.job.id)
            if item.job.array is not None:
                for word in (item.job.array.array, _name(item.job)):
                    self._arrays.setdefault(word, []).append(item.job.id)

    def before(self, item: Submission) -> list[str]:
        """Ids of the jobs that a singleton comes after: of its user and name, stored or earlier of these."""
        if not item.singleton:
            return []
        job, where = item.job, f"job {item.job.name}: starburst.io/singleton"
        if item.timing is not None:
            self.problems.append(f"{where}: is for jobs; write concurrencyPolicy: Forbid for a CronJob")
        elif job.array is not None:
            self.problems.append(f"{where}: is not for arrays; write 0-9%1, which runs one at a time")
        here = [other.job for other in takewhile(lambda other: other is not item, self._submissions)]
        stored = pages.unfinished(self._store, job.name, job.user, self._queues)
        return [*stored, *(other.id for other in here if _name(other) == job.name)]

    def ids(
        self, item: Submission, key: str, names: Sequence[str], others: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """Ids of the jobs of these names, and `others`."""
        where = f"job {item.job.name}: starburst.io/{key}"
        named = (one for name in names for one in self._ids(where, key, name))
        found = tuple(dict.fromkeys((*named, *others)))
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
            named = [(row.id, row.phase) for row in pages.named(self._store, [name], self._queues)]
        except RolledUpError as past:
            named = [(past.text, past.phase)]
        except (JobNotFoundError, AmbiguousJobError) as error:
            self.problems.append(f"{where}: {error}")
            return []
        self._refuse_several(where, key, name, len(named))
        self.problems += [
            f"{where}: {job_id} is {phase} already; submit it again first"
            for job_id, phase in named
            if is_over(phase) and _WANTED.get(key) == (phase != Phase.SUCCEEDED.value)
        ]
        return [job_id for job_id, _ in named]

    def _refuse_several(self, where: str, key: str, name: str, count: int) -> None:
        """Slurm waits for one failure in an array; here all jobs that are named have to fail."""
        if key == NOT_OK and count > 1:
            self.problems.append(
                f"{where}: {name!r} is an array of {count} jobs; name those that have to fail"
            )


def _name(job: Job) -> str:
    """The name that a job was given, for a job of an array that of the array."""
    return job.name if job.array is None else job.name.removesuffix(f"-{job.array.index}")


def _in_order(submissions: Sequence[Submission]) -> list[Submission]:
    by_id = {item.job.id: item for item in submissions}
    of = {job_id: item.job.id for item in submissions for job_id in member_ids(item)}
    before = {
        name: [of[other] for other in item.job.comes_after if other in of] for name, item in by_id.items()
    }
    try:
        return [by_id[name] for name in TopologicalSorter(before).static_order()]
    except CycleError as error:
        circle = " after ".join(by_id[name].job.name for name in reversed(error.args[1]))
        raise UserError(f"jobs come after each other in a circle: {circle}; break it") from None
