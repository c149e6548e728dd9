"""The `starburst` command: its subcommands, and the mapping of errors to lines and exit codes."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from types import FrameType
from typing import Any

import typer
from typer.core import TyperGroup

from sim.errors import SimulationError
from starburst import __version__
from starburst.app.errors import UserError
from starburst.cli.service.server import choose
from starburst.cli.streams import INTERRUPTED, safe_output
from starburst.store.errors import StoreError
from starburst.visible import visible

#: Subcommands in the order of `--help`: the module of each, which has a function of that name or a Typer
#: `app`.
COMMANDS = {
    "up": "service.up",
    "drain": "service.drain",
    "submit": "jobs.submit",
    "translate": "tools.translate",
    "status": "jobs.status",
    "explain": "jobs.explain",
    "logs": "runs.logs",
    "exec": "runs.execute",
    "shell": "runs.execute",
    "cancel": "jobs.control",
    "hold": "jobs.control",
    "release": "jobs.control",
    "cronjobs": "jobs.cronjobs",
    "requeue": "jobs.control",
    "edit": "jobs.control",
    "top": "service.top",
    "queues": "jobs.queues",
    "nodes": "service.nodes",
    "instances": "service.instances",
    "reap": "service.reap",
    "cost": "jobs.cost",
    "events": "jobs.events",
    "token": "service.token",
    "backup": "service.backup",
    "restore": "service.backup",
    "migrate-store": "service.backup",
    "export": "service.export",
    "doctor": "service.doctor",
    "config": "service.config",
    "simulate": "tools.simulate",
    "advise": "tools.advise",
    "what-if": "tools.what_if",
    "traces": "tools.trace_formats",
    "pack": "tools.pack",
    "demo": "service.demo",
}


#: What Typer raises for a command line that it cannot read: click's UsageError, of which it may have its own.
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]

#: Words of kubectl, Slurm, SkyPilot and Ray for what a command here does.
ELSEWHERE = {
    **dict.fromkeys(("apply", "create", "launch", "run", "sbatch"), "submit"),
    **dict.fromkeys(("get", "list", "ls", "ps", "queue", "squeue"), "status"),
    **dict.fromkeys(("delete", "kill", "scancel", "stop"), "cancel"),
    "describe": "explain",
    **dict.fromkeys(("srun", "ssh", "attach"), "shell"),
    "sinfo": "nodes",
}


#: Bytes of an argument that are not text, as Python has them.
_UNDECODED = re.compile("[\udc80-\udcff]")

#: What pydantic, which Typer checks values with, says of a value; first the longer.
PLAIN_WORDS = {
    "Value error, ": "",
    "Input should be a valid integer, unable to parse string as an integer": "must be a whole number",
    "Input should be a valid number, unable to parse string as a number": "must be a number",
    "Input should be": "must be",
}


class Subcommands(Mapping[str, Any]):
    """Imports a subcommand on demand, so that `status` does not import the dependencies of `up`."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        module = import_module(f"starburst.cli.{COMMANDS[name]}")
        if hasattr(module, "app"):
            return _plain(typer.main.get_command(module.app))
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name)(getattr(module, name.replace("-", "_")))
        return _plain(typer.main.get_command(alone))

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def _plain(command: Any) -> Any:
    """The command; its help shows the types of values without those of Python: <str>, not <list[str]>."""
    for part in getattr(command, "commands", {}).values():
        _plain(part)
    for param in command.params:
        shown = param.display_type
        param.display_type = lambda ctx, shown=shown: (
            shown(ctx).replace("<list[", "<").replace("]>", ">").replace(" range>", ">")
        )
    return command


class LazyGroup(TyperGroup):
    """A group of `Subcommands`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = Subcommands()

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is named; the words of other programs have theirs suggested."""
        if args and args[0] in ELSEWHERE:
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{ELSEWHERE[args[0]]}'?")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="starburst",
    cls=LazyGroup,
    help="A hybrid-cloud burst scheduler: what waits for the cluster, what leaves for the cloud, and why.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(show: bool) -> None:
    if show:
        print(f"starburst {__version__}")
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
    server: str = typer.Option(
        "",
        "--server",
        metavar="URL",
        envvar="STARBURST_SERVER",
        help="Ask this one over HTTP, not the home; STARBURST_TOKEN is the token.",
    ),
    insecure: bool = typer.Option(
        False,
        "--insecure",
        envvar="STARBURST_INSECURE",
        help="Send the token to another machine without TLS: where nobody listens in.",
    ),
) -> None:
    """A hybrid-cloud burst scheduler."""
    source = context.get_parameter_source("server")
    typed = source is not None and source.name == "COMMANDLINE"
    choose(server, context.invoked_subcommand or "", typed=typed, insecure=insecure)


def run() -> None:
    """Entry point of the console script.

    Exit codes: 2 for invalid input, with a line per problem; 130 for Ctrl-C; 1 for output that nothing takes.
    """
    signal.signal(signal.SIGINT, _interrupted)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, no child has an exit code
    with safe_output():
        try:
            _refuse_undecoded(sys.argv[1:])
            sys.exit(app(standalone_mode=False))
        except typer.Abort:
            print("aborted", file=sys.stderr)
            sys.exit(1)
        except USAGE_ERROR as error:
            _explain_usage(error)
            sys.exit(2)
        except (UserError, StoreError, SimulationError) as error:
            for line in str(error).splitlines():
                print(visible(f"error: {line}"), file=sys.stderr)
            sys.exit(2)


def _refuse_undecoded(words: Iterable[str]) -> None:
    """Refuse arguments that are not text in the encoding of the locale, unless they name a file.

    Raises:
        UserError: one is not; no store and no server could be asked for it.
    """
    for word in words:
        if _UNDECODED.search(word) and not os.path.lexists(word):
            encoding = sys.getfilesystemencoding().upper()
            raise UserError(f"{word}: is not text in {encoding}, the encoding of this locale; correct it")


def _explain_usage(error: Any) -> None:
    """Say in a line what is wrong with the command line; of a group without a command show the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return
    told = " ".join(error.format_message().split()).rstrip(".")
    for words, plain in PLAIN_WORDS.items():
        told = told.replace(words, plain)
    command = "starburst" if error.ctx is None else error.ctx.command_path
    print(visible(f"error: {told}; see {command} --help"), file=sys.stderr)


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    if sys.stderr.isatty():
        print(file=sys.stderr)  # the shell's prompt goes to a line of its own, behind ^C
    sys.exit(INTERRUPTED)
