"""`starburst submit`: all of the files or, if anything in them is bad, nothing."""

from __future__ import annotations

import getpass
import os
import secrets
import sys
import time
from pathlib import Path
from typing import Annotated, TextIO

import typer

from starburst.app.build import carries, live_core, stored_config
from starburst.app.errors import UserError
from starburst.cli.explain import explanation_keys
from starburst.cli.output import Format, OutputOption, print_data
from starburst.cli.session import note_if_down, open_store
from starburst.cli.times import local_clock
from starburst.core.explain import foretell
from starburst.domain.cloud import ANY_OFFER
from starburst.domain.job import CloudChoice, Phase, Submission, is_over
from starburst.store import queries
from starburst.store.store import Store
from translator.errors import ManifestErrors
from translator.manifest import read_manifests

#: Letters and digits of id suffixes; none that is easily taken for another, no vowels, so no words.
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
POLL_S = 0.3


def submit(
    files: Annotated[list[str], typer.Argument(help="Kubernetes Job or Pod YAML; - is standard input.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would happen; submit nothing.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until all of them have ended; exit 1 if one failed.")
    ] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Submit jobs: all or, if one is bad, none."""
    if dry_run and wait:
        raise UserError("--wait: a dry run submits nothing to wait for; drop --wait or --dry-run")
    with open_store() as store:
        config = stored_config(store)
        native = config.cluster.kind == "kubernetes"
        submissions = read_files(files, native=native, carries=carries(config))
        if dry_run:
            _foretell(store, submissions, output)
            return
        _refuse_barred(store, submissions)
        store.submit(submissions, time.time())
        _say_submitted(submissions, output)
        note_if_down()
        if wait:
            ended = sys.stdout if output.for_people else sys.stderr
            raise typer.Exit(_wait(store, [s.job.id for s in submissions], ended))


def read_files(files: list[str], *, native: bool, carries: bool = False) -> list[Submission]:
    """Everything in the files; an image alone is not enough unless a `native` Kubernetes runs it.

    `carries` as for `read_manifests`.

    Raises:
        UserError: something cannot be read or is bad; every problem of every file is a line.
    """
    submissions: list[Submission] = []
    problems: list[str] = []
    for name in files:
        source = "<stdin>" if name == "-" else name
        try:
            text = (sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()).decode()
            found = read_manifests(text, source, suffix=_suffix, user=_user(), native=native, carries=carries)
        except OSError as error:
            problems.append(f"{source}: cannot be read ({error.strerror}); name an existing YAML file")
        except UnicodeDecodeError:
            problems.append(f"{source}: is not a text file; write YAML in UTF-8")
        except ManifestErrors as error:
            problems += str(error).splitlines()
        else:
            if not found:
                problems.append(f"{source}: there is no Job or Pod in it; write at least one")
            problems += [
                f"{source}, job {s.job.name}: containers[0].command: is missing; the embedded cluster runs "
                "commands of this machine, not images: write the command out"
                for s in found
                if not native and not s.workload.command
            ]
            submissions += found
    if problems:
        raise UserError("\n".join(problems))
    return submissions


def _refuse_barred(store: Store, submissions: list[Submission]) -> None:
    """Refuse jobs whose user demands machines that nobody offers, as far as the offers are known."""
    asking = [s.job for s in submissions if s.job.offer_rules != ANY_OFFER]
    if not asking:
        return
    fleet = live_core(store).fleet
    barred = [(job, fleet.barred(job)) for job in asking if job.cloud is not CloudChoice.NEVER]
    problems = [
        f"job {job.name}: {why}: change that annotation, or set starburst.io/cloud: never"
        for job, why in barred
        if why
    ]
    if problems:
        raise UserError("\n".join(problems))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in some containers
        return str(os.getuid())


def _suffix() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(5))


def _foretell(store: Store, submissions: list[Submission], output: Format) -> None:
    """Ask the live core what would become of them."""
    core = live_core(store)
    told = foretell(core, [s.job for s in submissions], local_clock(core.now))
    if output is Format.NAME:
        for submission in submissions:
            print(f"job/{submission.job.name}")
    elif not output.for_people:
        rows = [
            {"name": s.job.name, **explanation_keys(e), "notes": list(s.notes)}
            for s, e in zip(submissions, told, strict=True)
        ]
        print_data(rows, output)
    else:
        for submission, explanation in zip(submissions, told, strict=True):
            print(f"{submission.job.name} {explanation.sentence}")
            _print_notes(submission)


def _say_submitted(submissions: list[Submission], output: Format) -> None:
    if output is Format.NAME:
        for submission in submissions:
            print(f"job/{submission.job.id}")
    elif not output.for_people:
        rows = [{"id": s.job.id, "name": s.job.name, "notes": list(s.notes)} for s in submissions]
        print_data(rows, output)
    else:
        for submission in submissions:
            print(f"job/{submission.job.id} submitted")
            _print_notes(submission)
    sys.stdout.flush()


def _print_notes(submission: Submission) -> None:
    for note in submission.notes:
        print(f"  note: {note}", file=sys.stderr)


def _wait(store: Store, job_ids: list[str], out: TextIO) -> int:
    """Say each end as it comes; 0 if all succeeded."""
    waiting, failed = dict.fromkeys(job_ids), 0
    while waiting:
        for row in queries.jobs(store, ids=list(waiting)):
            if not is_over(row.phase):
                continue
            del waiting[row.id]
            failed += row.phase != Phase.SUCCEEDED.value
            left = f" ({len(waiting)} to go)" if waiting else ""
            print(f"job/{row.id} {row.phase}: {row.message}{left}", file=out, flush=True)
        if waiting:
            time.sleep(POLL_S)
    return 1 if failed else 0
