"""One exchange with a machine: what it does not know goes there, how its tasks stand comes back.

A single call of the agent does both for all tasks of the machine, and starts those that can begin. What
takes longer runs beside the exchanges: checkpoints are copied, values are read from the cluster.
Answers are parsed by `access/answers.py`, which trusts nothing in them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import structlog

from starburst.clouds.sky.access.answers import TaskState, parse_exchange
from starburst.clouds.sky.access.ports import LocalError, SkyError, UnsafeError
from starburst.clouds.sky.agent.protocol import ExchangeRequest, TaskSpec
from starburst.clouds.sky.context import SkyContext
from starburst.clouds.sky.machines.machine import RentedMachine
from starburst.clouds.sky.runs.entry import RankEntry, RunEntry
from starburst.clouds.sky.runs.run_table import RunTable
from starburst.core.model.events import RunEnd
from starburst.runs.supervisor.exits import STOP, Exit

log = structlog.get_logger()

#: Wall seconds between attempts to bring checkpoints to a machine.
RETRY_S = 2.0

#: The tasks of a machine by directory.
MachineTasks = Mapping[str, tuple[RunEntry, RankEntry]]


@dataclass(frozen=True, slots=True)
class ExchangeResult:
    """What an exchange says of the machine itself."""

    #: There is more output than came.
    more: bool
    #: Its lease has passed: it is about to end itself.
    lapsed: bool
    #: Its lease was renewed, if that was asked for.
    renewed: bool
    #: Its keepalive is in SkyPilot's queue; its own switch is armed.
    kept: bool
    armed: bool
    #: Why the state of a task is unknown though the machine answered; "" if all states are known.
    trouble: str
    #: Why the machine accepts no tasks; "" if it does.
    unfit: str


class Exchanges:
    """Exchanges about the runs of `table`."""

    def __init__(self, context: SkyContext, table: RunTable) -> None:
        self._context = context
        self.table = table

    async def exchange(self, machine: RentedMachine, lease_s: float | None) -> ExchangeResult:
        """Bring a machine and the table up to date; renews its lease by `lease_s` unless that is None.

        Raises:
            SkyError: it, or a node of it, did not answer, or an answer is not valid.
        """
        if machine.entry.lost:
            self.table.machine_gone(machine.id, machine.entry.lost)
        hear = self.table.progress.ask(machine.id, self._tasks(machine))
        calls = [self._exchange(machine, node, lease_s, hear) for node in machine.nodes]
        results = await asyncio.gather(*calls, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        heard = [result for result in results if isinstance(result, ExchangeResult)]
        return ExchangeResult(
            more=any(one.more for one in heard),
            lapsed=any(one.lapsed for one in heard),
            renewed=all(one.renewed for one in heard),
            kept=heard[0].kept,  # SkyPilot's queue is on the head
            armed=all(one.armed for one in heard),
            trouble=next((one.trouble for one in heard if one.trouble), ""),
            unfit=machine.fitness.unfit,
        )

    def _tasks(self, machine: RentedMachine, node: int | None = None) -> MachineTasks:
        """The tasks on a machine, or on one node of it."""
        found = self.table.tasks_on(machine.id)
        return {entry.directory(rank): (entry, rank) for entry, rank in found if node in (None, rank.node)}

    async def _exchange(
        self, machine: RentedMachine, node: int, lease_s: float | None, hear: Mapping[str, str]
    ) -> ExchangeResult:
        """The exchange with one node; of progress reports, `hear` names those that are wanted."""
        table, tasks = self.table, self._tasks(machine, node)
        acts = self._context.certain()
        due = self._due(machine, tasks) if acts else {}
        ask: ExchangeRequest = {
            "lease_s": lease_s,
            "specs": self._specs(machine, due),
            "starts": list(due),
            "stops": {
                name: grace
                for name, task in tasks.items()
                if acts and (grace := RunEntry.grace(*task)) is not None
            },
            "look": {name: table.logs.seen(table.log_of(*task)) for name, task in tasks.items()},
            "hear": {name: known for name, known in hear.items() if name in tasks},
        }
        answer = parse_exchange(await machine.call("exchange", ask, node), tasks)
        if len(machine.nodes) == 1:
            machine.heard()  # also if what it says cannot be noted: its lease is renewed by the next one
        machine.hosts[node] = answer.host, answer.address
        machine.note_together(answer.together, node)
        if node == machine.nodes[0]:
            machine.note_images(answer.images)
        trouble = next((f"{name}: {why}" for name, why in answer.broken.items()), "")
        for name, state in answer.tasks.items():
            _note_end(tasks[name][1], state, answer.now, self._context.clock.wall())
            try:
                trouble = self._take_in(*tasks[name], state, ask["look"][name]) or trouble
            except OSError:  # of this side
                raise
            except Exception:
                log.exception("run-not-updated", run=name, instance=machine.id)
        machine.note_trouble(answer.trouble, node)
        self._judge(machine, answer.tasks, tasks)
        more = any(state.more and state.log for state in answer.tasks.values())
        protection = answer.renewed, answer.kept, answer.armed
        return ExchangeResult(more, answer.lapsed, *protection, trouble, machine.fitness.unfit)

    # --- there -------------------------------------------------------------------------------------------

    def _due(self, machine: RentedMachine, tasks: MachineTasks) -> MachineTasks:
        """The tasks that have not started and may: their checkpoints are in place."""
        copies, due = self._context.settings.bucket is None, {}
        for name, (entry, rank) in tasks.items():
            if rank.started or entry.grace(rank) is not None:
                continue
            if copies and entry.checkpoint and not rank.supplied:
                work = partial(self._supply, machine, entry, rank)
                self._context.tasks.ensure(("supply", entry.key, rank.where, rank.node), work)
            else:
                due[name] = entry, rank
        return due

    def _specs(self, machine: RentedMachine, due: MachineTasks) -> dict[str, TaskSpec]:
        """What the machine is to run, of tasks whose values are known."""
        specs = {name: self._spec(machine, *task) for name, task in due.items()}
        return {name: spec for name, spec in specs.items() if spec is not None}

    def _spec(self, machine: RentedMachine, entry: RunEntry, rank: RankEntry) -> TaskSpec | None:
        """The spec to send; None if the machine has it, or values for it are not known yet."""
        if entry.late is None:
            return cast("TaskSpec", rank.spec)
        return None if rank.known else self.table.values.spec(entry, rank, machine)

    async def _supply(self, machine: RentedMachine, entry: RunEntry, rank: RankEntry) -> None:
        """Copy the job's checkpoints to the node of a task, once for all its tasks there, which share them.

        An error is retried by the next exchange.
        """
        table, name = self.table, entry.name(rank)
        there = [one for one in entry.ranks if (one.where, one.node) == (rank.where, rank.node)]
        try:
            if not any(one.supplied for one in there):
                await table.checkpoints.supply(entry.job, machine, rank.node, rank.spec["checkpoints"])
            machine.fitness.took(name)
            await self._note_supplied(entry, there)
        except UnsafeError as error:
            table.give_up(entry, str(error))
        except (SkyError, OSError) as error:
            log.warning("checkpoints-not-there", cluster=machine.cluster, job=entry.job, error=str(error))
            if not isinstance(error, (LocalError, OSError)):
                why = f"checkpoints cannot be brought there: {error}"
                machine.fitness.refused(name, why, self._context.clock.wall())
            await asyncio.sleep(RETRY_S)

    async def _note_supplied(self, entry: RunEntry, ranks: Sequence[RankEntry]) -> None:
        """Journal that tasks have their checkpoints, before they begin: else these were copied again after a
        restart, over what the tasks have saved.
        """
        while waiting := [rank for rank in ranks if not (rank.supplied or rank.over)]:
            for rank in waiting:
                rank.supplied = True
            try:
                self.table.save(entry)
            except OSError as error:
                for rank in waiting:
                    rank.supplied = False
                log.warning("checkpoints-not-noted", job=entry.job, error=str(error))
                await asyncio.sleep(RETRY_S)

    def _judge(self, machine: RentedMachine, states: Mapping[str, TaskState], tasks: MachineTasks) -> None:
        """Record which tasks the machine refuses to start.

        What has not begun on a machine that is unfit ends, so that it can start elsewhere.
        """
        for name, state in states.items():
            entry, rank = tasks[name]
            if state.started or rank.over or entry.grace(rank) is not None:
                machine.fitness.took(entry.name(rank))
            elif state.trouble:
                machine.fitness.refused(entry.name(rank), state.trouble, self._context.clock.wall())
        why = machine.fitness.unfit
        for entry, rank in list(self.table.tasks_on(machine.id)) if why else ():
            if not rank.started:
                self.table.give_up(entry, f"{machine.id} takes no work: {why}", RunEnd.NOT_STARTED)

    # --- and back ----------------------------------------------------------------------------------------

    def _take_in(self, entry: RunEntry, rank: RankEntry, state: TaskState, seen: int | None) -> str:
        """Take in how a task stands, and its output from byte `seen` on; what is wrong with it, or ""."""
        table, name, grace_s = self.table, entry.name(rank), entry.grace(rank)
        if seen is not None:
            table.logs.write(table.log_of(entry, rank), seen, state.log)
        if rank.started and not (state.known or state.began):
            table.give_up(entry, "its files are gone from its machine", RunEnd.LOST)
        now = self._context.clock.wall()
        if grace_s is not None:
            table.deadlines.stop_requested(name, now)
        self._update(entry, rank, state)
        table.progress.heard(entry, rank, state.report)
        table.delays.heard(entry, rank, state.waits)
        overdue = not rank.over and table.deadlines.is_overdue(name, state, grace_s, now)
        return f"{name} does not end, though it was told to" if overdue else ""

    def _update(self, entry: RunEntry, rank: RankEntry, state: TaskState) -> None:
        """Set the journaled state of a task to what its machine says."""
        table, name = self.table, entry.name(rank)
        before, exit_before = (rank.started, rank.over, rank.known), rank.exit
        rank.started = rank.started or state.started
        if entry.late is not None:
            rank.known = state.known
            self._read_values(entry)
        # A task that is to end cannot begin if the machine does not know it: no exchange brings it there now.
        never = entry.grace(rank) is not None and not state.known and not state.began
        now = self._context.clock.wall()
        if state.over:  # also if its output is still to come: its machine may not live to send it
            rank.exit = state.exit
        if table.deadlines.is_through(name, state, now) or never:
            rank.over, rank.exit = True, state.exit
            if never and not rank.started:  # its supervisor was not killed: it had none
                rank.exit = Exit(None, None, STOP, "stopped before it began", now, now)
        if (before, exit_before) != ((rank.started, rank.over, rank.known), rank.exit):
            try:
                table.changed(entry, has_started=rank.started and not before[0])
            except OSError:  # not journaled, so not known: the next exchange asks again
                (rank.started, rank.over, rank.known), rank.exit = before, exit_before
                raise

    def _read_values(self, entry: RunEntry) -> None:
        if all(rank.known or rank.over for rank in entry.ranks):
            self.table.values.drop(entry)
        else:
            self.table.values.read(entry)


def _note_end(rank: RankEntry, state: TaskState, machine_now: float | None, now: float) -> None:
    """Set when a task ended on this side's clock; its machine's may be wrong, but not its differences."""
    if state.over and state.exit is not None and machine_now is not None and rank.ended_at is None:
        rank.ended_at = now - max(0.0, machine_now - state.exit.ended_at)
