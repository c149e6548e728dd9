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
from starburst.runs.peers import peer_variables
from starburst.runs.ports import Run
from translator.tasks.runtime_values import UnresolvedError

LOOPBACK = "127.0.0.1"


def prepare(
    run: Run, machines: Mapping[str, RentedMachine], context: SkyContext, port: int
) -> tuple[RunEntry, RunEnded | None]:
    """The entry of a run that has not begun; and its end, if it cannot begin.

    `port`: where the first task may listen.
    """
    slots = sorted(run.slots, key=lambda slot: slot.rank)
    ranks = [RankEntry(slot.where, node=slot.node) for slot in slots]
    entry = RunEntry(run.job.id, run.attempt, ranks, run.job.checkpoint, list(run.workload.deciding))
    why = _refusal(run.workload)
    if why:
        return entry, RunEnded(*entry.key, RunEnd.REFUSED, message=why)
    for slot in slots:
        machine = machines.get(slot.where)
        if machine is None or not machine.takes_runs or slot.node not in machine.nodes:
            return entry, RunEnded(*entry.key, RunEnd.LOST, message=f"{slot.where} takes no runs")
    inputs = context.inputs
    try:
        inputs.admit(run)
        entry.late = manifest_to_keep(run.workload, inputs.source)
        volumes = volumes_of(run.workload, inputs.stores)
    except UnresolvedError as error:
        return entry, RunEnded(*entry.key, RunEnd.REFUSED, message=str(error))
    hosts = [_address(machines[slot.where], slot.node) for slot in slots]
    bucket, max_log = context.settings.bucket is not None, context.settings.max_log
    for slot, rank in zip(slots, ranks, strict=True):
        peers = peer_variables(run, slot.rank, hosts, port)
        rank.spec = {**spec_of(run, slot, volumes, bucket=bucket, peers=peers, max_log=max_log)}
        rank.spec["hosts"] = hosts if len(hosts) > 1 else []
    return entry, None


def _address(machine: RentedMachine, node: int) -> str:
    """The address by which tasks of one run reach a node; those on a single machine stay on it."""
    return machine.entry.addresses[node] if machine.entry.nodes > 1 else LOOPBACK


def _refusal(workload: Workload) -> str:
    """Why no machine could run a workload; "" if one could."""
    boxed = runs_in_container(workload)
    if not workload.command and not boxed:
        return "the job has no command and no image to run; set `command` of the job"
    if boxed and not is_image(workload.image or ""):
        return f"{visible(repr(workload.image))} {MEND}"
    return ""
