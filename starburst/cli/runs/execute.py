"""`starburst exec` and `starburst shell`: a command in a job that runs."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from starburst.app.config.home import Home
from starburst.app.config.sites import KubernetesConfig, SkyConfig
from starburst.app.errors import UserError
from starburst.app.jobs.submitting import this_user
from starburst.app.wiring.sky import OWNER
from starburst.app.wiring.stored import stored_config
from starburst.cli.backend.local import LocalBackend
from starburst.cli.backend.session import open_store
from starburst.cli.completion import complete_jobs
from starburst.cli.jobs.names import one_job
from starburst.clouds.sky.access.ports import SkyError
from starburst.clouds.sky.access.ssh import SshTransport
from starburst.clouds.sky.journal import FileJournal, journal_root
from starburst.clouds.sky.machines.naming import Naming
from starburst.clouds.sky.runs.whereabouts import login_of
from starburst.domain.job import Phase, Site
from starburst.runs.attempt_dir import AttemptDir, RankDir
from starburst.runs.supervisor.enter import EnterError, enter
from starburst.store.listings.row_types import JobRow
from starburst.store.store import Store
from starburst.store.user_requests import note_entry

#: The first of these that is there is the shell.
SHELL = ["sh", "-c", "command -v bash >/dev/null && exec bash -i || exec sh -i"]

RunningJob = Annotated[
    str,
    typer.Argument(
        help="Id, name or unique beginning of one; ARRAY[INDEX] is a job of an array.",
        autocompletion=complete_jobs,
    ),
]
Rank = Annotated[int, typer.Option("--rank", min=0, help="In this task of a gang.")]


def exec(
    job: RunningJob,
    command: Annotated[list[str], typer.Argument(help="What to run, after --.")],
    *,
    rank: Rank = 0,
) -> None:
    """Run a command in a running job. It has the variables, directory, GPUs and account of the job."""
    raise typer.Exit(_run(job, rank, command))


def shell(job: RunningJob, *, rank: Rank = 0) -> None:
    """Open a shell in a job that runs."""
    raise typer.Exit(_run(job, rank, SHELL))


def _run(job: str, rank: int, command: list[str]) -> int:
    """Run a command in a job; its exit code, or 128 and the number of the signal that ended it."""
    with open_store() as store:
        row = one_job(LocalBackend(Home.default(), store), job)
        submission = store.submission(row.id)
        tasks = 1 if submission is None else len(submission.job.tasks)
        if rank >= tasks:
            raise UserError(
                f"--rank: {rank}: the last task of job/{row.id} is {tasks - 1}; give one up to that"
            )
        if row.phase != Phase.RUNNING.value:
            raise UserError(f"job/{row.id} does not run: it is {row.phase}")
        argv, task = _place(store, row, rank, command)
        with store.write() as conn:
            note_entry(conn, row.id, this_user(), time.time())
    if task is None:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command
        try:
            code = os.spawnvp(os.P_WAIT, argv[0], argv)
        finally:
            signal.signal(signal.SIGINT, before)
        return 128 - code if code < 0 else code  # ended by a signal
    try:
        return enter(task.path, command)
    except EnterError as error:
        raise UserError(f"job/{row.id}: {error}") from None


def _place(store: Store, row: JobRow, rank: int, command: Sequence[str]) -> tuple[list[str], RankDir | None]:
    """The program that runs a command in a pod or on a machine; or the directory of an embedded task."""
    config, home = stored_config(store), Home.default()
    of_cluster = row.site == Site.CLUSTER.value
    if of_cluster and isinstance(config.cluster, KubernetesConfig):
        return [*asyncio.run(_of_pod(store, config.cluster, row, rank)), *command], None
    if not of_cluster and isinstance(config.cloud, SkyConfig):
        return asyncio.run(_of_machine(store, home, row, rank, command)), None
    root = home.cluster if of_cluster else home.cloud / "runs"
    return [], RankDir(AttemptDir.of(root, row.id, row.attempt).path / str(rank))


async def _of_machine(store: Store, home: Home, row: JobRow, rank: int, command: Sequence[str]) -> list[str]:
    """An ssh login to the rented machine of a task."""
    root = home.cloud / "sky"
    naming = Naming(OWNER, str(store.fact("controller")))
    transport = SshTransport(root)
    try:
        found = login_of(FileJournal(journal_root(root)), naming, row.id, row.attempt, rank)
        return await transport.enter(found.node, found.access, found.task, command)
    except (SkyError, OSError) as error:
        raise UserError(
            f"job/{row.id} runs on {row.runs_on}: {error}; starburst logs {row.id} -f shows what it writes"
        ) from None


async def _of_pod(store: Store, cluster: KubernetesConfig, row: JobRow, rank: int) -> list[str]:
    """`kubectl exec` into the pod of a task."""
    from starburst.app.wiring.kube_client import connect, need_kubernetes  # noqa: PLC0415 - an extra

    need_kubernetes()
    from starburst.clusters.kubernetes.logs import find_pod_logs  # noqa: PLC0415 - an extra
    from starburst.kube.errors import ApiError, ApiUnreachableError, KubeCredentialsError  # noqa: PLC0415

    if shutil.which("kubectl") is None:
        raise UserError("kubectl is not on the PATH; a job on Kubernetes is entered with it: install it")
    submission = store.submission(row.id)
    assert submission is not None
    try:
        api = await connect(cluster)
    except KubeCredentialsError as error:
        raise UserError(str(error)) from None
    try:
        found = await find_pod_logs(
            api, row.id, submission.workload, default_namespace=cluster.namespace, current=row.attempt
        )
    except (ApiError, ApiUnreachableError) as error:
        raise UserError(f"{api.host}: {error}; see what is amiss with: starburst doctor") from None
    finally:
        await api.close()
    pods = [pod for pod in found if (pod.attempt, pod.rank, pod.over) == (row.attempt, rank, False)]
    if not pods:
        raise UserError(f"job/{row.id}: task {rank} has no pod that runs")
    options = {"--kubeconfig": cluster.kubeconfig, "--context": cluster.context}
    return [
        "kubectl",
        *(f"{name}={value}" for name, value in options.items() if value is not None),
        *("exec", "-i", *(["-t"] if sys.stdin.isatty() else [])),
        *("-n", pods[-1].namespace, pods[-1].pod, "-c", pods[-1].container, "--"),
    ]
