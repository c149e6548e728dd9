"""Bugs that are planted into the adapters of Kubernetes and SkyPilot."""

from __future__ import annotations

from tests.storm.planting import Planted

_SKY = "starburst.clouds.sky"
_KUBE = "starburst.clusters.kubernetes"

IN_ADAPTERS = {
    "bill-until-now": Planted(
        "a machine is billed until its end is heard of",
        f"{_SKY}.machines.machine:RentedMachine._over_at",
        "return max(known, ",
        "return max(now, ",
    ),
    "bill-by-our-clock": Planted(
        "a machine's seconds are counted by the clock of the scheduler, which may be wrong",
        f"{_SKY}.machines.machine:RentedMachine.book",
        "by_one_clock = len(begun) == len(seen)",
        "by_one_clock = False",
        (21, 20, 0.15, ("clock-wrong",)),
    ),
    "down-is-believed": Planted(
        "what SkyPilot says is down counts as gone, whatever its cloud says",
        f"{_SKY}.machines.teardown:clear",
        "if await _nothing_left(machine, observer):",
        "if True:",
        (1, 14, 0.125, ("sky-forgets", "tags-lost", "spot-taken", "ended-by-hand")),
    ),
    "launch-under-way-forgotten": Planted(
        "an end does not wait for a launch that is under way",
        f"{_SKY}.lifecycle:live",
        "while starting is not None and not starting.done():",
        "while False:",
        (46, 30, 0.1, ("regretted", "sky-slow")),
    ),
    "silence-is-an-end": Planted(
        "a machine of which nobody says anything counts as gone",
        f"{_SKY}.machines.observer:CloudObserver._is_waited_for",
        " or (answers is True and self._may_live(machine))",
        "",
        (5, 15, 0.15, ("all-dark",)),
    ),
    "gang-ends-with-its-first": Planted(
        "a run of several tasks is over with the first of them",
        f"{_SKY}.runs.run_table:RunTable.advance",
        "if all(rank.over for rank in entry.ranks):",
        "if any(rank.over for rank in entry.ranks):",
        (204, 20, 0.1, ()),
    ),
    "failed-task-alone": Planted(
        "a task that fails leaves the others of its gang running",
        f"{_SKY}.runs.run_table:RunTable.advance",
        "if decided or any(rank.over and not rank.succeeded for rank in entry.ranks):",
        "if False:",
        (3, 20, 0.1, ()),
    ),
    "sky-run-not-journaled": Planted(
        "runs on rented machines are not written down",
        f"{_SKY}.runs.run_table:RunTable.save",
        "save_run(self._context.journal, entry)",
        "pass",
        (51, 14, 0.125, ("killed", "crash-after-commit", "crash-before-done", "killed-in-a-row")),
    ),
    "machine-not-journaled": Planted(
        "rented machines are not written down",
        f"{_SKY}.machines.machine:RentedMachine.save",
        "save_machine(self.context.journal, self.entry)",
        "pass",
        (1, 14, 0.125, ("killed", "killed-in-a-row")),
    ),
    "switch-not-armed": Planted(
        "the shutdown switch of a machine is not set",
        f"{_SKY}.machines.machine:RentedMachine.hello",
        '{"after_s": self.switch_s}',
        "None",
        (204, 20, 0.1, ()),
    ),
    "end-with-live-pods": Planted(
        "a run on the cluster is over while its pods live",
        f"{_KUBE}.runs.run_object:RunObject.end",
        "        if self.active:\n            return None\n",
        "",
        (10, 14, 0.125, ("node-drained", "pod-lingers", "pod-evicted")),
    ),
    "started-when-created": Planted(
        "a run on the cluster counts as started without a pod",
        f"{_KUBE}.runs.run_object:RunObject.started",
        "begun >= max(1, self.view.parallelism)",
        "True",
        (1, 14, 0.125, ("chakra-away", "pod-lingers")),
    ),
    "name-is-proof": Planted(
        "a machine with a name like ours counts as ours",
        f"{_SKY}.machines.naming:Naming.is_ours",
        "return status.name in intended or dict(status.labels).get(CONTROLLER) == self._tag",
        "return True",
        (5, 8, 0.2, ("others-rent",)),
    ),
    "price-ignored": Planted(
        "a machine that is dearer than offered is billed as offered",
        f"{_SKY}.machines.price:ask_price",
        "if rate is not None:",
        "if False:",
        (2, 14, 0.125, ("dearer",)),
    ),
    "launched-before-noted": Planted(
        "SkyPilot is asked for a machine though a full disk did not note that",
        f"{_SKY}.machines.launch:_request",
        "save_machine(machine.context.journal, replace(entry, asked=True))\n            entry.asked = True",
        "entry.asked = True\n            machine.save()",
        (
            77,
            20,
            0.25,
            (
                *("disk-away", "never-up", "crash-before-commit", "report-late"),
                *("setup-fails", "regretted", "node-shrinks", "node-drained"),
            ),
        ),
    ),
}
