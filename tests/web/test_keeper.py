"""The API's process beside the scheduler: kept alive, listened to, and never waited for."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
import structlog

from starburst.app.config.home import Home
from starburst.app.config.http import HttpConfig
from starburst.app.daemon.progress_inbox import ProgressInbox
from starburst.bus.hints import ThroughputHint
from starburst.store.report_tokens import make_report_key, report_token
from starburst.web.context import STALL_LIMIT_S, AppContext, SchedulerHeartbeat
from starburst.web.serving.channel import MOST, MessageChannel
from starburst.web.serving.listen import listening, url_of
from starburst.web.serving.supervisor import AGAIN_S, LONGEST_S, WELL_S, ServerSupervisor, answering
from tests.app import virtual

HALF = {"done": 5, "total": 10, "per_s": 0.5}


@pytest.fixture
def line() -> Iterator[tuple[MessageChannel, MessageChannel]]:
    """Both ends."""
    ends = MessageChannel.pair()
    yield ends
    for end in ends:
        end.close()


class TestLine:
    def test_messages_arrive_whole_and_in_order(self, line: tuple[MessageChannel, MessageChannel]) -> None:
        one, other = line
        for n in range(3):
            assert one.send(b"x" * (n + 1))
        assert list(other.received()) == [b"x", b"xx", b"xxx"]
        assert list(other.received()) == []

    def test_who_is_behind_is_not_waited_for(self, line: tuple[MessageChannel, MessageChannel]) -> None:
        one, other = line
        said = 0
        while one.send(b"x" * 1000):
            said += 1
            assert said < 100_000, "it has no end"
        assert not one.send(b"too much")
        assert len(list(other.received())) == min(
            said, MOST
        )  # so much at a time, for the scheduler has more to do
        assert one.send(b"there is room again")

    def test_an_end_that_is_gone_is_noticed_and_spoken_to_without_harm(
        self, line: tuple[MessageChannel, MessageChannel]
    ) -> None:
        one, other = line
        one.send(b"last")
        one.close()
        heard = other.received()
        assert next(heard) == b"last"
        with pytest.raises(EOFError):
            next(heard)
        assert not other.send(b"are you there?")


def test_a_pulse_is_well_until_it_was_not_felt_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    heartbeat = SchedulerHeartbeat()
    now[0] += STALL_LIMIT_S
    assert heartbeat.stalled_s() == 0
    now[0] += 1
    assert heartbeat.stalled_s() == STALL_LIMIT_S + 1
    heartbeat.beat_at = now[0]
    assert heartbeat.stalled_s() == 0


def test_a_process_that_ends_is_started_again_ever_more_slowly_until_it_did_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = [0.0] * 8 + [WELL_S, 0.0]
    starts = list[float]()

    async def live(_self: ServerSupervisor) -> str:
        starts.append(virtual.wall())
        if not lives:
            await asyncio.Event().wait()
        await asyncio.sleep(lives.pop(0))
        return "exit code 1"

    monkeypatch.setattr(ServerSupervisor, "_live", live)

    async def main() -> None:
        with socket.socket() as sock:
            keeping = asyncio.create_task(
                ServerSupervisor(Home(tmp_path), HttpConfig(), sock, ProgressInbox(), text=False).keep()
            )
            await asyncio.sleep(900)
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping

    with structlog.testing.capture_logs() as logged:
        virtual.run(main())
    pauses = [later - earlier for earlier, later in pairwise(starts)]
    assert pauses[:8] == pytest.approx([AGAIN_S, 1, 2, 4, 8, 16, LONGEST_S, LONGEST_S])
    assert pauses[8:] == pytest.approx([WELL_S + AGAIN_S, 2 * AGAIN_S])
    assert [(said["event"], said["how"]) for said in logged] == [("http-ended", "exit code 1")] * 10


def test_a_process_that_cannot_be_started_is_no_end_of_the_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_more(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", no_more)

    async def main() -> str:
        with socket.socket() as sock:
            return await ServerSupervisor(
                Home(tmp_path), HttpConfig(), sock, ProgressInbox(), text=False
            )._live()

    before = len(os.listdir("/proc/self/fd"))
    assert "Too many open files" in asyncio.run(main())
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.processes
def test_what_runs_say_over_http_comes_to_the_scheduler_from_the_other_process(
    app_context: AppContext,
) -> None:
    """And who connects while the process is starting waits in line."""
    inbox, settings = ProgressInbox(), HttpConfig(port=0)
    secret = report_token(make_report_key(app_context.store), "train-44444")

    async def main() -> list[ThroughputHint]:
        with listening(settings) as sock:
            assert sock is not None
            async with (
                answering(app_context.home, settings, sock, inbox, "", text=False),
                httpx.AsyncClient(base_url=url_of(sock), timeout=20) as client,
            ):
                path = "/api/v1/jobs/train-44444/attempts/1/progress"
                headers = {"Authorization": f"Bearer {secret}"}
                assert (await client.put(path, json=HALF, headers=headers)).status_code == 204
                assert (await client.get("/healthz")).json() == {"status": "ok"}
                while not inbox._said:
                    await asyncio.sleep(0.01)
        return list(inbox._said.values())

    assert asyncio.run(asyncio.wait_for(main(), 30)) == [ThroughputHint(job="train-44444", attempt=1, **HALF)]


def test_what_the_process_makes_up_is_not_believed(
    tmp_path: Path, line: tuple[MessageChannel, MessageChannel]
) -> None:
    """It reads what strangers send, so the scheduler reads it as it would strangers."""
    inbox = ProgressInbox()
    with socket.socket() as sock:
        supervisor = ServerSupervisor(Home(tmp_path), HttpConfig(), sock, inbox, text=False)
        ours, theirs = line
        good = {"job": "a", "attempt": 1, **HALF}
        bad = [b"{", b"\xff", b"[]", b"{}", json.dumps({**good, "per_s": -1}).encode(), b"x" * 60_000]
        for message in [*bad, json.dumps(good).encode()]:
            theirs.send(message)
        supervisor._hear(ours)
    assert list(inbox._said.values()) == [ThroughputHint(**good)]
