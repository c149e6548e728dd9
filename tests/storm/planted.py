"""Bugs that are planted into the product, each of which a storm must find."""

from __future__ import annotations

from collections.abc import Iterable

from tests.storm.planted_in_adapters import IN_ADAPTERS
from tests.storm.planting import Planted, hunted
from tests.storm.run import Ask, Told

_LIFE = "starburst.core.steps.run_lifecycle"
_MACHINES = "starburst.core.steps.machines"
_GRACE = """\
    if not state.fleet.troubled or fence_at(state) > state.now:
        return
    for instance in state.fleet.instances.values():
        since = _useless_since(state, instance)
        if instance.phase in OPEN_PHASES and since + state.settings.unreachable_s <= state.now:
"""

PLANTED = IN_ADAPTERS | {
    "done-before-call": Planted(
        "an action is marked as done before it is carried out",
        "starburst.app.daemon.performer:Performer._after",
        "        error = await self._try(action, _tries",
        "        self._owed.clear()\n        await self._done(action.key)\n"
        "        error = await self._try(action, _tries",
    ),
    "stop-is-not-repeated": Planted(
        "a call of a site that fails is given up, also a stop or an end",
        "starburst.app.daemon.performer:Performer._try",
        "if attempt == tries:",
        "if attempt == 1:",
        (3, 14, 0.125, ("api-away", "api-refuses", "api-not-reached")),
    ),
    "stale-report-taken": Planted(
        "a report of an earlier attempt counts for the present one",
        "starburst.core.state:State.current",
        "record.attempt != attempt or ",
        "",
        (75, 14, 0.125, ("pod-evicted", "spot-taken", "report-doubled")),
    ),
    "no-grace-after-a-cut": Planted(
        "a machine that does not answer is ended at once",
        f"{_MACHINES}:fence",
        _GRACE,
        _GRACE.replace(" or fence_at(state) > state.now", "").replace("state.settings.unreachable_s", "1.0"),
        (3, 14, 0.125, ("ssh-cut-before", "cut-off")),
    ),
    "slots-not-given-back": Planted(
        "the nodes of an ended run stay taken",
        f"{_LIFE}:_give_back",
        "        state.give(record, record.slots)",
        "        pass",
    ),
    "reservation-not-given-back": Planted(
        "the place that is held for a return stays taken when the job ends",
        f"{_LIFE}:finish",
        "    state.unreserve(record)\n",
        "",
        (2, 30, 0.25, ("ends-by-itself",)),
    ),
    "lease-not-renewed": Planted(
        "leases of rented machines are not renewed",
        "starburst.app.daemon.reaper:Reaper._renew",
        "self._cloud.renew(ids)",
        "self._cloud.renew([])",
        (1, 14, 0.125, ()),
    ),
    "reaper-ends-what-is-claimed": Planted(
        "the reaper ends machines that are in use",
        "starburst.app.daemon.reaper:ReapRules.fate",
        "return Fate.CLAIMED",
        "return Fate.UNCLAIMED",
        (204, 20, 0.1, ()),
    ),
    "actions-not-stored": Planted(
        "a step is stored without its actions",
        "starburst.store.store:Store._put",
        "[rows.action(item) for item in asked.values()]",
        "[]",
        (13, 14, 0.125, ("killed", "crash-after-commit")),
    ),
    "requests-not-taken": Planted(
        "a request stays in the store after its step",
        "starburst.store.store:Store._put",
        '[{"taken": seq} for seq in step.request_seqs]',
        "[]",
    ),
    "decisions-not-stored": Planted(
        "a step is stored without its decisions",
        "starburst.store.store:Store._put",
        "[rows.decision(item) for item in changes.decisions]",
        "[]",
    ),
    "instances-not-stored": Planted(
        "a step is stored without its machines",
        "starburst.store.store:Store._put",
        "[rows.instance(i) for i in changes.instances.values()]",
        "[]",
    ),
    "share-not-paid": Planted(
        "the bill of a machine is not divided among its jobs",
        f"{_MACHINES}:_close",
        "record.cloud_micro_usd += share",
        "record.cloud_micro_usd += 0",
    ),
    "idle-machine-kept": Planted(
        "a machine without jobs is not given back",
        f"{_LIFE}:_vacate",
        "if not instance.job_ids and instance.phase in OPEN_PHASES:",
        "if False:",
    ),
    "gang-not-stopped": Planted(
        "a gang that lost one of its machines begins anew while the others work",
        "starburst.core.steps.machines:machines_lost",
        "state.do(TerminateInstance(instance.id))",
        "instance_gone(state, InstanceGone(instance.id, instance.requested_at, state.now))",
        (7, 20, 0.125, ("ended-by-hand", "spot-taken")),
    ),
    "lost-machine-paid-for": Planted(
        "a machine that the cloud took from a gang is paid for until the gang has ended",
        "starburst.core.parts.instance_record:InstanceRecord.billed_s",
        " - saved_s / self.offer.nodes",
        "",
        (7, 20, 0.125, ("ended-by-hand", "spot-taken")),
    ),
    "array-rest-forgotten": Planted(
        "an array whose first jobs are taken up has no others",
        "starburst.store.arrays:take",
        "TakenJobs(name, len(pick.indices), pick.first)",
        "TakenJobs(name, pick.row.jobs_left, pick.first)",
        (1, 14, 0.125, ()),
    ),
    "watch-stays-expired": Planted(
        "a watch that is told 410 does not list again",
        "starburst.kube.reflector:Reflector.run",
        '                    self._version = ""\n',
        "",
        (1, 14, 0.125, ("watch-expired", "api-forgets")),
    ),
    "failure-is-success": Planted(
        "a command that fails has succeeded",
        f"{_LIFE}:_exited",
        "if event.exit_code == 0:",
        "if event.exit_code is not None:",
        (6, 6, 0.05, ()),
    ),
    "one-retry-too-many": Planted(
        "a failed command is tried once more than asked for",
        "starburst.core.steps.retries:worth_a_retry",
        "record.failures < record.job.retries",
        "record.failures <= record.job.retries",
        (204, 20, 0.1, ()),
    ),
    "cancel-queues-again": Planted(
        "a cancelled run queues again",
        f"{_LIFE}:gone",
        "if record.stop_why is StopReason.CANCEL:",
        "if False:",
    ),
    "comes-before": Planted(
        "a job that comes after another does not wait for it",
        "starburst.core.steps.prerequisites:follow",
        "            record.awaits += (name,)\n",
        "",
        (1, 14, 0.125, ()),
    ),
    "dependants-forgotten": Planted(
        "the end of a job frees none that come after it",
        "starburst.core.steps.prerequisites:_no_longer",
        "        state.freed.append(record.id)",
        "        pass",
        (1, 14, 0.125, ()),
    ),
    "hold-ignored": Planted(
        "a held job runs all the same",
        "starburst.core.steps.unblocking:hold_requested",
        "    record.held = True\n",
        "",
        (1, 14, 0.125, ()),
    ),
    "cap-ignored": Planted(
        "what is spent keeps nobody from renting",
        "starburst.core.steps.budget:short",
        "if cost > 0 and not standing.has(cost + others):",
        "if False:",
        (236, 20, 0.2, ()),
    ),
    "unknown-runs-live-on": Planted(
        "a run that its site does not know after a restart counts as alive",
        "starburst.core.scheduler:_synced",
        "(job_id, attempt) not in event.known",
        "False",
        (12, 14, 0.125, ("deleted-while-down", "killed")),
    ),
    "wait-never-ends": Planted(
        "a wait that is over is not noticed",
        "starburst.core.steps.admission:expire",
        "state.deadlines.pop_due(state.now)",
        "None",
        (204, 20, 0.1, ()),
    ),
    "passes-not-counted": Planted(
        "later jobs pass one that waits without end as often as they like",
        "starburst.core.steps.starvation:note_start",
        "before.count + 1",
        "before.count",
        (25, 40, 0.3, ()),
    ),
    "epoch-not-checked": Planted(
        "who has lost the lead writes on",
        "starburst.store.leader:epoch_fence",
        "if not rows or rows[0][0] != epoch:",
        "if False:",
        (2, 8, 0.1, ("leader-stopped",)),
    ),
    "acts-without-lead": Planted(
        "who has lost the lead goes on to ask sites",
        "starburst.runs.fence:LeaderFence.check",
        "if not self.certain():",
        "if False:",
        (1, 8, 0.1, ("leader-stopped-before-call",)),
    ),
    "cursor-before-broker": Planted(
        "a decision counts as told before the broker has it",
        "starburst.bus.mqtt:MqttBus._publish",
        "            await self._send(client, batch.messages)\n"
        "            await asyncio.to_thread(self._outbox.settle, batch.cursor)",
        "            await asyncio.to_thread(self._outbox.settle, batch.cursor)\n"
        "            await self._send(client, batch.messages)",
        (3, 14, 0.125, ("broker-away", "broker-cut-before")),
    ),
    "start-is-lost": Planted(
        "a start is announced and not asked for",
        f"{_LIFE}:start",
        "    state.do(StartRun(record.job.id, record.attempt, site, slots))\n",
        "",
        (8, 14, 0.125, ()),
    ),
    "shutdown-is-success": Planted(
        "a task that its machine's shutdown ended has succeeded if it exited with 0",
        "starburst.runs.outcome:_is_bad",
        "(TIME_LIMIT, LEASE, LOSS)",
        "(TIME_LIMIT, LEASE)",
        (7, 20, 0.2, ("rebooted", "spot-noticed")),
    ),
    "after-ok-ignored": Planted(
        "a job that depends on the success of another runs though that failed",
        "starburst.core.steps.prerequisites:_heed",
        "if name in unwanted:",
        "if False:",
        (16, 14, 0.125, ()),
    ),
    "broker-told-nothing": Planted(
        "what is to go to the broker counts as sent, and is not",
        "starburst.bus.mqtt:MqttBus._send",
        "for some in _pieces(messages):",
        "for some in ():",
        (1, 8, 0.1, ("broker-away",)),
    ),
    "cap-stops-nobody": Planted(
        "a cap that is reached, and is to stop what it covers, lets it run",
        "starburst.core.steps.budget_enforcement:_enforce",
        'elif cap.then == "stop" or record.job.checkpoint:',
        "elif False:",
        (20, 30, 0.4, ("cap-lowered",)),
    ),
    "caps-of-some-cover-nobody": Planted(
        "a cap for a user or a queue counts for none of their jobs",
        "starburst.policy.caps:Cap.covers",
        "return self.queue in (None, job.queue) and self.user in (None, job.user)",
        "return self.queue is None and self.user is None",
        (11, 30, 0.4, ()),
    ),
    "explains-no-place": Planted(
        "an explanation of a run does not say where it is",
        "starburst.core.views.explain:_running",
        "on the cluster on {where(record.slots)}",
        "on the cluster",
        (1, 14, 0.125, ()),
    ),
    "room-of-all": Planted(
        "a job joins one of several machines by the room of all of them",
        "starburst.core.parts.join_search:JoinSearch._rank",
        "node: instance.room(node)",
        "node: instance.free",
        (1, 8, 0.1, ()),
    ),
}


def hunt(asks: Iterable[Ask] | None, name: str) -> tuple[str, Told | None]:
    """A planted bug, and the first of these runs that found it; without `asks` it is the bug's own."""
    return name, hunted(PLANTED[name], asks or [PLANTED[name].ask])
