"""What each promise was held to in some runs, as a table for `docs/promises.md`."""

from __future__ import annotations

from collections import Counter

#: By what the verdict counts: the promise, and the noun of the count.
PROMISES = {
    "jobs": ("a job is never lost, ends once, as its command did, within two days of the last fault", "jobs"),
    "runs of tasks": (
        "one live attempt of a job; none after its end; no GPU is given twice",
        "runs of tasks",
    ),
    "starts": ("what is reported as started has begun", "starts"),
    "actions": ("what is marked as done was asked of its site", "actions"),
    "steps": ("a state that contradicts itself is never stored (`debug.validate`)", "steps"),
    "decisions": ("what the decision log says is what was decided", "decisions"),
    "explanations": ("what `starburst explain` says is what the log says", "explanations"),
    "bills": ("the bill is the cloud's to the micro-dollar, jobs pay it, nothing stays rented", "bills"),
    "launches under a cap": ("a cap holds", "launches under a cap"),
    "launches under a narrow cap": ("so does one for a user or a queue", "launches under such a cap"),
    "submissions over HTTP": ("what the HTTP API acknowledged is kept", "submissions"),
    "arrays": ("turns in arrays are kept to", "arrays"),
    "decisions at the broker": (
        "what is stored comes to an MQTT broker, in order, however long that was away",
        "decisions",
    ),
    "jobs passed too often": ("no job is passed for ever", "jobs passed as often as may be"),
    "memories": ("who is over is forgotten: memory is bounded by what lives", "schedulers at rest"),
    "holds": ("what is held stays out of the queue", "holds"),
}


def held(checked: Counter[str], seeds: int, virtual_s: float, faults: Counter[str]) -> str:
    """A Markdown table: each promise, and how often it was looked at, in how much time, under what."""
    under = f"{seeds:,} seeds, {virtual_s / 86_400:,.0f} virtual days, {sum(faults.values()):,} faults"
    rows = [f"| {what} | {checked[name]:,} {noun} |" for name, (what, noun) in PROMISES.items()]
    return "\n".join([f"| promise | under {under} of {len(+faults)} kinds |", "| --- | ---: |", *rows])
