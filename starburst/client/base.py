"""What the client of a server and that of a home have in common: starting jobs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, overload

from starburst.client.connection import StarburstError
from starburst.client.job_access import JobAccess, JsonRow
from starburst.client.job_handle import JobArray, JobHandle


class BaseClient(JobAccess):
    """Starts jobs from Python."""

    @abstractmethod
    def submit_files(self, files: Iterable[tuple[str, str]], **asked: Any) -> list[JsonRow]:
        """Submit all jobs of several YAML texts, or none; each has the name that errors use."""

    @abstractmethod
    def named(self, names: Iterable[str]) -> list[JsonRow]:
        """For each name the job with it, or all jobs of the array with that name."""

    def why_nothing_starts(self) -> str:
        """Why no job is started at present, such as that no scheduler runs; "" if nothing is known."""
        return ""

    @overload
    def run(
        self,
        what: str | Sequence[str] | Callable[..., Any],
        /,
        *args: Any,
        array: Literal[""] = "",
        **options: Any,
    ) -> JobHandle: ...
    @overload
    def run(
        self, what: str | Sequence[str] | Callable[..., Any], /, *args: Any, array: str, **options: Any
    ) -> JobArray: ...
    def run(
        self, what: str | Sequence[str] | Callable[..., Any], /, *args: Any, **options: Any
    ) -> JobHandle | JobArray:
        """Submit a command or a call of a function as a job, as `starburst submit -- COMMAND` does.

        A string is a line of sh, a sequence is a program and its arguments. A function is called with `args`
        and the keywords that are no options. Options are those of the command:

        name, queue, image: texts. cloud: "auto", "never", "only".
        gpus, cpus, memory: of each task, as texts or numbers: 2, "A100:2", "16Gi".
        env: a mapping, or a list of NAME=VALUE and NAME.
        nodes: tasks that start together. ray: a Ray on all of them, for a command.
        array: "0-99%10", a job per index. Gives a `JobArray`.
        time, estimate, max_wait: durations, as texts, seconds or timedeltas.
        after: jobs that must succeed before, as ids or handles.
        priority: higher goes first, where the policy orders by it.
        retries: runs again after a failure. checkpoint: it saves its state on SIGTERM.
        workdir: the directory that goes along; None is none.
        python: the program that calls the function. By default the one that runs this, where it is there and
            no image is given, else python3.
        wait: whether to wait for the end.
        allow_unsatisfiable: also what no node and no offer could ever hold.
        note: receives what went along, and remarks; by default they are printed to stderr.

        Raises:
            StarburstError: an option is not valid, too much would go along, or the submission is refused.
            TypeError: the function does not take the arguments, or the call cannot be pickled.
        """
        from starburst.app.errors import UserError  # noqa: PLC0415 - slow to import, for who only asks
        from starburst.client.calls import started_job  # noqa: PLC0415

        try:
            if callable(what):
                job = started_job.started_call(what, args, options)
            else:
                job = started_job.started_command(what, args, options)
            chosen, _ = started_job.chosen_options(options)
        except UserError as error:
            raise StarburstError(str(error)) from None
        unsatisfiable = {"allow_unsatisfiable": True} if chosen.allow_unsatisfiable else {}
        rows = self.submit_files([(job.source, job.text)], **unsatisfiable)
        for text in dict.fromkeys(text for row in rows for text in row["notes"]):
            chosen.note(f"note: {text}")
        if why := self.why_nothing_starts():
            chosen.note(f"note: {why}")
        handle = self._handle([row["id"] for row in rows], job.key, is_array=bool(chosen.array))
        if chosen.wait:
            handle.wait()
        return handle

    def attach(self, reference: str) -> JobHandle | JobArray:
        """The handle of a job or array by its `reference`, or by its id or name, which opens no result.

        Raises:
            NotFoundError: there is none.
        """
        name, _, key = reference.partition(":")
        ids = [row["id"] for row in self.named([name])]
        return self._handle(ids, key, is_array=len(ids) > 1)

    def _handle(self, ids: Sequence[str], key: str, *, is_array: bool) -> JobHandle | JobArray:
        jobs = tuple(JobHandle(self, job, key) for job in ids)
        return JobArray(ids[0].rpartition("-")[0], jobs) if is_array else jobs[0]
