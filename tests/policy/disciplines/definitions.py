"""The disciplines as the paper words them, by plain search and with fractions, to hold the real ones to."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import floor

Job = tuple[int, int]


class Plain:
    """Lists of who waits and who runs."""

    def __init__(self, servers: int, capacity: int) -> None:
        self.capacity = capacity
        self.queue: list[Job] = []
        self.on: list[dict[int, int]] = [{} for _ in range(servers)]
        self.left: set[int] = set()
        self.new: list[Job] = []
        self.started: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.queue)

    def arrive(self, job: int, size: int) -> None:
        self.queue.append((job, size))
        self.new.append((job, size))

    def leave(self, job: int, server: int) -> None:
        del self.on[server][job]
        self.left.add(server)

    def start(self) -> list[tuple[int, int]]:
        self.started = []
        self.decide()
        self.left, self.new = set(), []
        return self.started

    def decide(self) -> None:
        raise NotImplementedError

    def free(self, server: int) -> int:
        return self.capacity - sum(self.on[server].values())

    def place(self, job: Job, server: int, held: int | None = None) -> None:
        self.queue.remove(job)
        self.on[server][job[0]] = held or job[1]
        self.started.append((job[0], server))

    def to_tightest(self, job: Job) -> None:
        fitting = [server for server in range(len(self.on)) if self.free(server) >= job[1]]
        if fitting:
            self.place(job, min(fitting, key=lambda server: (self.free(server), server)))

    def fill(self, server: int) -> None:
        while fitting := [job for job in self.queue if job[1] <= self.free(server)]:
            self.place(max(fitting, key=lambda job: job[1]), server)


class Fifo(Plain):
    def decide(self) -> None:
        while self.queue:
            fitting = [server for server in range(len(self.on)) if self.free(server) >= self.queue[0][1]]
            if not fitting:
                return
            self.place(self.queue[0], fitting[0])


class Jobs(Plain):
    def decide(self) -> None:
        for job in list(self.queue):
            self.to_tightest(job)


class Servers(Plain):
    def decide(self) -> None:
        for server in range(len(self.on)):
            self.fill(server)


class Both(Plain):
    def decide(self) -> None:
        for server in sorted(self.left):
            self.fill(server)
        for job in self.new:
            if job in self.queue:
                self.to_tightest(job)


def intervals(levels: int) -> list[tuple[Fraction, Fraction]]:
    """Equation 6: what each type lies above, and its upper end."""
    half, third = Fraction(1, 2), Fraction(2, 3)
    found = [
        ends
        for m in range(levels)
        for ends in ((third * half**m, half**m), (half * half**m, third * half**m))
    ]
    return [*found[:-1], (Fraction(0), found[-1][1])]


def configurations(levels: int) -> list[dict[int, int]]:
    """Equation 7: slots per type."""
    return [
        *({2 * m: 2**m} for m in range(levels)),
        *({2 * m + 1: 3 * 2 ** (m - 1)} for m in range(1, levels)),
        *({1: 1, 2 * m: 2**m // 3} for m in range(2, levels)),
        *({1: 1, 2 * m + 1: 2 ** (m - 1)} for m in range(1, levels)),
    ]


class Typed(Plain):
    """With virtual queues and configurations."""

    def __init__(self, servers: int, capacity: int, levels: int) -> None:
        super().__init__(servers, capacity)
        self.levels = levels
        self.active: list[dict[int, int]] = [{} for _ in range(servers)]
        self.kinds: dict[int, int] = {}

    def arrive(self, job: int, size: int) -> None:
        super().arrive(job, size)
        share = Fraction(size, self.capacity)
        (self.kinds[job],) = (
            kind for kind, (above, end) in enumerate(intervals(self.levels)) if above < share <= end
        )

    def virtual(self, kind: int) -> list[Job]:
        return [job for job in self.queue if self.kinds[job[0]] == kind]

    def renew(self, server: int) -> None:
        def weight(slots: dict[int, int]) -> int:
            return sum(count * len(self.virtual(kind)) for kind, count in slots.items())

        self.active[server] = max(configurations(self.levels), key=weight)

    def other(self, server: int) -> Iterator[tuple[int, int]]:
        return ((kind, slots) for kind, slots in self.active[server].items() if kind != 1)


class Virtual(Typed):
    """VQS; which servers are looked at first, the paper leaves open: those under way."""

    def decide(self) -> None:
        while True:
            for kind in range(2 * self.levels):
                while self.head_goes(kind):
                    pass
            empty = [server for server, running in enumerate(self.on) if not running]
            if not self.queue or not empty:
                return
            self.renew(empty[0])

    def head_goes(self, kind: int) -> bool:
        for job in self.virtual(kind)[:1]:
            held = job[1]
            if kind == 2 * self.levels - 1:
                held = max(held, floor(Fraction(self.capacity, 2**self.levels)))
            for server in range(len(self.on)):
                if self.serves(server, kind, held):
                    self.place(job, server, held)
                    return True
        return False

    def serves(self, server: int, kind: int, held: int) -> bool:
        running = self.on[server]
        if kind not in self.active[server]:
            return False
        if kind == 1:
            return not any(self.kinds[job] == 1 for job in running)
        reserved = Fraction(2, 3) * self.capacity if 1 in self.active[server] else Fraction(0)
        used = sum(size for job, size in running.items() if self.kinds[job] != 1)
        return used + held <= self.capacity - reserved

    def leave(self, job: int, server: int) -> None:
        super().leave(job, server)
        if not self.on[server]:
            self.active[server] = {}


class VirtualBestFit(Typed):
    def decide(self) -> None:
        for server in range(len(self.on)):
            if not self.on[server] and self.queue:
                self.renew(server)
            if 1 in self.active[server]:
                self.largest_goes(server, 1)
            for kind, slots in self.other(server):
                while sum(self.kinds[job] == kind for job in self.on[server]) < slots:
                    if not self.largest_goes(server, kind):
                        break
            self.fill(server)

    def largest_goes(self, server: int, kind: int) -> bool:
        fitting = [job for job in self.virtual(kind) if job[1] <= self.free(server)]
        if fitting:
            self.place(max(fitting, key=lambda job: job[1]), server)
        return bool(fitting)
