"""Bias of predicted waits, by size class: how much longer jobs wait than was predicted when they joined.

A prediction is too short for a large job, as jobs that have not arrived yet will take nodes that empty
first (`wait_prediction.py`); how much too short depends on its size. So each class of sizes has sums of its
own, and new predictions are multiplied by what its jobs have waited over what was predicted of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from starburst.domain.value import value

#: Classes by GPUs: none, 1, 2–3, 4–7, 8–15, more.
CLASSES = 6
#: Jobs of mean run time that are added to what was predicted, so that a few late jobs are no evidence.
PRIOR_JOBS = 5.0
#: Largest bias.
WORST = 6.0
#: What is left of the sums of a class when one more of its waits has ended.
KEEP = 0.999


class ForetoldWait(NamedTuple):
    """A wait that is over, or goes on."""

    #: Of the job.
    gpus: int
    #: As predicted at first, without a bias.
    foretold_s: float
    waited_s: float


@value
class Lateness:
    """Waits of the jobs of a class, summed: seconds within and beyond what was predicted."""

    foretold_s: float = 0.0
    late_s: float = 0.0


#: Before the first wait.
PUNCTUAL = (Lateness(),) * CLASSES


def size_class(gpus: int) -> int:
    """Class of a job of so many GPUs."""
    return min(gpus.bit_length(), CLASSES - 1)


def after(past: Sequence[Lateness], waits: Iterable[ForetoldWait], keep: float = 1.0) -> tuple[Lateness, ...]:
    """The sums by class with these waits; before each, `keep` is left of those of its class."""
    sums = list(past)
    for gpus, foretold_s, waited_s in waits:
        kind, within_s = size_class(gpus), min(foretold_s, waited_s)
        known = sums[kind]
        sums[kind] = Lateness(known.foretold_s * keep + within_s, known.late_s * keep + waited_s - within_s)
    return tuple(sums)


def bias(lateness: Lateness, mean_run_s: float) -> float:
    """Factor of the predicted waits of a class, at least 1."""
    return min(1 + lateness.late_s / (lateness.foretold_s + PRIOR_JOBS * mean_run_s), WORST)
