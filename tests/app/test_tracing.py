"""Spans: the life of a job is one trace, and a collector that is away is no matter to the scheduler."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from structlog.testing import capture_logs

from starburst.app.config import parse_config
from starburst.app.config.home import Home
from starburst.app.config.tracing import TracingConfig
from starburst.app.daemon.observers import CommittedStep
from starburst.app.doctor.doctor import CheckStatus, config_checks
from starburst.app.errors import UserError
from starburst.app.telemetry import otlp
from starburst.app.telemetry.tracing import Tracing
from starburst.app.wiring import tracing as tracing_module
from starburst.app.wiring.build import build
from starburst.core.model.decisions import Decision
from starburst.core.state import Changes
from starburst.domain.clock import Pace
from starburst.store.listings import queries
from starburst.store.store import Store
from tests.app.life import a_world, living
from tests.app.receiver import Receiver, plain, receiving
from tests.app.virtual import run
from tests.builders import job


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "starburst.db"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as it:
        yield it


@pytest.fixture
def nobody() -> str:
    """A URL at which nobody answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/v1/traces"


def tracing(endpoint: str, controller: str = "us", **settings: Any) -> Tracing:
    return Tracing(TracingConfig(endpoint=endpoint, **settings), controller, Pace())


def a_step(decisions: int = 1) -> CommittedStep:
    """One that decides something about nothing in particular."""
    changes = Changes()
    changes.decisions = [Decision(n, 5.0, "all", "Tick", "turn", TURN) for n in range(decisions)]
    return CommittedStep(1000.0, 0.25, 0.5, [], changes, {})


TURN = {"at_once": 1, "array": "x", "much": float("inf"), "none": None, "deep": {"a": [1]}}


def life(controller: str, what: str, name: str) -> bytes:
    """The id of a trace, as docs/tracing.md says."""
    return sha256(f"{controller}/{what}/{name}".encode()).digest()[:16]


# --- what is told -----------------------------------------------------------------------------------------


class Story:
    """Two jobs for a node that holds one: b leaves, and the scheduler is started anew while it runs."""

    def __init__(self, path: Path, receiver: Receiver) -> None:
        self.receiver = receiver
        with Store.open(path) as store:
            self.us = str(store.fact("controller"))

        async def one(*jobs: Any, **phases: str) -> None:
            watchers = [tracing(receiver.url, self.us, service="lab")]
            async with living(path, a_world(2) if jobs else self.world, observers=watchers) as it:
                self.world = it.cluster.world
                it.submit(*jobs)
                await it.until(**phases)
                await asyncio.sleep(3)

        run(one(job("a", 2), job("b", 2, queue="q"), b="running"))
        self.before = len(receiver.spans)
        run(one(a="succeeded", b="succeeded"), start=self.world.machines["i-000001"].launched_at + 8)
        with Store.open(path) as store:
            self.log = queries.decisions(store)

    def life(self, what: str, name: str) -> list[Any]:
        return self.receiver.trace(life(self.us, what, name))


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with receiving() as receiver:
        yield Story(tmp_path_factory.mktemp("story") / "starburst.db", receiver)


def test_the_life_of_a_job_is_one_trace_across_restarts(story: Story) -> None:
    (root,) = [span for span in story.life("job", "b") if not span.parent_span_id]
    told = [span for span in story.life("job", "b") if span.parent_span_id == root.span_id]
    assert len(told) == len(story.life("job", "b")) - 1
    assert any(span in story.receiver.spans[: story.before] for span in told)
    rows = [row for row in story.log if row.subject == "b"]
    assert {"waits", "offloaded", "started", "succeeded"} <= {row.kind for row in rows}
    told.sort(key=lambda span: span.start_time_unix_nano)
    assert [span.name for span in told] == [row.kind for row in rows]
    for span, row in zip(told, rows, strict=True):
        about = plain(span.attributes)
        assert about["starburst.decision.seq"] == row.seq
        assert about["starburst.decision.reason"] == row.reason
        assert (about["starburst.job.id"], about["starburst.queue"]) == ("b", "q")
        assert root.start_time_unix_nano <= span.start_time_unix_nano <= root.end_time_unix_nano


def test_the_numbers_of_a_decision_are_attributes(story: Story) -> None:
    (left,) = [span for span in story.life("job", "b") if span.name == "offloaded"]
    (row,) = [row for row in story.log if (row.subject, row.kind) == ("b", "offloaded")]
    numbers = {f"starburst.number.{key}": value for key, value in row.numbers.items() if value is not None}
    assert numbers.items() <= plain(left.attributes).items()
    assert numbers["starburst.number.why"] == "expired"


def test_the_root_says_how_it_ended_and_covers_all_of_it(story: Story) -> None:
    (root,) = [span for span in story.life("job", "b") if not span.parent_span_id]
    assert (root.name, root.status.code) == ("job", root.status.STATUS_CODE_OK)
    about = plain(root.attributes)
    assert (about["starburst.job.phase"], about["starburst.site"]) == ("succeeded", "cloud")
    first, last = [row.at for row in story.log if row.subject == "b"][:: len(story.life("job", "b")) - 2]
    # Commits take real time, which this clock counts, too.
    assert first * 1e9 - 1e8 <= root.start_time_unix_nano <= first * 1e9 + 2e10
    assert last * 1e9 - 1e8 <= root.end_time_unix_nano <= last * 1e9 + 2e10


def test_a_machine_has_a_trace_too_and_who_leaves_for_it_links_there(story: Story) -> None:
    machine = story.life("machine", "i-000001")
    assert {span.name for span in machine} >= {"machine", "launched", "ready", "terminating", "gone"}
    (left,) = [span for span in story.life("job", "b") if span.name == "offloaded"]
    assert life(story.us, "machine", "i-000001") in [link.trace_id for link in left.links]


def test_each_decision_links_to_the_step_that_made_it(story: Story) -> None:
    steps = {span.span_id: span for span in story.receiver.named("step")}
    counts = dict.fromkeys(steps, 0)
    for span in story.receiver.spans:
        if "starburst.decision.seq" in plain(span.attributes):
            step = steps[span.links[0].span_id]
            assert span.links[0].trace_id == step.trace_id
            assert step.start_time_unix_nano <= span.start_time_unix_nano
            assert span.end_time_unix_nano == step.end_time_unix_nano
            counts[step.span_id] += 1
    for span_id, step in steps.items():
        assert plain(step.attributes)["starburst.step.decisions"] == counts[span_id]
    assert sum(counts.values()) == len(story.log)


def test_a_step_has_its_two_parts(story: Story) -> None:
    for step in story.receiver.named("step"):
        parts = [span for span in story.receiver.spans if span.parent_span_id == step.span_id]
        assert [part.name for part in parts] == ["core", "commit"]
        assert parts[0].start_time_unix_nano == step.start_time_unix_nano
        assert parts[0].end_time_unix_nano == parts[1].start_time_unix_nano
        assert parts[1].end_time_unix_nano == step.end_time_unix_nano
    events = [plain(step.attributes)["starburst.step.events"] for step in story.receiver.named("step")]
    assert sum(events) > 10


def test_every_span_says_whose_it_is(story: Story) -> None:
    for resource in story.receiver.resources:
        assert (resource["service.name"], resource["service.instance.id"]) == ("lab", story.us)


def test_what_is_decided_about_no_job_and_no_machine_is_in_the_trace_of_the_step(receiver: Receiver) -> None:
    it = tracing(receiver.url)
    it.stepped(a_step())
    it.close()
    (step,), (turn,) = receiver.named("step"), receiver.named("turn")
    assert (turn.trace_id, turn.parent_span_id) == (step.trace_id, step.span_id)
    about = plain(turn.attributes)
    assert about["starburst.number.much"] == "inf"
    assert about["starburst.number.deep"] == '{"a":[1]}'
    assert "starburst.number.none" not in about
    assert step.end_time_unix_nano - step.start_time_unix_nano == 750_000_000


# --- the collector ----------------------------------------------------------------------------------------


def test_headers_are_read_at_every_send(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "SEND_S", 0.01)
    secret = tmp_path / "headers"
    secret.write_text("Authorization: Bearer one\n\nX-Lab: 3\n")
    it = tracing(receiver.url, headers_file=str(secret))
    for told in ("one", "two"):
        secret.write_text(f"Authorization: Bearer {told}\n")
        count = len(receiver.authorizations)
        it.stepped(a_step())
        _until(lambda count=count: len(receiver.authorizations) > count)
    it.close()
    assert receiver.authorizations[0] == "Bearer one"
    assert receiver.authorizations[-1] == "Bearer two"


def _until(true: Any) -> None:
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_no_collector_is_a_line_in_the_log_and_costs_neither_time_nor_memory(
    nobody: str, path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(otlp, "QUEUE", 600)
    monkeypatch.setattr(otlp, "SEND_S", 0.01)
    monkeypatch.setattr(otlp, "FLUSH_S", 0.3)
    monkeypatch.setattr(otlp, "ABORT_S", 10.0)  # however busy this machine is

    async def main() -> None:
        async with living(path, a_world(2), observers=[it]) as at_work:
            at_work.submit(job("a", 2))
            await at_work.until(a="succeeded")

    with capture_logs() as logs:
        it = tracing(nobody)
        began = time.thread_time()
        for _ in range(20):
            it.stepped(a_step(200))
        assert time.thread_time() - began < 3
        assert sum(issubclass(type(it), ReadableSpan) for it in gc.get_objects()) <= 600 + otlp.BATCH + 1
        run(main())
    (line,) = [line for line in logs if line["event"].startswith("tracing")]
    assert (line["event"], line["log_level"], line["endpoint"]) == ("tracing-failed", "warning", nobody)
    assert "refused" in line["error"]
    assert capfd.readouterr().err == ""


def test_a_collector_that_hangs_does_not_keep_the_scheduler_from_ending(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "FLUSH_S", 0.2)
    receiver.answers.clear()
    it = tracing(receiver.url)
    it.stepped(a_step(1000))
    began = time.monotonic()
    it.close()
    assert time.monotonic() - began < 8, "the limit of an export is 10 s"


def test_when_it_takes_spans_again_that_is_said_and_how_many_were_lost(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "SEND_S", 0.01)
    receiver.status = 400
    with capture_logs() as logs:
        it = tracing(receiver.url)
        for _ in range(2):
            before = len(receiver.authorizations)
            it.stepped(a_step())
            _until(lambda before=before: len(receiver.authorizations) > before)
        _until(lambda: logs)
        receiver.status = 200
        it.stepped(a_step())
        it.close()
    assert [line["event"] for line in logs] == ["tracing-failed", "tracing-resumed"]
    assert "400" in logs[0]["error"]
    assert logs[1]["lost"] == 8


def test_a_mistake_in_the_spans_is_not_the_end_of_the_scheduler(receiver: Receiver) -> None:
    it = tracing(receiver.url)
    broken = a_step()
    broken.changes.decisions[0].numbers["self"] = object()
    with capture_logs() as logs:
        for step in (broken, a_step()):
            it.stepped(step)
    it.close()
    assert [line["event"] for line in logs] == ["tracing-broken"]
    assert len(receiver.named("step")) == 1


# --- the config -------------------------------------------------------------------------------------------


def test_by_default_nothing_is_sent_and_nothing_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing_module, "find_spec", lambda _: None)
    home = Home(tmp_path)
    with Store.open(home.database) as store:
        build(home, parse_config({}, "starburst.yaml"), store)


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"endpoint": "collector:4318"}, 'endpoint: "collector:4318": must be a URL such as http://127.0'),
        ({"endpoint": "http://[::1/v1/traces"}, 'endpoint: "http://[::1/v1/traces": must be a URL such as'),
        ({"endpoint": "http://it:99999/x"}, 'endpoint: "http://it:99999/x": must be a URL such as'),
        ({"endpoint": "http://it:4318"}, 'endpoint: "http://it:4318": needs the path, which is /v1/traces'),
        ({"endpoint": "http://u:p@it/v1"}, 'endpoint: "http://u:p@it/v1": must not have a password in it'),
        ({"headers_file": "/h"}, 'headers_file: "/h": needs endpoint'),
        ({"service": ""}, 'service: "": '),
        ({"endpoit": "x"}, "endpoit: there is no such field; did you mean endpoint?"),
    ],
)
def test_what_is_wrong_is_named_with_the_mend(section: dict[str, object], says: str) -> None:
    with pytest.raises(UserError) as error:
        parse_config({"tracing": section}, "starburst.yaml")
    assert str(error.value).startswith(f"starburst.yaml: tracing.{says}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read (No such file or directory); name an existing file"),
        (b"# secret\nAuthorization Bearer x", "line 1: is no header; write Name: value"),
        ("Key: schlüssel".encode(), "has signs that a header cannot have; write plain ASCII"),
    ],
)
def test_headers_that_cannot_be_sent_are_refused_at_the_start_and_not_shown(
    receiver: Receiver, tmp_path: Path, text: bytes | None, says: str
) -> None:
    file = tmp_path / "headers"
    if text is not None:
        file.write_bytes(text)
    with pytest.raises(UserError) as error:
        tracing(receiver.url, headers_file=str(file))
    assert str(error.value).startswith(f"tracing.headers_file: {file}")
    assert str(error.value).endswith(says)


def test_without_the_extra_a_start_and_the_doctor_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing_module, "find_spec", lambda _: None)
    says = "tracing.endpoint: needs the extra: pip install 'starburst-hybrid[otel]'"
    home, config = doctored(tmp_path, "http://127.0.0.1:1/v1/traces")
    with Store.open(home.database) as store, pytest.raises(UserError) as error:
        build(home, parse_config({"tracing": {"endpoint": "http://127.0.0.1:1/v1/traces"}}, "s"), store)
    assert str(error.value) == says
    checks, _ = config_checks(home, config)
    assert checks[-1].line == f"extra: {says}"
    assert checks[-1].status is CheckStatus.FAIL


def doctored(tmp_path: Path, endpoint: str) -> tuple[Home, Path]:
    home, config = Home(tmp_path / "home"), tmp_path / "starburst.yaml"
    home.make()
    config.write_text(f"tracing: {{endpoint: '{endpoint}'}}")
    return home, config


def test_the_doctor_asks_the_collector(tmp_path: Path, receiver: Receiver, nobody: str) -> None:
    for endpoint, status, line in (
        (receiver.url, 200, "takes spans"),
        (receiver.url, 401, "answers 401; put what it asks for into tracing.headers_file"),
        (receiver.url, 404, "answers 404; check the path"),
        (nobody, 0, "; start the collector; until then spans are lost"),
    ):
        receiver.status = status
        checks, _ = config_checks(*doctored(tmp_path, endpoint))
        assert checks[-1].line.startswith(f"tracing: {endpoint} ")
        assert checks[-1].line.endswith(line)
        assert checks[-1].status is (CheckStatus.OK if status == 200 else CheckStatus.WARN)
    assert not receiver.spans
