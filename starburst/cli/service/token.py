"""`starburst token`: creates, lists and revokes tokens of the HTTP API."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from starburst.app.doctor.embedded_checks import can_do_all, trusting
from starburst.app.errors import UserError
from starburst.app.times import iso, local_clock
from starburst.app.wiring.stored import stored_config
from starburst.cli.backend.session import open_store
from starburst.cli.output import Column, Format, Listing, OutputOption, print_data
from starburst.domain.job import Submitter
from starburst.store import tokens
from starburst.store.tokens import Role, Token
from translator.duration import seconds
from translator.object_names import DNS_LABEL, DNS_SUBDOMAIN

app = typer.Typer(
    help="Make, list or revoke tokens of the HTTP API.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

NAME = re.compile(r"[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?")


@app.command()
def create(  # noqa: PLR0917 - each is an option
    name: Annotated[str, typer.Argument(help="What it is called; jobs it submits are this user's.")],
    role: Annotated[
        Role, typer.Option("--role", help="viewer reads, submitter also runs jobs, admin may do everything.")
    ] = Role.VIEWER,
    queues: Annotated[
        list[str] | None, typer.Option("--queue", help="For jobs of this queue only; may be repeated.")
    ] = None,
    namespaces: Annotated[
        list[str] | None,
        typer.Option("--namespace", help="In Kubernetes: its jobs may go there, too; may be repeated."),
    ] = None,
    secrets: Annotated[
        list[str] | None,
        typer.Option("--secret", help="In Kubernetes: its jobs may use this Secret; may be repeated."),
    ] = None,
    kubernetes_user: Annotated[
        str, typer.Option("--kubernetes-user", help="In Kubernetes: its jobs are made in this user's name.")
    ] = "",
    kubernetes_groups: Annotated[
        list[str] | None, typer.Option("--kubernetes-group", help="A group of that user; may be repeated.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="DURATION", help="Such as 30d; never if absent.")
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Make a token and print it, this once."""
    if not NAME.fullmatch(name):
        raise UserError(
            f"NAME: {name!r}: must be letters, digits, dashes, dots and underscores, 63 at most, "
            "with a letter or digit at each end"
        )
    now = time.time()
    grant = _grant(namespaces or (), secrets or (), kubernetes_user, kubernetes_groups or ())
    token = Token(name, role, tuple(queues) if queues else None, now, _end(expires, now), grant=grant)
    with open_store() as store:
        secret = tokens.create(store, token)
        trusted = trusting(stored_config(store)) if role is Role.SUBMITTER else []
    if trusted:
        print(f"warning: {can_do_all(trusted)}; to keep users apart set {trusted[0]}.run_as", file=sys.stderr)
    if output is Format.NAME:
        print(f"token/{name}")
    elif output.for_people:
        print(secret)
        print("note: it is shown this once; bearers send it as STARBURST_TOKEN", file=sys.stderr)
    else:
        print_data({**_keys(token), "token": secret}, output)


@app.command("list")
def list_(output: OutputOption = Format.TABLE) -> None:
    """List tokens, without their secrets."""
    with open_store() as store:
        _listing(time.time()).print(tokens.listed(store), output)


@app.command()
def revoke(name: Annotated[str, typer.Argument(help="As the list has it.")]) -> None:
    """Take a token back: its next request is refused."""
    with open_store() as store:
        tokens.revoke(store, name)
    print(f"token/{name} revoked")


def _grant(namespaces: Sequence[str], secrets: Sequence[str], user: str, groups: Sequence[str]) -> Submitter:
    """The rights of the token's jobs in a Kubernetes cluster."""
    for option, given, form in (("--namespace", namespaces, DNS_LABEL), ("--secret", secrets, DNS_SUBDOMAIN)):
        for name in given:
            if not form.fullmatch(name):
                raise UserError(f"{option}: {name!r}: is no name of one; write it as kubectl lists it")
    if groups and not user:
        raise UserError("--kubernetes-group: is of a --kubernetes-user; name that, too")
    for option, name in (("--kubernetes-user", user), *(("--kubernetes-group", group) for group in groups)):
        if name.startswith("system:") or not name.isprintable() or not name.isascii():
            raise UserError(f"{option}: {name!r}: must be a person's or a team's, of ASCII, without system:")
    return Submitter(False, tuple(namespaces), tuple(secrets), user, tuple(groups))


def _end(expires: str | None, now: float) -> float | None:
    if expires is None:
        return None
    try:
        after_s = seconds(expires)
    except ValueError as error:
        raise UserError(f"--expires: {expires!r}: {error}") from None
    if after_s <= 0:
        raise UserError(f"--expires: {expires!r}: must be more than nothing; write 30d")
    return now + after_s


def _keys(token: Token) -> dict[str, object]:
    return {
        "name": token.name,
        "role": token.role.value,
        "queues": None if token.queues is None else list(token.queues),
        "namespaces": list(token.grant.namespaces),
        "secrets": list(token.grant.secrets),
        "kubernetes_user": token.grant.kubernetes_user,
        "kubernetes_groups": list(token.grant.kubernetes_groups),
        "created_at": iso(token.created_at),
        "expires_at": iso(token.expires_at),
        "last_used_at": iso(token.last_used_at),
    }


def _in_kubernetes(token: Token) -> str:
    """These rights in a few words."""
    grant = token.grant
    parts = [f"as {grant.kubernetes_user}"] if grant.kubernetes_user else []
    parts += [f"namespace {name}" for name in grant.namespaces]
    return ", ".join([*parts, *(f"secret {name}" for name in grant.secrets)])


def _listing(now: float) -> Listing[Token]:
    clock = local_clock(now)

    def when(at: float | None) -> str:
        return "never" if at is None else clock(at)

    def dim(token: Token) -> str:
        return "" if token.holds(now) else "dim"

    return Listing(
        kind="token",
        name=lambda token: token.name,
        keys=_keys,
        columns=(
            Column("TOKEN", lambda token: token.name, style=dim),
            Column("ROLE", lambda token: token.role.value),
            Column("QUEUES", lambda token: ", ".join(token.queues or ("all",)), narrow="fold"),
            Column("IN KUBERNETES", _in_kubernetes, narrow="fold"),
            Column("MADE", lambda token: clock(token.created_at), right=True),
            Column("EXPIRES", lambda token: when(token.expires_at), right=True),
            Column("LAST USED", lambda token: when(token.last_used_at), right=True),
        ),
        empty="no tokens: the HTTP API answers this machine only",
    )
