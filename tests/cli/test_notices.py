"""Notices: who is told of what, by webhook and e-mail, once each; servers that are away, and that refuse."""

from __future__ import annotations

import asyncio
import json
import re
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import structlog

from starburst.app.config import parse_config
from starburst.app.config.notify import NotifyRule, SmtpConfig
from starburst.app.daemon.orphan_ledger import OrphanLedger, ReapedMachine
from starburst.app.errors import UserError
from starburst.app.notices.notices import MOST_LINES, Notice, message, wanted
from starburst.app.notices.notifier import Notifier
from starburst.app.notices.senders import PAUSES_S, deliver
from starburst.store.listings import pages
from tests.cli.past import Past


@contextmanager
def listening(server: socketserver.BaseServer) -> Iterator[int]:
    """The port of a server that answers until the block ends."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1]  # type: ignore[index,misc]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def slack(told: list[str], *statuses: int) -> ThreadingHTTPServer:
    """A webhook as Slack has them, which answers with these statuses first."""
    answers = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = answers.pop(0) if answers else 200
            if status == 200:
                assert set(body) == {"text"}
                told.append(body["text"])
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def post(told: list[str], *refused: bytes) -> socketserver.TCPServer:
    """An SMTP server that takes every message, but not for these recipients."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            for line in self.rfile:
                if line.upper().startswith(b"RCPT") and any(name in line for name in refused):
                    self.wfile.write(b"450 come back later\r\n")
                    continue
                if line.upper().startswith(b"DATA"):
                    self.wfile.write(b"354 go on\r\n")
                    told.append(b"".join(iter(self.rfile.readline, b".\r\n")).decode())
                self.wfile.write(b"221 bye\r\n" if line.upper().startswith(b"QUIT") else b"250 ok\r\n")

    return socketserver.TCPServer(("127.0.0.1", 0), Handler)


def sent(rule: NotifyRule, text: str, smtp: SmtpConfig | None = None) -> tuple[bool, list[float]]:
    """Whether a message arrived, and the pauses between the attempts."""
    pauses: list[float] = []

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)

    return asyncio.run(deliver(rule, smtp or SmtpConfig(), text, sleep)), pauses


def test_a_webhook_gets_the_text_and_is_asked_again_while_it_is_away() -> None:
    told: list[str] = []
    with listening(slack(told, 503, 500)) as port:
        rule = NotifyRule(webhook=f"http://127.0.0.1:{port}/T1/secret")
        assert sent(rule, "job a: failed") == (True, list(PAUSES_S[:2]))
    assert told == ["job a: failed"]


def test_a_webhook_whose_answer_does_not_end_has_taken_the_text() -> None:
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while not over.wait(0.01):
                    self.wfile.write(b".")

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    with listening(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        stop = threading.Timer(5, over.set)
        stop.start()
        arrived, _ = sent(NotifyRule(webhook=f"http://127.0.0.1:{port}/"), "x")
        assert (arrived, over.is_set()) == (True, False)
        stop.cancel()
        over.set()


def test_a_webhook_that_refuses_is_given_up_and_its_address_is_not_logged() -> None:
    told: list[str] = []
    with listening(slack(told, 404)) as port, structlog.testing.capture_logs() as logged:
        assert sent(NotifyRule(webhook=f"http://127.0.0.1:{port}/T1/secret"), "x") == (False, [])
    (line,) = logged
    assert line["event"] == "notice-not-sent"
    assert "secret" not in str(line)
    with structlog.testing.capture_logs() as logged:
        assert sent(NotifyRule(webhook="http://127.0.0.1:1/T1/secret"), "x") == (False, list(PAUSES_S))
    assert "secret" not in str(logged)


def test_the_address_of_a_webhook_may_be_in_a_file(tmp_path: Path) -> None:
    told: list[str] = []
    with listening(slack(told)) as port:
        (tmp_path / "hook").write_text(f"http://127.0.0.1:{port}/\n")
        assert sent(NotifyRule(webhook_file=str(tmp_path / "hook")), "x")[0]
    assert told == ["x"]


def test_e_mail_is_sent_again_to_those_alone_whom_the_server_refused_and_they_are_named() -> None:
    told: list[str] = []
    with listening(post(told, b"grey@")) as port, structlog.testing.capture_logs() as logged:
        smtp = SmtpConfig(host="127.0.0.1", port=port, starttls=False)
        rule = NotifyRule(email=["ops@lab.example", "grey@lab.example"])
        assert sent(rule, "job a: failed", smtp) == (False, list(PAUSES_S))
    assert len(told) == 1
    (line,) = logged
    assert line["target"] == "grey@lab.example"
    assert "come back later" in line["error"]


def test_e_mail_has_the_first_line_as_its_subject() -> None:
    told: list[str] = []
    with listening(post(told)) as port:
        sender = "Starburst <starburst@lab.example>"
        smtp = SmtpConfig(host="127.0.0.1", port=port, starttls=False, sender=sender)
        assert sent(NotifyRule(email=["ops@lab.example"]), "job a: failed\njob b: failed", smtp)[0]
    (mail,) = told
    assert "Subject: Starburst: job a: failed" in mail
    assert "To: ops@lab.example" in mail
    assert "\nDate: " in mail
    assert re.search(r"^Message-ID: <\S+@lab\.example>\r?$", mail, re.MULTILINE)
    assert "job b: failed" in mail


@pytest.mark.parametrize("address", ["ops@", "<", "ops@lab.example\nBcc: x"])
def test_an_address_that_is_none_is_given_up_and_does_not_end_the_scheduler(address: str) -> None:
    smtp = SmtpConfig(host="127.0.0.1", port=1, sender="starburst@lab.example")
    with structlog.testing.capture_logs() as logged:
        assert sent(NotifyRule(email=[address]), "job a: failed", smtp) == (False, [])
    (line,) = logged
    assert (line["event"], line["target"]) == ("notice-not-sent", address)


def test_a_file_that_is_no_text_and_a_host_that_is_none_are_given_up(tmp_path: Path) -> None:
    (tmp_path / "hook").write_bytes(b"https://hooks.example/T1/\xff\n")
    assert sent(NotifyRule(webhook_file=str(tmp_path / "hook")), "x") == (False, [])
    smtp = SmtpConfig(host="smtp..example", sender="starburst@lab.example")
    assert sent(NotifyRule(email=["ops@lab.example"]), "x", smtp) == (False, [])


def test_a_rule_is_for_events_a_user_and_a_queue() -> None:
    ended = Notice(("ended", "failed"), "a", "ada", "vision")
    leaked = Notice(("leaked",), "i-1")
    everything = [ended, leaked]
    hook = {"webhook": "http://x.example/"}
    assert wanted(NotifyRule(**hook), everything) == everything
    assert wanted(NotifyRule(on=["ended"], user="ada", **hook), everything) == [ended]
    assert wanted(NotifyRule(on=["ended"], queue="papers", **hook), everything) == []
    assert wanted(NotifyRule(on=["burst"], **hook), everything) == []
    assert wanted(NotifyRule(user="ada", **hook), everything) == [ended]


def test_a_message_is_short_and_has_no_control_characters() -> None:
    text = message([Notice(("ended",), f"job {n}\x1b[31m") for n in range(MOST_LINES + 5)])
    assert text.count("\n") == MOST_LINES
    assert text.endswith("and 5 more: starburst events")
    assert "\x1b" not in text


async def told_by(past: Past, *rules: NotifyRule) -> list[tuple[int, str]]:
    """What one look at the log sends by each rule."""
    found: list[tuple[int, str]] = []

    async def deliver_here(rule: NotifyRule, text: str) -> bool:
        found.append((rules.index(rule), text))
        return True

    notifier = Notifier(past.store, rules, (), deliver_here)
    looking = asyncio.ensure_future(notifier.run())
    for _ in range(200):
        await asyncio.sleep(0.005)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    return found


def test_what_is_decided_is_told_once_over_restarts_and_nothing_from_before(past: Past) -> None:
    hook = "http://x.example/"
    ends = NotifyRule(on=["ended", "burst"], webhook=hook)
    leaks = NotifyRule(on=["leaked"], webhook=hook)
    bobs = NotifyRule(on=["failed"], user="bob", webhook=hook)
    past.submit("old")
    assert asyncio.run(told_by(past, ends, leaks, bobs)) == []
    past.morning()
    OrphanLedger(past.store).note(ReapedMachine("sb-x-i-7", "x", "p3", None, 1.0, past.now, "unclaimed"))
    found = asyncio.run(told_by(past, ends, leaks, bobs))
    by_rule = dict(found)
    assert len(found) == 3
    assert "job done-11111: finished after" in by_rule[0]
    assert "job bad-22222: leaves for the cloud" in by_rule[0]
    assert by_rule[1] == "machine sb-x-i-7 (p3) was ended, as nothing claims it: unclaimed"
    assert by_rule[2].startswith("job bad-22222: its command ended with exit code 3")
    assert asyncio.run(told_by(past, ends, leaks, bobs)) == []


def test_a_server_that_is_away_holds_up_no_other_and_is_told_later(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("starburst.app.notices.notifier.POLL_S", 0.01)
    dead = NotifyRule(on=["ended"], webhook="http://dead.example/")
    well = NotifyRule(on=["ended"], webhook="http://well.example/")
    told: list[str] = []

    async def while_one_is_away() -> None:
        twice = asyncio.Event()

        async def deliver_here(rule: NotifyRule, text: str) -> bool:
            if rule is dead:
                await asyncio.Event().wait()
            told.append(text)
            past.morning() if len(told) == 1 else twice.set()
            return True

        following = asyncio.ensure_future(Notifier(past.store, (dead, well), (), deliver_here).run())
        await asyncio.wait_for(twice.wait(), 10)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    # as an older version has kept it, for all rules at once
    past.store.set_fact("notified", {"seq": pages.head(past.store), "reaped_at": 0.0})
    past.submit("early-1")
    past.start("early-1")
    past.end("early-1", 0)
    asyncio.run(while_one_is_away())
    assert [text.partition(":")[0] for text in told] == ["job early-1", "job done-11111"]
    owed = asyncio.run(told_by(past, dead, well))
    assert "job early-1" in dict(owed)[0]


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"email": ["a@b.example"]}, "email needs smtp.host"),
        ({}, "give one of webhook, webhook_file and email"),
        ({"webhook": "slack.example/T1"}, "must be an address such as https://hooks.example/T1/B2"),
        ({"webhook": "http://hooks.example:port/T1"}, "must be an address such as https://hooks.example/T1"),
        ({"webhook": "http://hooks.example:99999/T1"}, "must be an address such as https://hooks.example/T1"),
        ({"webhook": "http://[::1/T1"}, "must be an address such as https://hooks.example/T1"),
        ({"webhook": "http://x.example", "on": ["lost"]}, "on"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(rule: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        parse_config({"notify": [rule]}, "test")
