"""Checks whether the embedded sites can run jobs as configured, and what submitters can do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from starburst.app.config import Config
from starburst.app.config.run_as import RunsJobs, cannot_separate
from starburst.app.doctor.doctor import DoctorCheck, fail, ok, warn
from starburst.app.jobs.submitting import this_user
from starburst.runs.accounts import RunAs, RunAsPool, RunAsSandbox, why_not
from starburst.store.tokens import Role, Token

#: The uid of a trial run: nobody, on every Linux.
NOBODY = 65534


def site_check(name: str, site: RunsJobs, found: str) -> DoctorCheck:
    """The check of an embedded site by a trial run."""
    unfit = site.unfit()
    if unfit:
        found, _, mend = unfit.partition("; ")
        return fail(name, found, mend)
    if site.is_auto:
        why = cannot_separate()
        others = f"nobody can be kept apart here: {why}" if why else "others are kept apart"
        return ok(name, f"{found}, admins' jobs run as {this_user()}, {others} (run_as: auto)")
    if not site.keeps_users_apart:
        return ok(name, f"{found}, jobs run as {this_user()} (run_as: self)")
    why = why_not(_make(site))
    if why:
        mend = "let it, or set run_as: self, where who submits can do what an admin can"
        return fail(name, f"run_as: {site.run_as}: this machine does not let us: {why}", mend)
    return ok(name, f"{found}, users are kept apart (run_as: {site.run_as})")


def trusting(config: Config) -> list[str]:
    """The embedded sites whose jobs run as Starburst's user."""
    return [name for name, site in config.on_this_machine().items() if not site.keeps_users_apart]


def trust_check(config: Config, known: list[Token]) -> list[DoctorCheck]:
    """Warnings where submitters have more rights than their tokens say."""
    sites, hinted = trusting(config), "submit" in config.bus.accept
    submitters = [f"submitter {token.name!r}" for token in known if token.role is Role.SUBMITTER]
    submitters += ["hints of the bus"] if hinted else []
    if sites and submitters:
        many = submitters[0] + (f" and {len(submitters) - 1} more" if len(submitters) > 1 else "")
        return [warn("tokens", f"{many}: {can_do_all(sites)}", f"set {sites[0]}.run_as")]
    boxed = any(_boxes(site, hinted) for site in config.on_this_machine().values())
    if boxed and config.http.enabled and not known:
        why = "there is none, and without one the API takes jobs of a sandbox for who runs it"
        return [warn("tokens", why, "starburst token create NAME --role admin")]
    return []


def _boxes(site: RunsJobs, hinted: bool) -> bool:
    """Whether jobs may run in a sandbox; an auto site without tokens counts by its hints alone."""
    return site.run_as == "sandbox" or (site.is_auto and hinted and os.geteuid() != 0)


def can_do_all(sites: list[str]) -> str:
    """The consequence of submitting to these sites, in words."""
    where = " and ".join(sites)
    return f"jobs of the embedded {where} run as {this_user()}, so who submits can do what an admin can"


def _make(site: RunsJobs) -> Callable[[Path], RunAs]:
    """The strategy of a site; for run_as: submitter with the user nobody."""
    if site.run_as == "sandbox":
        return RunAsSandbox
    first = int(site.pool.partition("-")[0]) if site.pool is not None else NOBODY
    return lambda home: RunAsPool(home, home / "accounts", first, first)
