"""Whether replicas of a store share its home, where logs, checkpoints and notes on rented machines are."""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import suppress

import structlog

from starburst.app.config import Config
from starburst.app.config.home import Home
from starburst.app.daemon.home_lock import KERNEL
from starburst.app.errors import UserError
from starburst.app.leadership.status import leader_of
from starburst.store.store import Store

log = structlog.get_logger()

#: The file with a home's id, and the key of what the store knows about the leader's home.
FILE, FACT = "home.id", "home"


def check_home(home: Home, config: Config, store: Store, *, standby: bool) -> None:
    """Compare this home with that of the store's last leader; one that is not to stand by may move.

    Raises:
        UserError: it is another one; or jobs run as processes of another machine.
    """
    last = store.fact(FACT)
    if last is None or store.path == home.database:
        return
    if last["id"] != _id(home):
        told = f"{home.root}: is not the home of this store's last leader, {last['where']}"
        if standby:
            raise UserError(
                f"{told}: replicas share one; mount that directory here; if it is lost, start one replica "
                "without --standby first"
            )
        log.warning("new-home", note=f"{told}; logs, checkpoints and notes on rented machines are there")
    embedded = config.on_this_machine()
    if embedded and last["kernel"] != _kernel() and leader_of(store) is not None:
        raise UserError(
            f"{' and '.join(sorted(embedded))}: jobs run as processes of the machine of {last['where']}: "
            "embedded sites have all their replicas there"
        )


def note_home(home: Home, store: Store) -> None:
    """Have the store know this home, as its leader's."""
    if store.path != home.database:
        where = f"{socket.gethostname()}:{home.root}"
        store.set_fact(FACT, {"id": _id(home), "where": where, "kernel": _kernel()})


def _id(home: Home) -> str:
    """The home's id, made at the first call."""
    file = home.root / FILE
    if not file.exists():
        staged = file.with_suffix(f".{os.getpid()}")
        staged.write_text(secrets.token_hex(16) + "\n")
        with suppress(FileExistsError):
            os.link(staged, file)  # whole, and once
        staged.unlink()
    return file.read_text().strip()


def _kernel() -> str:
    try:
        return KERNEL.read_text().strip()
    except OSError:
        return ""
