"""The chosen server, and the commands that it concerns.

Every command imports this module: it imports little.
"""

from __future__ import annotations

from contextvars import ContextVar

from starburst.app.errors import UserError

#: URL of the server; "" selects the home on this machine.
chosen: ContextVar[str] = ContextVar("chosen", default="")
#: Whether the token may be sent unencrypted.
unencrypted: ContextVar[bool] = ContextVar("unencrypted", default=False)

#: Commands that work on a server; all others work on this machine.
REMOTE = (
    "submit",
    "status",
    "explain",
    "logs",
    "cancel",
    "hold",
    "release",
    "requeue",
    "edit",
    "cronjobs",
    "instances",
    "cost",
    "events",
    "nodes",
    "queues",
    "top",
)
#: Local commands that users may expect to ask the server.
OF_THE_HOME = (
    "exec",
    "shell",
    "reap",
    "token",
    "doctor",
    "backup",
    "restore",
    "export",
    "what-if",
    "drain",
)


def choose(server: str, command: str, *, typed: bool, insecure: bool = False) -> None:
    """Choose the server of a command. `typed`: by the command line, not the environment.

    `insecure`: the token may be sent unencrypted.

    Raises:
        UserError: the command works on this machine only.
    """
    unencrypted.set(insecure)
    if command in REMOTE:
        chosen.set(server)
        return
    chosen.set("")
    if server and (typed or command in OF_THE_HOME):
        raise UserError(f"{command}: is about this machine, it asks no server; {_without(server)}")


def refuse_history(server: str) -> None:
    """Refuse `--history` together with a server: it reads the finished jobs of the local home.

    Raises:
        UserError: a server was chosen.
    """
    if server:
        raise UserError(f"--history: is that of this machine's home; {_without(server)}")


def _without(server: str) -> str:
    return f"run it where {server} runs, without --server and STARBURST_SERVER"
