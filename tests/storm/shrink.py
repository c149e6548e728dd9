"""A failing run made smaller: fewer faults, then fewer jobs and less time; and its story in plain words."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace

from tests.storm.run import Ask, Told, run
from tests.storm.sandbox import START
from tests.storm.weather import FAULTS

#: Wall seconds after which the smallest run found by then will do.
MOST_S = 180.0
#: Lines of a story.
LINES = 60


def shrunk(told: Told) -> Told:
    """The smallest run found that is still wrong in the same way."""
    best, give_up = told, time.perf_counter() + MOST_S
    while True:
        for ask in _smaller(best):
            if time.perf_counter() > give_up:
                return best
            other = run(ask)
            if other.wrong and _kinds(other) & _kinds(told):
                best = other
                break
        else:
            return best


def told_as_story(told: Told) -> str:
    """What happened, line by line, ending with what was wrong."""
    ask = told.ask
    faults = ",".join(sorted(ask.faults or ())) or "none"
    head = f"--seeds {ask.seed} --jobs {ask.jobs} --days {ask.days:g} --faults {faults}"
    named = {word for line in told.wrong for word in re.findall(r"[\w./-]+", line)}
    lines = [
        (at, line)
        for at, line in told.story
        if line.startswith("FAULT") or any(part.strip(":") in named for part in line.split()[:1])
    ]
    body = [f"{_clock(at - START)}  {_plain(line)}" for at, line in lines[-LINES:]]
    return "\n".join([head, *body, "WRONG:", *told.wrong])


def _smaller(told: Told) -> Iterator[Ask]:
    """Runs that are smaller by one step, the largest steps first."""
    ask = told.ask
    on = sorted(name for name in told.on if told.counts[name])
    if ask.faults is None or len(on) < len(ask.faults):
        yield replace(ask, faults=frozenset(on))
    size = len(on) // 2
    while size:
        for start in range(0, len(on), size):
            yield replace(ask, faults=frozenset(on[:start] + on[start + size :]))
        size //= 2
    if ask.jobs > 1:
        yield replace(ask, jobs=ask.jobs // 2, days=ask.days / 2)
        yield replace(ask, jobs=ask.jobs - 1)


def _kinds(told: Told) -> set[str]:
    """What was wrong, without names and numbers."""
    return {re.sub(r"[\w./-]*\d[\w./-]*", "#", line)[:60] for line in told.wrong}


def _plain(line: str) -> str:
    if not line.startswith("FAULT "):
        return line
    _, name, *subject = line.split(" ", 2)
    return f"** {FAULTS[name].what} [{name}] {' '.join(subject)}"


def _clock(seconds: float) -> str:
    days, rest = divmod(int(seconds), 86_400)
    return f"day {days} {rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
