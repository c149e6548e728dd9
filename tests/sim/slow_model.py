"""A slow simulator that is obviously right: one list, one loop, every rule of the sheet in a line or two."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from sim.spec import Spec
from sim.trace import Trace


@dataclass
class Job:
    index: int
    arrival: float
    duration: float
    tasks: list[tuple[int, float]]
    leaves: float = inf
    start: float = 0.0
    in_cloud: bool = False
    passed: bool = False
    nodes: list[int] = field(default_factory=list)

    @property
    def end(self) -> float:
        return self.start + self.duration


class SlowModel:
    """Waits come from outside (`wait_h`, one per job); the order is FIFO or SJF. GPUs and CPUs only."""

    def __init__(self, trace: Trace, wait_h: list[float], spec: Spec) -> None:
        self.spec = spec
        self.free = [[spec.gpus_per_node, float(spec.cpus_per_node)] for _ in range(spec.nodes)]
        self.coming = [self.job(trace, index, wait_h[index]) for index in range(len(trace))]
        self.queue: list[Job] = []
        self.running: list[Job] = []
        self.done: list[Job] = []

    def job(self, trace: Trace, index: int, wait_h: float) -> Job:
        arrival, duration = float(trace.arrival_h[index]), float(trace.duration_h[index])
        tasks = [(task.gpus, task.cpus) for task in trace.tasks(index, self.spec.gpus_per_node)]
        return Job(index, arrival, duration, tasks, leaves=(arrival + wait_h + duration) - duration)

    def run(self) -> list[Job]:
        while self.coming or self.queue or self.running:
            now = min(
                [j.end for j in self.running]
                + [j.leaves for j in self.queue]
                + [j.arrival for j in self.coming]
            )
            self.finish(now)
            self.expire(now)
            while self.coming and self.coming[0].arrival == now:
                self.queue.append(self.coming.pop(0))
            self.walk(now)
            cap = self.spec.queue_cap
            while cap is not None and len(self.queue) > cap:
                self.leave(self.queue[-1], now)
            while self.expire(now):
                self.walk(now)
        return sorted(self.done, key=lambda j: j.index)

    def finish(self, now: float) -> None:
        for job in [j for j in self.running if j.end == now]:
            self.running.remove(job)
            self.done.append(job)
            for node, (gpus, cpus) in zip(job.nodes, job.tasks, strict=True):
                self.free[node][0] += gpus
                self.free[node][1] += cpus

    def expire(self, now: float) -> bool:
        over = [job for job in self.queue if job.leaves <= now]
        for job in over:
            self.leave(job, now)
        return bool(over)

    def leave(self, job: Job, now: float) -> None:
        self.queue.remove(job)
        job.start, job.in_cloud = now, True
        self.done.append(job)

    def walk(self, now: float) -> None:
        key = {"fifo": lambda j: j.index, "sjf": lambda j: (j.duration, j.index)}[self.spec.order]
        self.queue.sort(key=key)
        behind = False
        for job in list(self.queue):
            if self.place(job):
                self.queue.remove(job)
                self.running.append(job)
                job.start, job.passed = now, behind
            elif self.spec.out_of_order:
                behind = True
            else:
                return

    def place(self, job: Job) -> bool:
        before, nodes = [list(room) for room in self.free], []
        for gpus, cpus in job.tasks:
            fits = [n for n, (g, c) in enumerate(self.free) if g >= gpus and c >= cpus]
            if not fits:
                self.free = before
                return False
            order = {
                "first-fit": lambda n: (n,),
                "best-fit": lambda n: (*self.free[n], n),
                "worst-fit": lambda n: (-self.free[n][0], -self.free[n][1], n),
            }[self.spec.binpack]
            best = min(fits, key=order)
            nodes.append(best)
            self.free[best][0] -= gpus
            self.free[best][1] -= cpus
        job.nodes = nodes
        return True
