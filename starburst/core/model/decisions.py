"""The decision log: one row per decision, with its numbers and one sentence made from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from starburst.core.model.actions import Slot, places
from starburst.core.model.jobs import JobRecord
from starburst.domain.money import Money
from starburst.domain.resources import total
from starburst.policy.waiting import hours

Numbers = dict[str, object]


class Decision(NamedTuple):
    """A row of the log. `subject` is a job's or instance's id; numbers are in SI units and micro-dollars."""

    seq: int
    at: float
    subject: str
    event: str
    kind: str
    numbers: Numbers

    @property
    def reason(self) -> str:
        """The row in one sentence."""
        return REASONS[self.kind](self.numbers)


def usd(micro: object) -> str:
    """Micro-dollars as text in dollars; None is an unknown price."""
    return str(Money(int(str(micro)))) if micro is not None else "an unknown price"


def where(slots: Sequence[Slot]) -> str:
    """The nodes or instances of some slots as text, each once."""
    return slots[0].where if len(slots) == 1 else ", ".join(places(slots))


def need_of(record: JobRecord, slots: Sequence[Slot]) -> Numbers:
    """What a job takes by these slots, and that they are for a part of its tasks if so."""
    if len(slots) == len(record.job.tasks):
        return {"need": record.need}
    need = str(total([slot.resources for slot in slots]))
    return {"need": need, "fewer": len(slots), "of": len(record.job.tasks)}


def _passed(n: Numbers) -> str:
    """How much of a predicted wait has passed; "" for less than a minute."""
    return f", of which {_span(n, 'waited_s')} have passed" if float(str(n["waited_s"])) >= 60 else ""


def _span(n: Numbers, key: str) -> str:
    return hours(cast("float", n[key]))


def _wait(n: Numbers) -> str:
    if n["wait_s"] is None:
        return f"waits for {n['need']} on the cluster as long as it takes ({n['rule']})"
    return f"waits up to {_span(n, 'wait_s')} for {n['need']} on the cluster ({n['rule']})"


def _placed(n: Numbers) -> str:
    fewer = f" with {n['fewer']} of its {n['of']} tasks, as it is elastic" if "fewer" in n else ""
    line = f"starts on {n['where']}{fewer}: {n['need']} free there after {_span(n, 'waited_s')}"
    return f"{line}; passed {n['passed']}, which does not fit yet" if n["passed"] else line


WHY_OFFLOAD: dict[str, Callable[[Numbers], str]] = {
    "expired": lambda n: f"no room on the cluster for {_span(n, 'waited_s')}",
    "cpu-only": lambda n: "it needs no GPU, and the cluster's nodes are kept for jobs that do",
    "short": lambda n: f"it is shorter than {_span(n, 'short_job_s')}",
    "only": lambda n: "its starburst.io/cloud says only",
    "too-big": lambda n: f"no node or set of nodes of the cluster could ever hold {n['need']}",
    "queue-full": lambda n: f"the queue is longer than {n['queue_limit']} and it was last",
    "hopeless": lambda n: (
        f"by the estimates of what runs on the cluster, it will not have {n['need']} free before the wait "
        "is over"
    ),
    "dear": lambda n: (
        f"it is predicted to wait {_span(n, 'predicted_s')}{_passed(n)}, and so much delay is worth more "
        "today than what its cloud run costs"
    ),
    "spare": lambda n: (
        f"its run adds {usd(n['longer']) if n.get('longer') else 'nothing'} to the bill of a machine that is "
        "there, though it would cost "
        f"{usd(n['alone'])} by itself, and could wait {_span(n, 'left_s')} more"
    ),
    "exhausted": lambda n: (
        f"after {_span(n, 'waited_s')}, as the wait budget is spent and it is among the cheapest to send away"
    ),
    "refused": lambda n: "the cluster does not start it, and its wait is over",
    "again": lambda n: "its first machine did not come up",
    "stranded": lambda n: "it was stopped to move, and what it was to move to is lost",
}


def _machines(n: Numbers) -> str:
    """The instances that an offloaded job rents or joins; rows of older versions have no `joins`."""
    rate = f"{n['offers']} at {usd(n['rate'])}/h"
    if n.get("joins"):
        return f"joins {n['joins']} ({rate}), which {n['sharers']} needs {_how_long(n)}{_image(n)}"
    why = f": {n['gang']}" if n.get("gang") else ""
    return f"rents {rate} with {n['sharers']}" if n.get("sharers") else f"rents {rate}{why}"


def _how_long(n: Numbers) -> str:
    """For how long others need the instance that a job joins."""
    if not n.get("longer_s"):
        return "for longer anyway"
    return f"too: {_span(n, 'longer_s')} more of it cost {usd(n['longer'])}, less than a machine of its own"


def _image(n: Numbers) -> str:
    """Whether a job's image is on the instance that it joins; "" if that is not known."""
    if "pull_s" not in n:
        return ""
    if not n["pull_s"]:
        return " and has its image"
    return f"; its image is not there: about {_span(n, 'pull_s')} to pull it"


def _together(n: Numbers) -> str:
    return f"; jobs there are not kept apart from it: {n['together']}" if n.get("together") else ""


def _company(n: Numbers) -> str:
    return f" as {n['others']} move too" if n["others"] else ""


def _silence(n: Numbers) -> str:
    if n.get("why"):
        return f"cannot be worked with ({n['why']})"
    if n.get("unsure"):
        return "does not answer, and nobody says whether it runs"
    return "does not answer, though its cloud says it runs"


def _machines_lost(n: Numbers) -> str:
    """What becomes of an instance that lost some of its machines; `fewer` are (job, tasks left, of all)."""
    fewer = cast("Sequence[tuple[str, int, int]]", n["fewer"])
    gangs = ", ".join(f"{name} goes on with {left} of its {of} tasks" for name, left, of in fewer)
    elastic = "it is elastic" if len(fewer) == 1 else "they are elastic"
    then = f"{gangs}, as {elastic}" if fewer else "the others are ended, as no elastic gang goes on there"
    return f"lost {n['lost']} of its {n['of']} machines; {then}"


AT_CAP = {
    "finish": "running jobs may end, and nothing more is rented",
    "return": "running jobs with checkpoints return, others may end, and nothing more is rented",
    "stop": "running jobs are stopped, and their machines are given back",
}

REASONS: dict[str, Callable[[Numbers], str]] = {
    "waits": _wait,
    "placed": _placed,
    "offloaded": lambda n: f"leaves for the cloud: {WHY_OFFLOAD[str(n['why'])](n)}; {_machines(n)}",
    "no-offer": lambda n: f"stays in the queue: it would leave for the cloud, but {n['lacks']}",
    "waits-on": lambda n: (
        f"is in the queue again, as no machine came up for it: its wait has {_span(n, 'left_s')} left"
    ),
    "capped": lambda n: f"stays in the queue: it would leave for the cloud, but {n['lacks']}",
    "cap-warned": lambda n: f"{usd(n['spent'])} is spent of {n['title']}",
    "cap-reached": lambda n: f"{usd(n['spent'])} is spent of {n['title']}: {AT_CAP[str(n['then'])]}",
    "started": lambda n: f"runs on {n['where']} (attempt {n['attempt']}){_together(n)}",
    "stalled": lambda n: f"is held up on {n['where']}: {n['message']}",
    "goes-on": lambda n: f"goes on on {n['where']}: what held it up is over",
    "succeeded": lambda n: f"finished after {_span(n, 'runtime_s')}",
    "failed": lambda n: str(n["message"]),
    "awaits": lambda n: f"does not wait for a place yet: it comes after {n['those']}",
    "awaits-volumes": lambda n: f"is held, without a place: it {n['message']}",
    "protected": lambda n: (
        f"goes first now: {n['passes']} later jobs have started before it; {n['nodes']} take no other job "
        "until it starts"
    ),
    "turn": lambda n: (
        f"waits for its turn: at most {n['at_once']} job{'' if n['at_once'] == 1 else 's'} of {n['array']} "
        "at a time"
    ),
    "retries": lambda n: (
        f"fails (exit {n['exit_code']}); try {n['number']} of {n['of']} in {_span(n, 'pause_s')}"
        f"{' on ' + str(n['on']) + ', which is kept for it' if n.get('on') else ''}"
        f"{'; its tries that failed soon have cost ' + usd(n['micro_usd']) if n.get('micro_usd') else ''}"
    ),
    "cancelled": lambda n: (
        f"cancelled, as {n['other']}, which it comes after, {n.get('end', 'did not succeed')}"
        if "other" in n
        else f"cancelled by {n.get('by', 'its user')}"
    ),
    "asked": lambda n: f"{n['by']} asked to {n['what']} it",
    "held": lambda n: f"is held: it neither waits nor leaves until {n['until']}",
    "released": lambda n: f"released after {_span(n, 'held_s')}: its wait begins now",
    "not-held": lambda n: f"could not be held any more: it was {n['phase']} when that was asked for",
    "edited": lambda n: f"its user changed it: {n['changes']}",
    "not-edited": lambda n: f"could not be changed any more: it was {n['phase']} when that was asked for",
    "not-requeued": lambda n: f"could not be queued again: it was {n['phase']} when that was asked for",
    "stopping": lambda n: f"told to stop, has {_span(n, 'grace_s')} to save its work: {n['why']}",
    "returning": lambda n: (
        f"comes home after {_span(n, 'elapsed_s')} in the cloud: about {_span(n, 'remaining_s')} still to "
        f"run, {_span(n, 'lost_s')} of work to repeat; {n['slot']}"
    ),
    "stays-away": lambda n: (
        f"stays in the cloud: coming home would repeat {_span(n, 'lost_s')} of work to save "
        f"{_span(n, 'remaining_s')} of rent"
    ),
    "moving": lambda n: (
        f"moves from {n['old']} to {n['new']}{_company(n)}: less rent by about {usd(n['saves'])} until the "
        f"jobs there are done ({usd(n['rate'])}/h less when they have moved), at a cost of {usd(n['costs'])}"
    ),
    "unmoved": lambda n: f"does not move after all: {n['why']}",
    "suspended": lambda n: f"run {n['attempt']} was ended, as {n['message']}",
    "lost": lambda n: f"run {n['attempt']} is gone without a result ({n['message']}); it queues again",
    "shrinks": lambda n: (
        f"run {n['attempt']} is gone ({n['message']}); starts again at once on {n['where']} with "
        f"{n['fewer']} of its {n['of']} tasks, as it is elastic"
    ),
    "not-started": lambda n: (
        f"was not started on {n['where']}: {n['message']}; it is tried again in {_span(n, 'pause_s')}"
    ),
    "refusing": lambda n: (
        f"has refused {n['count']} starts in a row, at last with: {n['message']}; one job every "
        f"{_span(n, 'probe_s')} is tried until one starts"
    ),
    "accepting": lambda n: f"starts jobs again, {_span(n, 'after_s')} after it first refused one",
    "launched": lambda n: f"rented {n['offer']} at {usd(n['rate'])}/h for {n['jobs']}",
    "dearer": lambda n: f"costs {usd(n['rate'])}/h, not {usd(n['thought'])}/h as its offer says",
    "ready": lambda n: f"took {_span(n, 'boot_s')} to come up",
    "launch-failed": lambda n: (
        f"could not be rented ({n['message']}); {n['offer']} is left alone for {_span(n, 'pause_s')}"
        f"{'; bill ' + usd(n['micro_usd']) if 'micro_usd' in n else ''}"
    ),
    "terminating": lambda n: "given back: nothing runs on it any more",
    "machines-lost": _machines_lost,
    "unreachable": lambda n: f"{_silence(n)}; not heard of for {_span(n, 'grace_s')} it is ended",
    "reachable": lambda n: f"answers again after {_span(n, 'after_s')}",
    "unfit": lambda n: (
        f"takes no work ({n['why']}): what has not begun there starts elsewhere, no job joins it, and it is "
        f"ended once nothing runs there; {n['offer']} is left alone for {_span(n, 'pause_s')}"
    ),
    "fenced": lambda n: (
        f"is ended: {'took no work' if n.get('unfit') else 'not heard of'} for {_span(n, 'after_s')}; then "
        "its jobs start anew"
    ),
    "gone": lambda n: f"{n['how']} after {_span(n, 'billed_s')}; bill {usd(n['micro_usd'])}",
}
