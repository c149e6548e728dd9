"""The fields `run_as` and `pool` of the embedded sites: the Unix users that jobs run as."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from starburst.app.config.fields import Section
from starburst.app.config.home import Home
from starburst.runs.accounts import (
    LEAST_UID,
    RunAs,
    RunAsByRole,
    RunAsPool,
    RunAsSandbox,
    RunAsSelf,
    RunAsSubmitter,
    why_not,
)

#: Linux reserves ids above this one.
MOST_UID = 4_000_000_000
#: Ids for run_as: auto that no system assigns; see systemd, "Users, Groups, UIDs and GIDs on systemd
#: systems".
AUTO_FIRST, AUTO_LAST = 1_879_100_000, 1_879_109_999

RunAsName = Literal["auto", "self", "sandbox", "submitter", "pool"]


def _range(value: str) -> str:
    found = re.fullmatch(r"([0-9]{1,10})-([0-9]{1,10})", value)
    if found is None or not LEAST_UID <= int(found[1]) <= int(found[2]) <= MOST_UID:
        raise ValueError(f"must be two ids from {LEAST_UID} up, the smaller first, such as 20000-20999")
    return value


class RunsJobs(Section):
    """What a site has that runs jobs on this machine."""

    run_as: RunAsName | None = Field(
        None,
        description="null is auto, of the cloud as the embedded cluster has it; auto: admins as who runs "
        "Starburst, others apart if the machine can; self: as who runs Starburst, so whoever submits can "
        "do what Starburst can; kept apart from each other and from Starburst: submitter (their own Unix "
        "accounts) and pool (an id of `pool` per user), if root runs it, and sandbox (namespaces of the "
        "kernel), if another account does",
    )
    pool: Annotated[str, AfterValidator(_range)] | None = Field(
        None,
        validate_default=True,
        description="ids that are nobody's, for run_as: pool, such as 20000-20999; each user gets one",
    )

    @field_validator("pool")
    @classmethod
    def _pool_where_it_counts(cls, pool: str | None, info: ValidationInfo) -> str | None:
        if (pool is None) == (info.data.get("run_as") == "pool"):
            needs = "needs ids, such as 20000-20999" if pool is None else "goes with run_as: pool"
            raise ValueError(needs)
        return pool

    @property
    def is_auto(self) -> bool:
        """Whether the machine's abilities select the mode."""
        return self.run_as in (None, "auto")

    @property
    def keeps_users_apart(self) -> bool:
        """Whether submitters without the admin role are kept apart from Starburst's user."""
        return not cannot_separate() if self.is_auto else self.run_as != "self"

    def runs_as(self, home: Home) -> RunAs:
        """The strategy for the embedded sites."""
        if self.is_auto:
            return RunAsSelf() if cannot_separate() else RunAsByRole(separated(home.root))
        if self.run_as == "sandbox":
            return RunAsSandbox(home.root)
        if self.run_as == "submitter":
            return RunAsSubmitter(home.root)
        if self.pool is not None:
            first, _, last = self.pool.partition("-")
            return RunAsPool(home.root, home.root / "accounts", int(first), int(last))
        return RunAsSelf()

    def unfit(self) -> str:
        """The reason why this process cannot use the mode, as far as its user tells; "" if it can."""
        is_root = os.geteuid() == 0
        if self.run_as == "sandbox" and is_root:
            return "run_as: sandbox: is for another account than root; set run_as: pool or submitter"
        if self.run_as in ("submitter", "pool") and not is_root:
            return f"run_as: {self.run_as}: only root may; run starburst as root, or set run_as: sandbox"
        return ""


def separated(home: Path) -> RunAs:
    """The strategy of run_as: auto for this process's user."""
    if os.geteuid() == 0:
        return RunAsPool(home, home / "accounts", AUTO_FIRST, AUTO_LAST)
    return RunAsSandbox(home)


@cache
def cannot_separate() -> str:
    """The reason why `separated` does not work on this machine, by a trial that is cached; "" if it works."""
    return why_not(separated)
