"""The server that was named, and whom that concerns; everything starts with it: it imports little."""

from __future__ import annotations

from contextvars import ContextVar

from starburst.app.errors import UserError

#: Its URL; "" is none: the home is asked.
chosen: ContextVar[str] = ContextVar("chosen", default="")
#: Whether the token may be sent there unencrypted.
unencrypted: ContextVar[bool] = ContextVar("unencrypted", default=False)

#: Commands that ask it. All others are about this machine.
REMOTE = (
    "submit",
    "status",
    "explain",
    "logs",
    "cancel",
    "hold",
    "release",
    "instances",
    "cost",
    "events",
)
#: Of the others those that would tell of this home where one expects to be told of the server.
OF_THE_HOME = ("reap", "token", "doctor")


def choose(server: str, command: str, *, typed: bool, insecure: bool = False) -> None:
    """Note the server for a command; `typed`: it was named on the command line, not by the environment.

    `insecure`: the token may be sent there unencrypted.

    Raises:
        UserError: the command does not ask servers, and what was meant is not what it would do.
    """
    unencrypted.set(insecure)
    if command in REMOTE:
        chosen.set(server)
        return
    chosen.set("")
    if server and (typed or command in OF_THE_HOME):
        raise UserError(f"{command}: is about this machine, it asks no server; {_without(server)}")


def refuse_history(server: str) -> None:
    """The finished jobs of a home are not what who has named a server means.

    Raises:
        UserError: one was named.
    """
    if server:
        raise UserError(f"--history: is that of this machine's home; {_without(server)}")


def _without(server: str) -> str:
    return f"run it where {server} runs, without --server and STARBURST_SERVER"
