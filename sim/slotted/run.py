"""One run of a workload under a discipline (section II); slots without events take no computing time."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from sim.slotted.workload import Ints, SlottedWorkload
from starburst.policy.disciplines.discipline import Discipline


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run."""

    #: Slot in which each job started; -1 for jobs that still wait at the end.
    started: Ints
    #: Server of each job; -1 likewise.
    server: Ints
    #: Waiting jobs at the end of the slots of `sampled`.
    sampled: Ints
    queue: Ints
    #: Average number of waiting jobs at the end of a slot, after the warm-up.
    mean_queue: float


def run(
    workload: SlottedWorkload, discipline: Discipline, *, slots: int, warmup: int = 0, samples: int = 200
) -> Outcome:
    """Run for `slots` slots; the average excludes the first `warmup`.

    In each slot ended jobs leave, then jobs arrive, then the discipline starts jobs. A job that starts in
    slot t and runs for n slots leaves at the beginning of slot t + n.
    """
    arrival, size, service = workload.arrival.tolist(), workload.size.tolist(), workload.service.tolist()
    started, server_of = [-1] * len(arrival), [-1] * len(arrival)
    sampled = np.linspace(0, slots - 1, samples).astype(np.int64)
    queue = np.zeros(samples, dtype=np.int64)
    ends: list[tuple[int, int, int]] = []
    arrival.append(slots)
    next_job, next_sample, area, now, waiting = 0, 0, 0, 0, 0
    while True:
        event = min(arrival[next_job], ends[0][0], slots) if ends else min(arrival[next_job], slots)
        area += waiting * (event - max(now, warmup)) if event > warmup else 0
        while next_sample < samples and sampled[next_sample] < event:
            queue[next_sample] = waiting
            next_sample += 1
        if event == slots:
            break
        now = event
        while ends and ends[0][0] == now:
            _, job, server = heappop(ends)
            discipline.leave(job, server)
        while arrival[next_job] == now:
            discipline.arrive(next_job, size[next_job])
            next_job += 1
        for job, server in discipline.start():
            started[job], server_of[job] = now, server
            heappush(ends, (now + service[job], job, server))
        waiting = len(discipline)
    return Outcome(np.array(started), np.array(server_of), sampled, queue, area / (slots - warmup))
