"""Never over capacity, whatever the order in which the watch and the answers to bindings arrive."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter, defaultdict, deque
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_plugin.scheduling.cycle import Bind, SchedulerOptions
from chakra_plugin.scheduling.planner import Planner
from starburst.kube.objects import PodView
from tests.chakra.builders import GPU, bound, node, pod
from translator.podspec import plus

NODES = {"a": 8, "b": 4}


class Reality:
    """What the API server has, and what of it was not told to the planner yet, in order for each pod."""

    def __init__(self) -> None:
        self.planner = Planner(SchedulerOptions())
        self.now = 0.0
        self.pods: dict[str, PodView] = {}
        self.news: defaultdict[str, deque[tuple[PodView | None, PodView | None]]] = defaultdict(deque)
        #: What the planner was told last.
        self.told: dict[str, PodView | None] = {}
        self.sent: list[Bind] = []
        for name, gpus in NODES.items():
            self.planner.state.node_changed(None, node(name, gpus))

    def change(self, uid: str, new: PodView | None) -> None:
        self.news[uid].append((self.pods.get(uid), new))
        if new is None:
            del self.pods[uid]
        else:
            self.pods[uid] = new

    # Steps; `which` chooses among what there is.

    def create(self, which: int) -> None:
        made = pod(f"p{len(self.news)}", which % 5 + 1)
        self.change(made.uid, made)

    def tell(self, which: int) -> None:
        waiting = [uid for uid, news in self.news.items() if news]
        if waiting:
            uid = waiting[which % len(waiting)]
            old, new = self.news[uid].popleft()
            self.told[uid] = new
            self.planner.state.pod_changed(old, new, self.now)

    def plan(self, which: int) -> None:
        self.now += which % 10
        for bind in self.planner.plan(self.now, limit=which % 3 + 1).binds:
            known = self.told[bind.pod.uid]
            assert known is not None, "a pod is to be bound that is gone"
            assert not known.node, "a pod is to be bound that is bound"
            assert bind.pod.uid not in self.promised(), "a pod is to be bound twice"
            self.sent.append(bind)

    def carry_out(self, which: int) -> None:
        """The server binds, its answer arrives or not."""
        if self.sent:
            bind = self.sent[which % len(self.sent)]
            now = self.pods.get(bind.pod.uid)
            if now is not None and not now.node:
                self.change(now.uid, bound(now, bind.node))
            if which % 2:
                self.answer(bind)

    def refuse(self, which: int) -> None:
        """The server says no, unless it has said yes before."""
        if self.sent:
            self.answer(self.sent[which % len(self.sent)])

    def answer(self, bind: Bind) -> None:
        now = self.pods.get(bind.pod.uid)
        if now is not None and now.node:
            self.planner.state.found(bind, now.node)
        else:
            self.planner.state.refused(bind, self.now)
        self.sent.remove(bind)

    def by_another(self, which: int) -> None:
        """Another scheduler binds a pod to where it would not hurt."""
        free = [view for view in self.pods.values() if not view.node and view.uid not in self.promised()]
        if free:
            view = free[which % len(free)]
            self.change(view.uid, bound(view, "elsewhere"))

    def promised(self) -> set[str]:
        return {bind.pod.uid for bind in self.sent}

    def end(self, which: int) -> None:
        running = [view for view in self.pods.values() if view.node]
        if running:
            view = running[which % len(running)]
            self.change(view.uid, dataclasses.replace(view, phase=("Succeeded", "Failed")[which % 2]))

    def delete(self, which: int) -> None:
        if self.pods:
            self.change(list(self.pods)[which % len(self.pods)], None)

    def check(self) -> None:
        taken: Counter[str] = Counter()
        for view in self.pods.values():
            if view.node and not view.over:
                taken[view.node] += view.requests[GPU]
        assert all(taken[name] <= gpus for name, gpus in NODES.items()), taken
        for room in self.planner.state.cache.nodes():
            used: dict[str, int] = {}
            for view in room.pods.values():
                used = plus(used, view.requests)
            assert plus(room.free, used) == plus(room.view.allocatable, dict.fromkeys(used, 0))


#: Steps, and how often they are taken.
STEPS = {
    "create": 4,
    "tell": 8,
    "plan": 4,
    "carry_out": 4,
    "refuse": 2,
    "by_another": 1,
    "end": 2,
    "delete": 1,
}


def steps(draw: random.Random) -> Iterator[tuple[str, int]]:
    """A long and busy story."""
    for _ in range(120):
        yield draw.choices(list(STEPS), list(STEPS.values()))[0], draw.randrange(1000)


@settings(max_examples=25)
@given(st.randoms(use_true_random=True))
def test_never_over_capacity_and_no_pod_bound_twice(draw):
    reality = Reality()
    for name, which in steps(draw):
        getattr(reality, name)(which)
        reality.check()


@settings(max_examples=25)
@given(st.randoms(use_true_random=True))
def test_when_all_news_are_told_and_all_answers_given_nothing_that_fits_waits(draw):
    reality = Reality()
    for name, which in steps(draw):
        getattr(reality, name)(which)
    for _ in range(50):
        while any(reality.news.values()):
            reality.tell(0)
        while reality.sent:
            reality.carry_out(1)
        reality.plan(9)
    free = [room.free.get(GPU, 0) for room in reality.planner.state.cache.nodes()]
    waiting = [view.requests[GPU] for view in reality.pods.values() if not view.node]
    assert not waiting or min(waiting) > max(free)
