"""The fields `run_as` and `pool` of the embedded cluster and cloud: as whom jobs run."""

from __future__ import annotations

import os
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from starburst.app.config_fields import Section
from starburst.app.home import Home
from starburst.runs.accounts import LEAST_UID, Pool, RunAs, Sandbox, Self, Submitter

#: Ids of Linux above this one have meanings of their own.
MOST_UID = 4_000_000_000

RunAsName = Literal["self", "sandbox", "submitter", "pool"]


def _range(value: str) -> str:
    found = re.fullmatch(r"([0-9]{1,10})-([0-9]{1,10})", value)
    if found is None or not LEAST_UID <= int(found[1]) <= int(found[2]) <= MOST_UID:
        raise ValueError(f"must be two ids from {LEAST_UID} up, the smaller first, such as 20000-20999")
    return value


class RunsJobs(Section):
    """What a site has that runs jobs on this machine."""

    run_as: RunAsName | None = Field(
        None,
        description="null is self, of the cloud as the embedded cluster has it; self: as who runs Starburst, "
        "so whoever submits can do what Starburst can; kept apart from each other and from Starburst: "
        "submitter (their own Unix accounts) and pool (an id of `pool` per user), if root runs it, and "
        "sandbox (namespaces of the kernel), if another account does",
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
    def keeps_users_apart(self) -> bool:
        """Whether who submits cannot do what Starburst can."""
        return self.run_as not in (None, "self")

    def runs_as(self, home: Home) -> RunAs:
        """The same for the sites themselves."""
        if self.run_as == "sandbox":
            return Sandbox(home.root)
        if self.run_as == "submitter":
            return Submitter(home.root)
        if self.pool is not None:
            first, _, last = self.pool.partition("-")
            return Pool(home.root, home.root / "accounts", int(first), int(last))
        return Self()

    def unfit(self) -> str:
        """Why this process cannot run jobs so; "" if it can, as far as its account tells."""
        is_root = os.geteuid() == 0
        if self.run_as == "sandbox" and is_root:
            return "run_as: sandbox: is for another account than root; set run_as: pool or submitter"
        if self.run_as in ("submitter", "pool") and not is_root:
            return f"run_as: {self.run_as}: only root may; run starburst as root, or set run_as: sandbox"
        return ""
