"""The journal entry of a new run, or the reason why it cannot run on rented machines."""

from __future__ import annotations

from collections.abc import Mapping

from starburst.clouds.sky.access.answers import visible
from starburst.clouds.sky.context import SkyContext
from starburst.clouds.sky.machines.machine import RentedMachine
from starburst.clouds.sky.runs.docker import runs_in_container
from starburst.clouds.sky.runs.entry import RankEntry, RunEntry
from starburst.clouds.sky.runs.runtime_values import manifest_to_keep
from starburst.clouds.sky.runs.spec import spec_of
from starburst.clouds.sky.runs.storage import volumes_of
from starburst.core.model.events import RunEnd, RunEnded
from starburst.domain.images import MEND, is_image
from starburst.domain.job import Workload
from starburst.runs.ports import Run
from translator.tasks.runtime_values import UnresolvedError


def prepare(
    run: Run, machines: Mapping[str, RentedMachine], context: SkyContext
) -> tuple[RunEntry, RunEnded | None]:
    """The entry of a run that has not begun; and its end, if it cannot begin."""
    slots = sorted(run.slots, key=lambda slot: slot.rank)
    ranks = [RankEntry(slot.where) for slot in slots]
    entry = RunEntry(run.job.id, run.attempt, ranks, run.job.checkpoint)
    why = _refusal(run.workload)
    if why:
        return entry, RunEnded(*entry.key, RunEnd.REFUSED, message=why)
    for slot in slots:
        machine = machines.get(slot.where)
        if machine is None or not machine.takes_runs:
            return entry, RunEnded(*entry.key, RunEnd.LOST, message=f"{slot.where} takes no runs")
    inputs = context.inputs
    try:
        inputs.admit(run)
        entry.late = manifest_to_keep(run.workload, inputs.source)
        volumes = volumes_of(run.workload, inputs.stores)
    except UnresolvedError as error:
        return entry, RunEnded(*entry.key, RunEnd.REFUSED, message=str(error))
    for slot, rank in zip(slots, ranks, strict=True):
        rank.spec = {**spec_of(run, slot, volumes, bucket=context.settings.bucket is not None)}
    return entry, None


def _refusal(workload: Workload) -> str:
    """Why no machine could run a workload; "" if one could."""
    boxed = runs_in_container(workload)
    if not workload.command and not boxed:
        return "the job has no command and no image to run; set `command` of the job"
    if boxed and not is_image(workload.image or ""):
        return f"{visible(repr(workload.image))} {MEND}"
    return ""
