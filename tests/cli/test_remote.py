"""The same commands over HTTP: what they print is what they print at home, whatever they are and are told."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import typer

from starburst.app.config.home import Home
from starburst.app.config.http import HttpConfig
from starburst.app.daemon.orphan_ledger import OrphanLedger, ReapedMachine
from starburst.cli.backend.http import HttpBackend
from starburst.cli.backend.local import LocalBackend
from starburst.cli.main import COMMANDS, app
from starburst.cli.service.server import REMOTE
from starburst.client import RefusedError, UnreachableError
from starburst.domain.cloud import Instance, InstancePhase
from starburst.domain.job import CloudChoice, Member
from starburst.domain.money import Money
from starburst.runs.attempt_dir import log_path
from starburst.store import cron_jobs, tokens
from starburst.store.errors import BusyError, LostError
from starburst.store.listings import queries
from starburst.store.store import Store
from starburst.store.tokens import Role, Token
from starburst.web.context import AppContext
from starburst.web.serving.listen import listening
from starburst.web.serving.server import serving
from tests.cli.answers import one_line
from tests.cli.manifests import manifest
from tests.cli.past import NOON
from translator.intake.texts import read_firsts

EXAMPLES = Path(__file__).parents[2] / "configs" / "examples"

#: Compared by tests of their own.
ELSEWHERE = [
    ["submit", "--dry-run", "--hold", "--wait", "--apply-rest", "--allow-unsatisfiable"],
    ["cancel", "--array", "--all"],
]
#: What they say is in the text that either backend is given (test_submit_command.py).
ELSEWHERE += [["--follow", "--workdir", "--no-workdir", "--name", "--gpus", "--cpus", "--memory", "--image"]]
ELSEWHERE += [["--env", "--nodes", "--array", "--time", "--estimate", "--max-wait", "--after", "--queue"]]
ELSEWHERE += [["--cloud", "--retries", "--checkpoint", "--ray"]]
FORMATS = ("table", "wide", "json", "yaml", "name")
LISTINGS = [
    ["status"],
    ["status", "--phase", "running", "--phase", "queued", "--user", "ada"],
    ["status", "--queue", "papers", "--sort", "bill", "--limit", "3"],
    ["status", "--site", "cloud", "--since", "90m"],
    ["status", "bad"],
    ["status", "map"],
    ["status", "sweep-b2c3d"],
    ["status", "map-1"],
    ["explain", "wait"],
    ["explain", "map-1"],
    ["cronjobs"],
    ["nodes"],
    ["queues"],
    ["instances"],
    ["instances", "--all"],
    ["cost"],
    *(["cost", "--by", by] for by in ("user", "queue", "day", "month", "job", "offer")),
    ["events"],
    ["events", "--last", "3"],
    ["events", "map-1"],
    ["events", "bad"],
    ["events", "i-000001"],
]
OTHERS = [
    ["logs", "done"],
    ["logs", "done", "--rank", "1"],
    ["logs", "done", "-f"],
    ["logs", "done", "--since", "2000-01-01", "--timestamps"],
    ["logs", "done", "--since", "9999999d"],
    ["logs", "done", "--tail", "2"],
    ["logs", "done", "--tail", "2", "-f"],
    ["logs", "job/done-11111", "--tail", "0"],
    ["cancel", "--user", "ada", "--queue", "default"],
    ["cancel", "--user", "ada", "--yes"],
    ["logs", "done", "--attempt", "2"],
    ["logs", "done", "--rank", "7"],
    ["logs", "wait"],
    ["events", "bad", "-f"],
    ["events", "bad", "-f", "-o", "json"],
    ["status", "bad", "--watch"],
    ["status", "nobody"],
    ["explain", "trian"],
    ["logs", "trian"],
    ["cancel", "done", "trian"],
    ["cancel", "done", "wait", "wait"],
    ["cancel", "--now", "done", "wait"],
    *(
        [steer, *names]
        for steer in ("hold", "release", "requeue", "cancel")
        for names in (["map"], ["done", "map-0", "map"])
    ),
    ["edit", "map", "done", "train", "--priority", "5"],
    ["edit", "wait", "twin", "--max-wait", "2h", "--estimate", "90m"],
    *([steer, "wait", "twin"] for steer in ("cancel", "hold", "release", "requeue")),
    *([word, "twin"] for word in ("status", "explain", "logs", "events")),
    *([word, "map"] for word in ("explain", "logs", "events")),
    ["hold", "nobody"],
    ["logs", "map-1"],
    ["cost", "--by", "day", "-o", "csv"],
    ["cost", "--caps"],
    ["top", "--once"],
    ["events", "nobody", "--last", "0"],
    ["events", "map-1", "--last", "9999"],
    ["status", "--phase", "runing"],
]


@pytest.fixture
def server(past, home):
    past.morning()
    (hourly,) = read_firsts((EXAMPLES / "cron-job.yaml").read_text(), "test", suffix=lambda: "a1b2c")
    with past.store.write() as conn:
        cron_jobs.put(conn, [hourly], NOON)
    past.submit("launching-66666", 2, cloud=CloudChoice.ONLY)
    past.submit("endless-77777", 4, cloud=CloudChoice.NEVER)
    for array, name in (("sweep-b2c3d", "map"), ("twin-c2d3f", "twin"), ("twin-d2f3g", "twin")):
        for n in range(11 if name == "map" else 2):
            past.submit(f"{array}-{n}", 4, name=f"{name}-{n}", array=Member(array, n, 20, 1))
    found = Instance("feed/i-1", "p3.2xlarge", InstancePhase.READY, NOON - 600, None, False, "feed")
    OrphanLedger(past.store).note(ReapedMachine.of(found, "abandoned", Money.of(3), NOON - 60))
    for rank in (0, 1):
        path = log_path(Home(home).cluster, "done-11111", 1, rank)
        path.parent.mkdir(parents=True)
        path.write_text(f"line of {rank}\nnot ended")
    settings = HttpConfig(port=0)
    with (
        Store.open(home / "starburst.db") as store,
        listening(settings) as sock,
        serving(AppContext(Home(home), store), settings, sock) as url,
    ):
        yield url


@pytest.fixture
def same(cli, server, monkeypatch):
    """Asserts that a command says the same over HTTP as at home; what it says."""

    def same(*words, stdin=b""):
        at_home = cli(*words, stdin=stdin)
        remote = cli("--server", server, *words, stdin=stdin)
        notes = [line for line in at_home.err.splitlines() if not line.startswith("note: no starburst runs")]
        assert (remote.code, remote.out, remote.err.splitlines()) == (at_home.code, at_home.out, notes)
        return remote

    return same


def test_every_listing_in_every_format(same):
    for words in LISTINGS:
        for how in FORMATS if words == ["status"] else ("wide", "json"):
            told = same(*words, "-o", how)
            assert told.code == 0
            assert told.out, words


def test_logs_streams_and_mistakes(same):
    for words in OTHERS:
        same(*words)


def test_every_flag_of_every_command_is_compared(same):
    """A new one that nobody compares fails here."""
    compared = {word for words in (*LISTINGS, *OTHERS, *ELSEWHERE) for word in words} | {"--output"}
    for name in REMOTE:
        for option in typer.main.get_command(app).commands[name].params:
            assert option.param_type_name == "argument" or compared & {*option.opts}, (name, option.opts)
    assert {*REMOTE} <= compared


def test_what_an_array_is_called_is_all_of_its_jobs_and_one_that_is_wrong_spoils_all(same, past):
    assert len(json.loads(same("status", "map", "-o", "json").out)) == 11
    assert same("hold", "map", "-o", "name").out.splitlines() == [f"job/sweep-b2c3d-{n}" for n in range(11)]
    assert same("hold", "map").out.startswith("job/sweep-b2c3d[")
    asked = len(past.store.requests(99))
    assert "twin-c2d3f, twin-d2f3g; give the whole id" in same("hold", "wait", "twin").err
    assert len(past.store.requests(99)) == asked


def test_jobs_that_are_not_taken_up_yet_are_an_array_too(cli, same):
    assert same("cancel", "fresh").code == 2
    assert cli("submit", "--hold", "-", stdin=manifest("fresh", "true", array="0-2").encode()).code == 0
    for words in (["status", "fresh"], ["release", "fresh"], ["cancel", "fresh"]):
        assert len(same(*words, "-o", "name").out.splitlines()) == 3


def test_commands_about_this_machine_do_not_pretend_to_ask_a_server(cli, home, monkeypatch):
    others = [name for name in COMMANDS if name not in REMOTE]
    for name in others:
        said = one_line(cli("--server", "http://far", name))
        assert said.startswith(
            f"{name}: is about this machine, it asks no server; run it where http://far runs"
        )
    monkeypatch.setenv("STARBURST_SERVER", "http://far")
    told = (
        ("reap",),
        ("doctor",),
        ("exec", "a", "--", "ls"),
        ("shell", "a"),
        ("export",),
        ("what-if", "--config", "f"),
    )
    for words in told:
        assert one_line(cli(*words)).startswith(f"{words[0]}: is about this machine")
    assert one_line(cli("token", "list")).startswith("token: is about this machine")
    for name in ("simulate", "advise"):
        assert one_line(cli(name, "--history")).startswith("--history: is that of this machine's home")
    assert cli("config", "schema").code == 0
    assert not home.exists()


def test_a_dry_run_and_what_is_wrong_with_files(same, tmp_path):
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(manifest("new", "true", gpus=2, runtime_estimate="1h30m"))
    bad.write_text(f"{manifest('a', 'true')}\n---\n{manifest('b', 'true', max_wait='15')}")
    for how in FORMATS:
        same("submit", "--dry-run", good, "-o", how)
    assert "document 2" in same("submit", good, bad).err
    assert same("submit", tmp_path / "none.yaml").code == 2
    assert same("submit", "-", stdin=b"\xff").code == 2


def test_jobs_are_submitted_and_cancelled_there(cli, server, past, monkeypatch):
    monkeypatch.setenv("STARBURST_SERVER", server)
    monkeypatch.setenv("STARBURST_HOME", "/proc/nowhere")
    told = cli("submit", "-", "-o", "name", stdin=manifest("new", "true").encode())
    assert (told.code, told.err) == (0, "")
    (row,) = queries.jobs(past.store, phases=["submitted"])
    assert told.out == f"job/{row.id}\n"
    assert cli("cancel", "new").out == f"job/{row.id} is being cancelled\n"
    assert [request.kind for request in past.store.requests(9)] == ["submit", "cancel"]


def test_waiting_ends_when_the_job_does(cli, server, past, monkeypatch):
    def pause(_seconds):
        if (requests := past.store.requests(9)) and requests[0].submission:
            past.tell(submissions=(requests[0].submission,))
            past.end(requests[0].job_id, 3)

    past.end("train-44444")
    monkeypatch.setattr(time, "sleep", pause)
    job = manifest("new", "true", cloud="never").encode()
    told = cli("--server", server, "submit", "--wait", "-", stdin=job)
    assert told.code == 1
    assert told.out.splitlines()[1].endswith("failed: its command ended with exit code 3")


@pytest.mark.parametrize("over_http", [True, False])
def test_waiting_outlasts_a_server_or_store_that_is_away(cli, server, past, monkeypatch, over_http):
    """The jobs were submitted: exit code 2 would say that nothing was done."""

    def pause(_seconds):
        if (requests := past.store.requests(9)) and not away:
            past.tell(submissions=(requests[0].submission,))
            past.end(requests[0].job_id)

    class Flaky(HttpBackend if over_http else LocalBackend):
        def jobs(self, **asked):
            if away:
                raise away.pop(0)
            return super().jobs(**asked)

    past.end("train-44444")
    away = [UnreachableError("it is away"), RefusedError(503, "it is busy")]
    away = away if over_http else [BusyError("it is away"), LostError("it is away")]
    monkeypatch.setattr(time, "sleep", pause)
    module = "http.HttpBackend" if over_http else "local.LocalBackend"
    monkeypatch.setattr(f"starburst.cli.backend.{module}", Flaky)
    job = manifest("new", "true", cloud="never").encode()
    told = cli(*(["--server", server] if over_http else []), "submit", "--wait", "-", stdin=job)
    assert (told.code, told.out.splitlines()[1].split()[1]) == (0, "succeeded:")
    assert told.err.count("note: it is away\n") == 1
    assert "it is busy" not in told.err


def test_a_token_is_asked_for_and_taken(cli, server, past, monkeypatch):
    secret = tokens.create(past.store, Token("a", Role.VIEWER, None, time.time()))
    said = one_line(cli("--server", server, "status"))
    assert said == "a token is needed; have one made with: starburst token create"
    monkeypatch.setenv("STARBURST_TOKEN", secret)
    assert cli("--server", server, "status").code == 0
    assert "this needs a submitter's" in one_line(cli("--server", server, "cancel", "wait"))


def test_a_server_that_is_away_or_is_none_is_one_line(cli, home, monkeypatch):
    monkeypatch.setattr("starburst.client.connection.LONGEST_PAUSE_S", 0.0)
    with listening(HttpConfig(port=0)) as sock:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    assert one_line(cli("--server", url, "status")).startswith(f"{url}: does not answer (")
    assert one_line(cli("--server", "here", "status")).startswith("here: is no address of a server; write")
    assert not home.exists()


def test_up_refuses_a_port_that_is_taken_and_doors_that_are_open(cli, home, tmp_path):
    config = tmp_path / "starburst.yaml"
    with listening(HttpConfig(port=0)) as sock:
        port = sock.getsockname()[1]
        config.write_text(f"http: {{port: {port}}}")
        said = one_line(cli("up", "--config", config))
    assert said.startswith(
        f"http.port: {port}: cannot be used at 127.0.0.1 (address already in use); set http.port"
    )
    config.write_text("http: {host: 0.0.0.0, port: 0}")
    said = one_line(cli("up", "--config", config))
    assert said.startswith("http.host: 0.0.0.0: others reach this, and there is no token; make one with")
