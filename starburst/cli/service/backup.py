"""`starburst backup`, `restore` and `migrate-store`: copies of the home's store, and its moves."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from starburst.app.config.home import Home
from starburst.app.errors import UserError
from starburst.app.rented_numbers import highest_number
from starburst.cli.output import say
from starburst.store import tokens
from starburst.store.engine import is_postgres
from starburst.store.errors import StoreError
from starburst.store.listings import queries
from starburst.store.store import Store
from starburst.store.upkeep.backup import back_up, back_up_server, check, discard, restore_server, stage, swap
from starburst.store.upkeep.moving import move

NOT_IN_IT = "jobs submitted since the backup are not in it, and machines rented since end: see starburst reap"


def backup(
    file: Annotated[Path | None, typer.Argument(help="A new file; by default named after the time.")] = None,
) -> None:
    """Copy the store into one file, also while starburst runs."""
    home = Home.default()
    target = file or Path(f"starburst-{_stamp()}.db")
    if isinstance(home.store, str):
        back_up_server(home.store, target)
    else:
        back_up(home.database, target)
    say(f"{target}: {_contents(target)}, of {home.root}")


def restore(
    file: Annotated[Path, typer.Argument(help="A file that starburst backup made.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Put a backup in the place of the store. The store is kept beside it; starburst must be down."""
    home = Home.default()
    check(file)
    home.make()
    with home.lock():
        staged = stage(file, home.database, highest_number(home))
        try:
            contents, revived = _contents(staged), _revived(home, staged)
            if not yes:
                _ask(f"put {file} ({contents}) in the place of {home.store_name}")
            if isinstance(home.store, str):
                kept = str(home.root / f"starburst-before-{_stamp()}.db")
                back_up_server(home.store, Path(kept))
                restore_server(staged, home.store)
            else:
                aside = home.database.with_name(f"{home.database.name}.before-{_stamp()}")
                swap(staged, home.database, aside)
                kept = f"{aside.name} beside it"
        finally:
            discard(staged)
    say(f"{home.store_name}: restored, {contents}; what was there is {kept}")
    say(NOT_IN_IT)
    if revived:
        say(f"tokens that are valid again: {', '.join(revived)}; revoke each: starburst token revoke NAME")


def migrate_store(
    file: Annotated[Path, typer.Argument(help="The starburst.db of a home.", metavar="SQLITE")],
    url: Annotated[str, typer.Argument(help="An empty database: postgresql://USER@HOST/DATABASE.")],
) -> None:
    """Move a home's store from its SQLite file to PostgreSQL. Starburst must be down."""
    if not is_postgres(url):
        raise UserError(f"{url}: is no URL such as postgresql://USER@HOST/DATABASE; correct it")
    check(file)
    home = replace(Home(file.absolute().parent), url=url)
    if file.absolute() != home.database:
        raise UserError(
            f"{file}: is not the {home.database.name} of a home; a backup comes in with starburst restore"
        )
    with home.lock():
        moved = move(file, url)
        home.remember_store()
        aside = file.with_name(f"{file.name}.moved-{_stamp()}")
        file.replace(aside)
    rows = ", ".join(f"{count:,} {name}" for name, count in moved.items() if count)
    say(f"{home.store_name}: has {rows}")
    say(f"all commands on {home.root} use it from now on; what was there is {aside.name}")


def _revived(home: Home, staged: Path) -> list[str]:
    """Names of tokens of a backup that the home's store does not have, as they were revoked since."""
    if not isinstance(home.store, str) and not home.store.exists():
        return []
    with Store.open(staged) as store:
        theirs = tokens.listed(store)
    try:
        with Store.open(home.store) as store:
            ours = {(token.name, token.created_at) for token in tokens.listed(store)}
    except StoreError:  # it is damaged, and may have had none of them
        ours = set()
    return [token.name for token in theirs if (token.name, token.created_at) not in ours]


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
