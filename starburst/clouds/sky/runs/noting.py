"""What is noted of a run before anything is asked of its machines, or why it cannot be had there."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starburst.clouds.sky.access.answers import visible
from starburst.clouds.sky.journal import RankNote, RunNote
from starburst.clouds.sky.runs.docker import runs_in_container
from starburst.clouds.sky.runs.runtime_values import Admit
from starburst.clouds.sky.runs.spec import spec_of
from starburst.clouds.sky.runs.storage import volumes_of
from starburst.core.model.events import RunEnd, RunEnded
from starburst.domain.images import MEND, is_image
from starburst.domain.job import Workload
from starburst.runs.ports import Run
from translator.carried import CloudStorage
from translator.tasks.runtime_values import UnresolvedError


def noted(
    run: Run,
    takes: Callable[[str], bool],
    admit: Admit,
    late: Callable[[Workload], str | None],
    stores: Mapping[str, CloudStorage],
    *,
    bucket: bool,
) -> tuple[RunNote, RunEnded | None]:
    """The note of a run, and its end if it has one already; `admit` says whether it may have what it asks for
    of the cluster, `late` as of `LateValues.manifest`."""
    slots = sorted(run.slots, key=lambda slot: slot.rank)
    ranks = [RankNote(slot.where) for slot in slots]
    note = RunNote(run.job.id, run.attempt, ranks, run.job.checkpoint)
    absent = [slot.where for slot in slots if not takes(slot.where)]
    why = _refusal(run.workload)
    if not why and absent:
        return note, RunEnded(*note.key, RunEnd.LOST, message=f"{absent[0]} takes no runs")
    if why:
        return note, RunEnded(*note.key, RunEnd.REFUSED, message=why)
    try:
        admit(run)
        note.late = late(run.workload)
        volumes = volumes_of(run.workload, stores)
    except UnresolvedError as error:
        return note, RunEnded(*note.key, RunEnd.REFUSED, message=str(error))
    for slot, rank in zip(slots, ranks, strict=True):
        rank.spec = spec_of(run, slot, volumes, bucket=bucket)
    return note, None


def _refusal(workload: Workload) -> str:
    """Why no machine could run this; "" if one could."""
    boxed = runs_in_container(workload)
    if not workload.command and not boxed:
        return "the job has no command and no image to run; set `command` of the job"
    if boxed and not is_image(workload.image or ""):
        return f"{visible(repr(workload.image))} {MEND}"
    return ""
