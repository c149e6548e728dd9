"""The fields `run_as` and `pool` of the embedded cluster and cloud: as whom jobs run."""

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

#: Ids of Linux above this one have meanings of their own.
MOST_UID = 4_000_000_000
#: Ids for run_as: auto, which no system gives: systemd's "Users, Groups, UIDs and GIDs on systemd systems".
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
        """Whether the machine decides how users are kept apart."""
        return self.run_as in (None, "auto")

    @property
    def keeps_users_apart(self) -> bool:
        """Whether who submits and is no admin cannot do what Starburst can."""
        return not cannot_separate() if self.is_auto else self.run_as != "self"

    def runs_as(self, home: Home) -> RunAs:
        """The same for the sites themselves."""
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
        """Why this process cannot run jobs so; "" if it can, as far as its account tells."""
        is_root = os.geteuid() == 0
        if self.run_as == "sandbox" and is_root:
            return "run_as: sandbox: is for another account than root; set run_as: pool or submitter"
        if self.run_as in ("submitter", "pool") and not is_root:
            return f"run_as: {self.run_as}: only root may; run starburst as root, or set run_as: sandbox"
        return ""


def separated(home: Path) -> RunAs:
    """How users are kept apart under run_as: auto, by the account of this process."""
    if os.geteuid() == 0:
        return RunAsPool(home, home / "accounts", AUTO_FIRST, AUTO_LAST)
    return RunAsSandbox(home)


@cache
def cannot_separate() -> str:
    """Why `separated` cannot be had on this machine; "" if it can. It is tried once."""
    return why_not(separated)
