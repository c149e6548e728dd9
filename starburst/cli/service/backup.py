"""`starburst backup` and `restore`: a copy of the home's store, and its return."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from starburst.app.config.home import Home
from starburst.app.errors import UserError
from starburst.cli.output import say
from starburst.store.backup import back_up, check, discard, stage, swap
from starburst.store.listings import queries
from starburst.store.store import Store


def backup(
    file: Annotated[Path | None, typer.Argument(help="A new file; by default named after the time.")] = None,
) -> None:
    """Copy the store into one file, also while starburst runs."""
    home = Home.default()
    target = file or Path(f"starburst-{_stamp()}.db")
    back_up(home.database, target)
    say(f"{target}: {_contents(target)}, of {home.root}")


def restore(
    file: Annotated[Path, typer.Argument(help="A file that starburst backup made.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Put a backup in the place of the store, which is kept beside it. Starburst must be down."""
    home = Home.default()
    check(file)
    home.make()
    with home.lock():
        staged = stage(file, home.database)
        try:
            contents = _contents(staged)
            if not yes:
                _ask(f"put {file} ({contents}) in the place of {home.database}")
            aside = home.database.with_name(f"{home.database.name}.before-{_stamp()}")
            swap(staged, home.database, aside)
        finally:
            discard(staged)
    say(f"{home.database}: restored, {contents}; what was there is {aside.name} beside it")
    say("jobs submitted since the backup are not in it, and machines rented since end: see starburst reap")


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise UserError(f"would {question}; to do it without a question, add --yes")
    typer.confirm(f"{question}?", abort=True)


def _contents(file: Path) -> str:
    with Store.open(file) as store:
        counts = queries.summary(store).jobs
    jobs = sum(counts.values())
    return f"{jobs:,} job{'' if jobs == 1 else 's'}"


def _stamp() -> str:
    return f"{datetime.now():%Y%m%d-%H%M%S}"  # noqa: DTZ005 - the user's own zone
