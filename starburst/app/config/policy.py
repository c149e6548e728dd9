"""The section `policy` of starburst.yaml."""

from __future__ import annotations

from typing import Literal

from pydantic import (
    Field,
    ValidationInfo,
    field_validator,
)

from starburst.app.config.fields import (
    MOST,
    NonNegative,
    OrderName,
    PackerName,
    Placement,
    Positive,
    Returns,
    Seconds,
    Section,
    Waiting,
)
from starburst.core.model.settings import Settings
from starburst.policy.disciplines.registry import DISCIPLINES
from starburst.policy.waiting import HOUR_S, WAITING

#: Fields of the section whose names in the core's `Settings` differ; all other names are the same.
SETTINGS = {
    "short_jobs": "short_job_s",
    "t_max": "t_max_s",
    "prior_gpus": "prior_size",
    "prior_runtime": "prior_runtime_s",
    "offer_pause": "offer_pause_s",
    "pack_window": "pack_window_s",
    "pack_period": "pack_period_s",
    "move_min_run": "move_min_run_s",
    "move_delay": "move_s",
    "unreachable": "unreachable_s",
    "max_grace": "max_grace_s",
}
#: Fields that intake reads, not the core.
OF_INTAKE = frozenset({"cannot_leave"})


class PolicyConfig(Section):
    """When jobs wait, leave, and come home."""

    waiting: Waiting = Field("compute", description="how the wait budget is shared out over jobs")
    budget_percent: float = Field(
        25.0, gt=0, le=10_000, allow_inf_nan=False, description="P: how much longer jobs may take on average"
    )
    budget_mode: Literal["open", "calibrated"] = Field(
        "open", description="open: the factor is what P gives in theory; calibrated: it follows what is spent"
    )
    hopeless: Literal["wait", "leave"] = Field(
        "wait", description="what a job does that, by estimates, cannot start before its wait ends"
    )
    max_slowdown: float | None = Field(
        None,
        ge=1,
        allow_inf_nan=False,
        description="no job waits so long that it takes more than this times its estimated run time",
    )
    factor: NonNegative | None = Field(
        None,
        description="the waiting policy's factor instead of what P gives: hours for constant, hours per GPU "
        "for resource and star, a ratio for runtime and compute",
    )
    order: OrderName = Field("fifo", description="who goes first in the queue")
    out_of_order: bool = Field(True, description="go on past a job that does not fit")
    max_passes: int = Field(
        1000,
        ge=0,
        le=MOST,
        description="a job without a deadline is passed by so many later ones at most, then nodes are kept "
        "for it; 0 is no limit",
    )
    backfill: bool = Field(False, description="EASY backfill; needs out_of_order: false")
    placement: Placement = Field("best-fit", description="which node a job gets")
    queue_limit: int | None = Field(
        None, ge=0, le=MOST, description="Q_max: beyond it the last job leaves at once; null is no limit"
    )
    offload_cpu_only: bool = Field(
        True, description="jobs without GPUs leave at once, unless nodes without GPUs have room for them"
    )
    cannot_leave: Literal["stay", "refuse"] = Field(
        "stay",
        description="what becomes of a job on Kubernetes that no cloud could run, for a volume that is not "
        "mapped, for example: stay: it waits for the cluster, with a note; refuse: it is refused",
    )
    short_jobs: Seconds = Field(0.0, description="shorter jobs leave at once; 0 is off")
    returns: Returns = Field("if-it-pays", description="when a cloud run comes home to the cluster")
    t_max: Seconds = Field(900.0, description="T_max: a cloud run this old is looked at for coming home")
    cpus_per_gpu: Positive = Field(50.0, description="CPUs that cost as much as one GPU")
    prior_gpus: Positive = Field(1.0, description="mean job size assumed before there is history")
    prior_runtime: Seconds = Field(3600.0, description="mean run time assumed before there is history")
    prior_jobs: Positive = Field(20.0, description="how many jobs that assumption counts as")
    offer_pause: Seconds = Field(300.0, description="an offer whose launch failed is left alone this long")
    packer: PackerName = Field("none", description="how jobs that leave share machines; none is one each")
    pack_window: Seconds = Field(
        0.0, description="how long the first to leave waits for others, to be packed with them"
    )
    pack_period: Seconds = Field(
        0.0, description="how often running cloud jobs are reconsidered, to move together; 0 is never"
    )
    move_min_run: Seconds = Field(
        600.0, description="a job that saves its progress may move when it has run this long"
    )
    move_delay: Seconds = Field(
        60.0, description="the time without progress that a move is taken to cost a job"
    )
    unreachable: Seconds = Field(
        600.0, description="a rented machine that does not answer for this long is ended"
    )
    max_grace: Seconds = Field(
        600.0, description="no run that is told to stop gets longer than this, whatever its job asks for"
    )

    @field_validator("out_of_order")
    @classmethod
    def _strict_order(cls, out_of_order: bool, info: ValidationInfo) -> bool:
        order = info.data.get("order")
        if order in DISCIPLINES and not out_of_order:
            raise ValueError(f"order: {order} goes past what does not fit; leave out_of_order out")
        return out_of_order

    @field_validator("backfill")
    @classmethod
    def _backfill_in_order(cls, backfill: bool, info: ValidationInfo) -> bool:
        if backfill and info.data.get("out_of_order"):
            raise ValueError("needs out_of_order: false; out of order is backfill without reservations")
        return backfill

    @field_validator("prior_runtime")
    @classmethod
    def _calibrated_by_run_times(cls, prior_runtime: float, info: ValidationInfo) -> float:
        if not prior_runtime and info.data.get("budget_mode") == "calibrated":
            raise ValueError("must be more than 0 if budget_mode is calibrated")
        return prior_runtime

    def settings(self) -> Settings:
        """The settings of the core, in SI units."""
        factor = self.factor
        if factor is not None and WAITING[self.waiting].factor_in_hours:
            factor *= HOUR_S
        fields = type(self).model_fields.keys() - OF_INTAKE
        values = {name: getattr(self, name) for name in fields} | {"factor": factor}
        return Settings(**{SETTINGS.get(name, name): value for name, value in values.items()})
