"""A soak: the live scheduler over months of virtual time and 100,000 jobs; does its memory stay flat?

    python -m bench.soak [--jobs N] [--minutes M] [--seed S] [--out docs/results]

Writes soak.md and soak.svg. What is real and what is simulated says bench/live.py.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from httpx import Client

from bench.live import START, Life, lived
from bench.soak_report import Sample, Told, verdict, write
from starburst.app.config.home import Home
from starburst.app.config.http import HttpConfig
from starburst.store.store import Store
from starburst.web.app import make_app
from starburst.web.context import AppContext

#: 256 GPUs, asked for 1.2 times.
NODES, LOAD = 32, 1.2
#: Ended jobs between samples, and between visits of somebody with a browser, a scraper and questions.
SAMPLE, VISIT = 1000, 500
PAGE = os.sysconf("SC_PAGE_SIZE")


class Watcher:
    """Takes samples, visits the web pages, and says how far it is."""

    def __init__(self, life: Life, jobs: int, minutes: float, seed: int, client: Client) -> None:
        self.life = life
        self.samples: list[Sample] = []
        self.pages: list[float] = []
        self.refused: list[str] = []
        self._jobs, self._client, self._draw = jobs, client, Random(f"{seed}/visits")
        self._began = time.perf_counter()
        self._cpu = time.process_time()
        self._give_up = self._began + 60 * minutes
        self._next_sample, self._next_visit = 0, VISIT
        life.on_step = self.step

    def step(self) -> None:
        """To be called after every step of the scheduler."""
        if self.life.ended >= self._next_visit:
            self._next_visit += VISIT
            self._visit()
        if self.life.ended >= self._next_sample:
            self._next_sample += SAMPLE
            self.sample()
            if time.perf_counter() > self._give_up:
                self.life.users.stop()

    def sample(self) -> None:
        """How it stands."""
        life, database = self.life, self.life.home.database
        sizes = life.sizes()
        self.samples.append(
            Sample(
                ended=life.ended,
                wall_s=time.perf_counter() - self._began,
                cpu_s=time.process_time() - self._cpu,
                days=(life.scheduler.state.now - START) / 86_400,
                steps=life.steps,
                rss=_rss(),
                blocks=sys.getallocatedblocks(),
                database=database.stat().st_size,
                wal=_size(database.with_name(f"{database.name}-wal")),
                tasks=len(asyncio.all_tasks()),
                lag=life.lag,
                jobs=sizes["jobs"],
                queue=sizes["queue"],
                machines=sizes["instances"],
                timers=sizes["deadlines"] + sizes["looks"] + sizes["pauses"],
                others=sum(sizes.values()),
                page_s=max(self.pages[-VISIT // 50 :], default=0.0),
                directories=_directories(life.home),
            )
        )
        last = self.samples[-1]
        share, minutes = last.ended / self._jobs, last.wall_s / 60
        bar = "█" * int(30 * share)
        print(
            f"\r{bar:░<30} {last.ended:>7,} jobs, day {last.days:.1f}, {minutes:.1f} min, "
            f"{last.rss / 2**20:.1f} MiB, {last.jobs} alive, {last.machines} machines ",
            end="\n" if not sys.stderr.isatty() else "",
            file=sys.stderr,
            flush=True,
        )

    def _visit(self) -> None:
        """Somebody looks: the dashboard, the metrics, some jobs that live and one that does not."""
        alive = sorted(self.life.scheduler.state.jobs)
        some = self._draw.sample(alive, k=min(3, len(alive)))
        paths = ["/", "/dashboard/overview?phase=queued", "/metrics", "/api/v1/summary"]
        paths += [f"/api/v1/jobs/{job}/explain" for job in some]
        paths += [f"/jobs/{job}" for job in some[:1]]
        for path in paths:
            began = time.perf_counter()
            answer = self._client.get(path)
            self.pages.append(time.perf_counter() - began)
            if answer.status_code != 200:
                self.refused.append(f"{path}: {answer.status_code}")


@contextmanager
def visitor(home: Home) -> Iterator[Client]:
    """A client of the HTTP API on this home; the loop stands still while it is answered."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would have another client than ours
        from starlette.testclient import TestClient  # noqa: PLC0415
    with Store.open(home.database) as store:
        settings = HttpConfig(requests_per_second=1e5)
        with TestClient(
            make_app(AppContext(home, store), settings), base_url="http://127.0.0.1:8585"
        ) as client:
            yield client


def soak(root: Path, *, jobs: int, minutes: float, seed: int, validates: bool = False) -> Told:
    """Live through so many jobs, or as many as arrive in the time: what was seen, and what was wrong.

    `validates`: the state is checked before each commit; off where times and memory are measured.
    """
    watchers: list[Watcher] = []

    @contextmanager
    def watch(life: Life) -> Iterator[None]:
        with visitor(life.home) as client:
            watchers.append(Watcher(life, jobs, minutes, seed, client))
            yield
            watchers[0].sample()

    with lived(
        root, jobs=jobs, nodes=NODES, load=LOAD, seed=seed, validates=validates, rolls_up=True, watch=watch
    ) as life:
        (watcher,) = watchers
        wrong = [*life.wrong(), *watcher.refused[:3]]
        if life.users.submitted < jobs:
            wrong.append(f"only {life.users.submitted:,} jobs were submitted in {minutes:g} minutes")
        return Told(watcher.samples, dict(life.decided), wrong, life.prunings, watcher.pages)


def main() -> None:
    """Soak, judge, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=60.0, help="nothing more is submitted after that")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        told = soak(Path(root) / "home", jobs=args.jobs, minutes=args.minutes, seed=args.seed)
    for line in verdict(told).lines:
        print(line)
    write(told, args.out, f"python -m bench.soak --jobs {args.jobs} --seed {args.seed}")
    sys.exit(not verdict(told).good)


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _directories(home: Home) -> int:
    return sum(len(os.listdir(root)) for root in (home.cluster, home.cloud / "runs") if root.is_dir())


if __name__ == "__main__":
    main()
