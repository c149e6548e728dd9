"""`starburst logs`: what a job wrote."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from starburst.app.errors import UserError
from starburst.app.home import Home
from starburst.app.logs import Log, find_logs
from starburst.cli.session import open_store
from starburst.domain.job import is_over
from starburst.store import queries
from starburst.store.store import Store

POLL_S = 0.2


def logs(
    job: Annotated[str, typer.Argument(help="Id, name or unique beginning of one.")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job ends.")] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, help="Of this run; the last if absent.")
    ] = None,
    rank: Annotated[
        int | None, typer.Option("--rank", min=0, help="Of this task of a gang; all if absent.")
    ] = None,
) -> None:
    """Print what a job wrote."""
    home = Home.default()
    with open_store() as store:
        row = queries.job(store, job)
        if _on_kubernetes(store):
            found = _print_pods(store, home, row.id, follow=follow, attempt=attempt, rank=rank)
        else:
            found = _print_files(store, home, row.id, follow=follow, attempt=attempt, rank=rank)
        row, submission = queries.job(store, row.id), store.submission(row.id)
    if found:
        return
    if attempt is not None and attempt > row.attempt:
        last = f"the last run of job/{row.id} is {row.attempt}"
        raise UserError(f"--attempt: {attempt}: {last}; give one up to that")
    last_rank = 0 if submission is None else len(submission.job.tasks) - 1
    if rank is not None and rank > last_rank:
        raise UserError(f"--rank: {rank}: the last task of job/{row.id} is {last_rank}; give one up to that")
    print(f"job/{row.id} has written nothing: {row.phase}", file=sys.stderr)


def _on_kubernetes(store: Store) -> bool:
    """Whether the last `starburst up` had such a cluster; the whole config takes long to import."""
    config = store.fact("config") or {}
    return bool(config.get("cluster", {}).get("kind") == "kubernetes")


def _print_pods(
    store: Store, home: Home, job_id: str, *, follow: bool, attempt: int | None, rank: int | None
) -> bool:
    """Of a Kubernetes cluster and the cloud; whether there was any."""
    from starburst.app.build import need_kubernetes  # noqa: PLC0415 - slow to import, and not always needed

    need_kubernetes()
    from starburst.cli.pod_logs import print_logs  # noqa: PLC0415 - its needs are an extra

    reading = print_logs(store, home, job_id, follow=follow, attempt=attempt, rank=rank)
    return bool(asyncio.run(reading))


def _print_files(
    store: Store, home: Home, job_id: str, *, follow: bool, attempt: int | None, rank: int | None
) -> bool:
    """Of the embedded cluster and cloud; whether there was any."""
    known = dict[Path, Log]()
    while True:
        row = queries.job(store, job_id)
        # Asked before reading, so that nothing written before the end is missed.
        final = not follow or is_over(row.phase)
        for log in find_logs(home, row.id, attempt, rank):
            known.setdefault(log.path, log)
        _print_new(list(known.values()), final=final)
        if final:
            return bool(known)
        time.sleep(POLL_S)


def _print_new(known: list[Log], *, final: bool) -> None:
    """Lines not printed yet; those of a gang begin with their rank."""
    gang = len({log.rank for log in known}) > 1
    for log in known:
        for line in log.new_lines(final=final):
            sys.stdout.write(f"[{log.rank}] {line}" if gang else line)
    sys.stdout.flush()
