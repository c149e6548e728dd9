"""What is wrong after a day: by the jobs' own marks, by the cloud's own seconds, by what is left there."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from starburst.clouds.sky.machines.naming import label
from starburst.domain.job import Phase
from starburst.runs.supervisor.exits import load_exit
from starburst.store.listings import queries
from starburst.store.store import Store
from tests.references import SHARED
from tests.sky_lab.day.jobs import ORPHAN, STOLEN, PlannedJob
from tests.sky_lab.day.outcomes import wrong_outcome
from tests.sky_lab.deployment import Deployment
from tests.sky_lab.ec2 import REGIONS, Instance, ec2, most_at_once, rented, volumes_left
from tests.sky_lab.lab import logs, tmp_dirs
from tests.sky_lab.marks import Copy, twins

#: Seconds per machine that a bill may be off: times of the cloud are whole seconds.
OFF_S = 2
#: What a job leaves behind has ended when its supervisor notes the exit; times are so exact, seconds.
NOTED_S = 1.0
#: Where no exit was noted, the next exchange with the machine ends it; seconds after the job's own end.
UNNOTED_S = 120.0


def wrong_jobs(at: Deployment, jobs: Mapping[str, PlannedJob], silenced: set[str]) -> Iterator[str]:
    """Jobs that are lost, twice, or otherwise than they should be; ids with their plans.

    Ends on `silenced` machines may not have been heard of, so those jobs may have run again.
    """
    copies = at.copies()
    rows = {row.id: row for row in at.rows()}
    for job_id, planned in jobs.items():
        row, mine = rows.get(job_id), [copy for copy in copies if copy.job == job_id]
        if row is None or row.phase not in {phase.value for phase in planned.kind.ends}:
            yield f"{planned.name} is {row and row.phase}: {row and row.message}"
        else:
            told = wrong_copies(row.phase, row.attempt, planned, mine, silenced)
            outcome = wrong_outcome(at, planned, row, mine, silenced)
            yield from (f"{planned.name}: {what}" for what in (*told, *outcome))
    yield from twins(copies)
    yield from _orphans(at, copies)
    yield from stolen(at.seen, {id_ for id_, planned in jobs.items() if planned.kind.spies})


def stolen(vms: Iterable[str], spies: set[str]) -> Iterator[str]:
    """What jobs that looked for it saw of others on these machines, by what they said."""
    for vm in sorted(vms):
        for log in logs(vm):
            if log.parts[-4] in spies:
                said = log.read_text(errors="replace").splitlines()
                yield from (f"{log.parts[-4]} on {vm}: {line}" for line in said if line.startswith(STOLEN))


def wrong_copies(
    phase: str, attempt: int | None, planned: PlannedJob, mine: list[Copy], silenced: set[str]
) -> Iterator[str]:
    """What is wrong with the copies of one job that is over, by their marks."""
    ended = [copy for copy in mine if copy.ended]
    heard = [copy for copy in ended if copy.vm not in silenced]
    if phase == Phase.SUCCEEDED.value and attempt not in {copy.attempt for copy in ended}:
        yield f"attempt {attempt} counts, and came to no end: {mine}"
    if len(heard) > 1:
        yield f"came to its end {len(heard)} times: {heard}"
    if planned.kind.name == "fails":
        tries = [copy for copy in mine if copy.vm not in silenced]
        if len(mine) < planned.kind.retries + 1 or len(tries) > planned.kind.retries + 1:
            yield f"was tried {len(mine)} times, {len(tries)} of them heard of: {mine}"


def unheard(at: Deployment) -> set[str]:
    """Machines that the scheduler itself gave up, for nobody got through to them.

    That comes of a network that was cut, and of a host so busy that it lets nobody log in for a minute.
    """
    with Store.open(at.home.database) as store:
        given_up = {row.subject for row in queries.decisions(store) if row.kind == "unreachable"}
    intents = set(map(label, given_up))
    return {machine.id for machine in rented(at.tag) if machine.intent in intents}


def _orphans(at: Deployment, copies: list[Copy]) -> Iterator[str]:
    """Children that outlived their job, by the marks of both and the exit that the job's supervisor noted."""
    ended = {(copy.vm, copy.job): copy.seen_at for copy in copies if copy.ended}
    for vm in at.seen:
        for tmp in tmp_dirs(vm):
            beats = (tmp / ORPHAN).read_text().split() if (tmp / ORPHAN).exists() else []
            for job in {path.name.rsplit(".", 2)[0] for path in (tmp / "marks").glob("*")} if beats else ():
                end = ended.get((vm, job))
                if end is not None and float(beats[-1]) > may_live_until(tmp.parent / "exit.json", end):
                    yield f"a child of {job} lived {float(beats[-1]) - end:.0f} s longer on {vm}"


def may_live_until(exit_file: Path, end: float) -> float:
    """When at the latest what a job left has ended: its exit is noted after that, however busy the host."""
    if load_exit(exit_file) is None:
        return end + UNNOTED_S
    return exit_file.stat().st_mtime + NOTED_S


def wrong_bills(at: Deployment) -> Iterator[str]:
    """Machines whose bill is not the cloud's own seconds at the cloud's own price.

    Of one that was stopped before it was ended EC2 tells only the later of both times afterwards, so that its
    bill may go until that: whoever did not look in between cannot know better.
    """
    prices = price_list()
    theirs: dict[str, list[Instance]] = defaultdict(list)
    for instance in rented(at.tag):
        theirs[instance.intent].append(instance)
    with Store.open(at.home.database) as store:
        records = queries.instance_records(store, include_ended=True)
    for record in records:
        machines = theirs.pop(label(record.id), [])
        until_stop = [replace(one, ended_at=at.stopped.get(one.id, one.ended_at)) for one in machines]
        least, most = (sum(bill(one, prices) for one in some) for some in (until_stop, machines))
        off = sum(prices[one.type, one.spot] for one in machines) * OFF_S / 3600 + 1
        if not least - off <= record.micro_usd <= most + off:
            seconds = [(one.id, (one.ended_at or 0) - one.launched_at) for one in until_stop]
            said_s = (record.ended_at or 0) - (record.launched_at or record.ended_at or 0)
            yield f"{record.id}: billed {record.micro_usd} for {said_s:.1f} s, not {least:.0f}: {seconds}"
    yield from (f"{intent} was rented and is in no books" for intent in theirs)


def bill(machine: Instance, prices: Mapping[tuple[str, bool], int]) -> float:
    """Micro-dollars that the cloud asks for a machine that has ended."""
    assert machine.ended_at is not None, f"{machine.id} is still billed"
    return (machine.ended_at - machine.launched_at) * prices[machine.type, machine.spot] / 3600


def price_list() -> dict[tuple[str, bool], int]:
    """Micro-dollars per hour by instance type, on demand and spot, as the laboratory has them."""
    with (SHARED / "skylab" / "instance_types.csv").open(encoding="utf-8") as file:
        return {
            (row["name"], spot): int(Decimal(row[column]) * 1_000_000)
            for row in csv.DictReader(file)
            for spot, column in ((False, "usd_per_hour"), (True, "spot_usd_per_hour"))
        }


def idle(at: Deployment) -> str:
    """For how long machines were billed, and for how much of that nothing had begun or all was over there."""
    billed_s = before_s = after_s = unused_s = 0.0
    copies, machines = at.copies(), rented(at.tag)
    for machine in machines:
        if machine.ended_at is None:
            continue
        mine = [copy for copy in copies if copy.vm == machine.id]
        lasted_s = machine.ended_at - machine.launched_at
        billed_s += lasted_s
        if mine:
            before_s += max(0.0, min(copy.began_at for copy in mine) - machine.launched_at)
            after_s += max(0.0, machine.ended_at - max(copy.seen_at for copy in mine))
        else:
            unused_s += lasted_s
    return (
        f"{len(machines)} machines were billed {billed_s:.0f} s: {before_s:.0f} s until a job first began "
        f"there, {after_s:.0f} s after the last one was seen, {unused_s:.0f} s without any"
    )


def too_many(machines: Iterable[Instance], most: int) -> Iterator[str]:
    """More machines at one time than the account may have, whosever they are."""
    if (there := most_at_once(machines)) > most:
        yield f"{there} machines were rented at one time, and {most} are allowed"


def left_over(at: Deployment, not_ours: Iterable[str] = ()) -> Iterator[str]:
    """What of ours is still in the account: machines, their disks, security groups, keys.

    What has one of the names that are `not_ours` is a person's.
    """
    yield from (f"{vm} is still rented" for vm in sorted(at.alive()))
    yield from volumes_left(at.tag, rented(at.tag))
    part, others = at.naming.cluster("x").removesuffix("x"), tuple(not_ours)
    for region in REGIONS:
        client = ec2(region)
        groups = [group["GroupName"] for group in client.describe_security_groups()["SecurityGroups"]]
        keys = [key["KeyName"] for key in client.describe_key_pairs()["KeyPairs"]]
        ours = [name for name in groups + keys if part in name and not any(each in name for each in others)]
        yield from (f"{name} is left in {region}" for name in ours)
