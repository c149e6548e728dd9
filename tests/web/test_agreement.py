"""What `starburst explain` and the dashboard say of 1,000 random jobs is what the decision log says.

The live scheduler ran until the last of them was submitted; what it left is asked about while the clock is
stopped. What should be said is replayed from the log's rows by another model (tests/web/replayed.py). If all
kinds of things do not happen any more in such a run, since decisions are made differently: take another seed.
"""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from math import inf, isinf

import pytest
from httpx import Client
from markupsafe import escape

from bench.live import lived
from bench.soak import visitor
from starburst.app.config.home import Home
from starburst.app.jobs.job_keys import explanation_keys, story_keys
from starburst.app.jobs.snapshot_cache import SnapshotCache
from starburst.cli.main import run
from starburst.store.listings import queries
from starburst.store.listings.row_types import SUBMITTED, JobRow
from starburst.store.store import Store
from starburst.web.context import AppContext
from starburst.web.dashboard.gantt import draw
from starburst.web.dashboard.overview import Computed, JobFilter, Overview, overview
from starburst.web.dashboard.render import JobStory, job_parts
from tests.web.replayed import MOVE, OVER, Bar, Line, Past, Tale, read, replay

JOBS = 1000
#: What has to have happened to somebody.
KINDS = {
    "held",
    "released",
    "not-held",
    "awaits",
    "turn",
    "retries",
    "waits",
    "placed",
    "offloaded",
    "no-offer",
}
KINDS |= {"capped", "started", "moving", "returning", "stays-away", "lost", "stopping", *OVER}


@dataclass(frozen=True)
class Left:
    """What a life has left: its store, what its log says, and somebody who asks."""

    home: Home
    store: Store
    now: float
    past: Past
    rows: dict[str, JobRow]
    #: What `explain -o json` says of each.
    told: dict[str, dict[str, object]]
    client: Client

    @cached_property
    def app_context(self) -> AppContext:
        return AppContext(self.home, self.store)

    def say(self, at: float) -> str:
        """A time as sentences have it."""
        form = "%H:%M:%S" if abs(at - self.now) < 600 else "%H:%M"
        if int(at // 86_400) != int(self.now // 86_400):
            form = "%d %b %H:%M"
        return datetime.fromtimestamp(at, timezone.utc).strftime(form)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    root = tmp_path_factory.mktemp("left") / "home"
    with lived(root, jobs=JOBS + 40, nodes=12, load=1.3, seed=17, coarse=2, to_the_end=False) as life:
        home, now = life.home, life.scheduler.state.now
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STARBURST_HOME", str(home.root))
        patch.setenv("TZ", "UTC")
        time.tzset()
        with Store.open(home.database) as store:
            store.set_fact("clock", {"origin": time.time(), "speed": 1e-9, "start": now})
            rows = {row.id: row for row in queries.jobs(store) if row.phase != SUBMITTED}
            arrivals = {row.id: row.submitted_at for row in rows.values()}
            past, snapshots = replay(read(home.database), arrivals, now), SnapshotCache(store)
            told = {name: explanation_keys(snapshots.explanation(row)) for name, row in rows.items()}
            with visitor(home) as client:
                yield Left(home, store, now, past, rows, told, client)
    time.tzset()


def test_all_kinds_of_things_have_happened(left: Left) -> None:
    assert len(left.past.jobs) >= JOBS
    assert {line.kind for line in left.past.lines} >= KINDS
    assert {line.numbers["why"] for line in left.past.lines if line.kind == "offloaded"} >= {
        "expired",
        "cpu-only",
        "only",
        "again",
    }
    assert any(line.numbers["joins"] for line in left.past.lines if line.kind == "offloaded")
    phases = {row.phase for row in left.rows.values()}
    assert phases >= {*OVER, "held", "blocked", "queued", "offloading", "starting", "running"}


def test_where_each_job_stands_follows_from_its_decisions(left: Left) -> None:
    for tale in left.past.jobs.values():
        row = left.rows[tale.id]
        assert row.phase in tale.phases, tale.lines[-4:]
        if row.phase in ("starting", "running", "stopping") and len(tale.phases) == 1:
            assert (row.site, row.attempt) == (tale.site, tale.attempt)
            assert set(row.runs_on.split(", ")) == set(tale.where.split(", "))
        if row.phase == "queued" and tale.deadline is not None:
            assert row.deadline == (None if isinf(tale.deadline) else pytest.approx(tale.deadline, abs=1e-3))
        if row.phase in OVER:
            assert (row.ended_at, row.message) == (tale.lines[-1].at, tale.lines[-1].reason)
    unsure = sum(len(tale.phases) > 1 for tale in left.past.jobs.values())
    assert unsure < 0.1 * JOBS


def test_explain_says_what_was_decided(left: Left) -> None:
    for name, told in left.told.items():
        tale, row = left.past.jobs[name], left.rows[name]
        assert told["phase"] == row.phase
        for words in expected(left, tale, row):
            assert words in str(told["explanation"]), f"{name}: {told['explanation']}"
        if row.phase == "queued" and tale.deadline not in (None, inf):
            leaves_at = datetime.fromisoformat(str(told["leaves_at"])).timestamp()
            assert leaves_at == pytest.approx(tale.deadline, abs=0.002)
        if row.phase not in ("queued", "offloading"):
            assert told["leaves_at"] is None


def test_the_story_of_each_job_is_every_row_in_order(left: Left) -> None:
    for name, tale in left.past.jobs.items():
        row, story = left.rows[name], queries.decisions(left.store, name)
        told = story_keys(row, str(left.told[name]["explanation"]), story)
        assert told["decisions"] == [
            {"at": iso(line.at), "decision": line.kind, "reason": line.reason} for line in tale.lines
        ]
        assert told["phase"] == row.phase


def test_the_page_of_each_job_tells_the_same(left: Left) -> None:
    for name, tale in left.past.jobs.items():
        row, story = left.rows[name], queries.decisions(left.store, name)
        told = left.app_context.snapshots.explanation(row, decided=story[-1].seq if story else 0)
        chart = draw(row, story, left.now)
        page = job_parts(JobStory(left.now, False, row, told, story, chart, None))
        check_page(left, tale, page)
        bars = sorted((b.start, b.kind, b.end, lane) for lane, its in chart.lanes for b in its)
        assert bars == [(bar.start, bar.kind, bar.end, lane) for lane, bar in drawn(tale, row)]
        assert all(0 <= bar.x <= 100 and bar.x + bar.width <= 100.5 for _, its in chart.lanes for bar in its)


def test_the_server_serves_these_pages_and_stories(left: Left) -> None:
    for name, tale in [*left.past.jobs.items()][::25]:
        check_page(left, tale, left.client.get(f"/jobs/{name}").text)
        answer = left.client.get(f"/api/v1/jobs/{name}").json()
        assert [(d["at"], d["decision"], d["reason"]) for d in answer["decisions"]] == listing(tale)
        assert answer["explanation"] == left.told[name]["explanation"]
        assert left.client.get(f"/api/v1/jobs/{name}/explain").json() == {"id": name, **left.told[name]}


def check_page(left: Left, tale: Tale, page: str) -> None:
    """The page of a job has its phase, its sentence, its rows in order and its bars in their lanes."""
    row = left.rows[tale.id]
    assert f'<span class="phase {row.phase}">' in page
    assert f'<p class="told">{escape(str(left.told[tale.id]["explanation"]))}.</p>' in page
    assert listed(page) == listing(tale)
    lanes: dict[str, list[str]] = {}
    for lane, bar in drawn(tale, row):
        lanes.setdefault(lane, []).append(bar.kind)
    assert charted(page) == lanes


def listing(tale: Tale) -> list[tuple[str, str, str]]:
    """Time, kind and reason of its rows."""
    return [(iso(line.at), line.kind, line.reason) for line in tale.lines]


def test_the_lists_of_the_dashboard_are_the_logs(left: Left) -> None:
    view = seen(left)
    jobs = left.past.jobs.values()
    for phase, count in view.counts.items():
        sure = sum(tale.phases == {phase} for tale in jobs)
        assert sure <= count <= sum(phase in tale.phases for tale in jobs) or phase == SUBMITTED
    for waiter in view.waiters:
        assert "queued" in left.past.jobs[waiter.row.id].phases
    waits = {tale.id for tale in jobs if tale.phases == {"queued"}}
    assert len(view.waiters) >= min(40, len(waits))
    newest = left.past.lines[-40:][::-1]
    assert [(d.seq, d.at, d.subject, d.kind, d.reason) for d in view.decisions] == [
        (line.seq, line.at, line.subject, line.kind, line.reason) for line in newest
    ]
    assert view.decided == left.past.lines[-1].seq


def test_what_runs_where_is_the_logs(left: Left) -> None:
    view = seen(left)
    machines = {name: it for name, it in left.past.machines.items() if it.phase != "gone"}
    assert {it.record.id: (it.record.offer.title, it.record.phase.value) for it in view.machines} == {
        name: (it.offer, it.phase) for name, it in machines.items()
    }
    assert {it.record.id for it in view.machines if it.box.trouble} == {
        name for name, it in machines.items() if it.cut_off
    }
    boxes = [*view.nodes, *(it.box for it in view.machines)]
    shown = {(box.name, part.job, part.state) for box in boxes for part in box.parts}
    states = {"running": "runs", "starting": "starts", "stopping": "stops", "offloading": "starts"}
    sure = {
        (place, tale.id, states[phase])
        for tale in left.past.jobs.values()
        for phase in tale.phases & states.keys()
        if len(tale.phases) == 1
        for place in (tale.awaits if phase == "offloading" else tale.where.split(", "))
    }
    assert sure <= shown
    unsure = {tale.id for tale in left.past.jobs.values() if len(tale.phases) > 1}
    assert {job for _, job, state in shown - sure if state not in ("reserved", "moving")} <= unsure
    targets = {(place, tale.id, "moving") for tale in left.past.jobs.values() for place in targets_of(tale)}
    assert {part for part in shown if part[2] == "moving"} == targets


def test_the_front_page_shows_the_newest_rows(left: Left) -> None:
    page = left.client.get("/").text
    log = page[page.index('data-part="decisions"') :]
    assert listed(log) == [(iso(line.at), line.kind, line.reason) for line in left.past.lines[-40:][::-1]]


@pytest.mark.sqlite  # the store is the module's: a database is dropped after a test
def test_the_command_says_so_too(
    left: Left, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def said(*words: str) -> str:
        monkeypatch.setattr("sys.argv", ["starburst", "explain", *words])
        with pytest.raises(SystemExit):
            run()
        return capfd.readouterr().out

    for name, told in [*left.told.items()][-3:]:
        assert said(name) == f"{name} {told['explanation']}\n"
        assert json.loads(said(name, "-o", "json")) == {"id": name, **told}


# What should be said.


def expected(left: Left, tale: Tale, row: JobRow) -> Iterator[str]:
    """Words that the sentence on a job must have."""
    last, phase = tale.last, row.phase
    if last is None:
        yield "machines are chosen at"
    elif phase in OVER:
        yield last.reason
        yield f" at {left.say(last.at)}"
    elif phase in ("held", "blocked"):
        yield from kept_out(left, last)
    elif phase == "queued":
        yield "waits for "
        yield from waiting(left, last)
    elif phase == "offloading":
        yield "leaves for the cloud"
        yield from [f"{name} (" for name in tale.awaits] or ["machines are chosen at"]
    elif phase == "stopping":
        yield f"is being stopped on {row.runs_on}"
        yield why_stopped(last)
    else:
        yield from running(left, tale, row)


def kept_out(left: Left, last: Line) -> Iterator[str]:
    if last.kind == "retries":
        yield f"pauses before try {last.numbers['number']} of {last.numbers['of']}"
        yield f"until {left.say(last.at + last.numbers['pause_s'])}"
        return
    yield last.reason
    if last.kind != "awaits":
        yield f"; since {left.say(last.at)}"


def waiting(left: Left, last: Line) -> Iterator[str]:
    numbers = last.numbers
    if last.kind == "waits":
        yield numbers["need"]
        yield f"({numbers['rule']}"
        ends = numbers["wait_s"] is not None
        yield f"until {left.say(last.at + numbers['wait_s'])}" if ends else "as long as it takes"
    elif last.kind == "capped":
        yield f"it should leave for the cloud, but {numbers['lacks']}"


def why_stopped(last: Line) -> str:
    if last.kind == "returning":
        return "it comes home from the cloud"
    if last.kind != "stopping":
        return "a machine of its gang is gone"
    why = str(last.numbers["why"])
    return {MOVE: "it moves to"}.get(why, "what may be spent on it is spent" if "spent" in why else why)


def running(left: Left, tale: Tale, row: JobRow) -> Iterator[str]:
    assert tale.last is not None
    yield f"runs since {left.say(tale.last.at)}" if row.phase == "running" else "is being started"
    if tale.site == "cluster":
        yield f" on the cluster on {tale.where}"
        yield ", home from the cloud" if tale.came_home else ""
    else:
        yield " in the cloud on "
        yield from (f"{name} ({left.past.machines[name].offer})" for name in row.runs_on.split(", "))
        yield from (f" {name} (" for name in targets_of(tale))
        assert not tale.targets or tale.phases == {"running"}


def targets_of(tale: Tale) -> list[str]:
    """Machines that it moves to, unless it is there already."""
    return [name for name in re.findall(r"i-\d+", tale.targets) if name not in tale.where.split(", ")]


def drawn(tale: Tale, row: JobRow) -> list[tuple[str, Bar]]:
    """The bars and their lanes: a way into the cloud is drawn beside the run that it led to."""
    found, lane = [], row.runs_on
    for bar in reversed(tale.bars):
        if bar.lane != "cloud":
            lane = bar.lane if bar.kind == "runs" else ""
        if bar.end is None or bar.end > bar.start:
            found.append(((lane or "cloud") if bar.lane == "cloud" else bar.lane, bar))
    return found[::-1]


# What is said.


def seen(left: Left) -> Overview:
    return overview(left.app_context, Computed.of(left.store), JobFilter())


def listed(page: str) -> list[tuple[str, str, str]]:
    """Time, kind and reason of every decision on a page."""
    items = re.findall(
        r'<li><span class="at"><time datetime="([^"]+)">.*?<span class="kind [^"]*">([^<]+)</span> '
        r'<span class="why">([^<]*)</span></li>',
        page,
    )
    return [(at, kind, html.unescape(why)) for at, kind, why in items]


def charted(page: str) -> dict[str, list[str]]:
    """The bars of a page's chart, as it is read out to the blind: lane → kinds in order."""
    (label,) = re.findall(r'class="gantt" role="img" aria-label="([^"]*)"', page)
    lanes = (lane.partition(": ") for lane in html.unescape(label).split("; ") if lane)
    return {name: re.findall(r"(\w+) from ", bars) for name, _, bars in lanes}


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")
