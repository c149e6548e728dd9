"""What is bad gets a line that says where and what to do, and exit code 2; never a traceback."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys

import pytest

from starburst.cli import main
from tests.cli.manifests import manifest

COMMANDS = [
    ["status"],
    ["explain", "a"],
    ["logs", "a"],
    ["cancel", "a"],
    ["instances"],
    ["cost"],
    ["events"],
    ["up"],
]


def one_line(answer):
    """The one line that is said of a mistake."""
    assert (answer.code, answer.out) == (2, "")
    (line,) = answer.err.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_home_that_is_a_file(cli, home, words):
    home.write_text("a file")
    assert one_line(cli(*words)) == f"{home}: is not a directory; set STARBURST_HOME to one"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_home_that_cannot_be_made(cli, monkeypatch, words):
    monkeypatch.setenv("STARBURST_HOME", "/proc/nowhere")
    assert one_line(cli(*words)).startswith("/proc/nowhere: cannot be made (")


def test_a_home_of_somebody_else(cli, home, monkeypatch):
    home.mkdir()
    monkeypatch.setattr(os, "access", lambda *_: False)
    told = one_line(cli("status"))
    assert told == f"{home}: cannot be read and written; set STARBURST_HOME to a directory of yours"


def test_a_user_without_a_home(cli, monkeypatch):
    monkeypatch.setenv("STARBURST_HOME", "~nosuchuser/here")
    assert one_line(cli("status")) == "no home directory is known for this user; set STARBURST_HOME"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_database_that_is_none(cli, home, words):
    home.mkdir()
    (home / "starburst.db").write_bytes(b"\x00not a database" * 1000)
    (line,) = [line for line in cli(*words).err.splitlines() if line.startswith("error: ")]
    assert "starburst.db" in line
    assert "file is not a database" in line


def test_a_database_that_is_damaged_inside(cli, home, past):
    past.morning()
    past.store.close()
    file = home / "starburst.db"
    database = sqlite3.connect(file)
    (page,) = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'jobs'").fetchone()
    (size,) = database.execute("PRAGMA page_size").fetchone()
    database.close()
    with file.open("r+b") as raw:
        raw.seek((page - 1) * size)
        raw.write(b"\xff" * size)
    told = cli("status")
    assert told.code == 2
    said = (
        f"{file}: is damaged (database disk image is malformed); stop what uses it, then starburst restore "
        "a backup, or move it away, which forgets its jobs"
    )
    assert told.err.splitlines()[-1] == f"error: {said}"


def test_a_database_of_a_newer_starburst(cli, home, past):
    past.store.close()
    with sqlite3.connect(home / "starburst.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    told = cli("status")
    assert told.code == 2
    assert "made by a newer Starburst" in told.err
    assert "Traceback" not in told.err


@pytest.mark.parametrize("command", ["explain", "status", "logs", "cancel", "events"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nobody", "there is no job 'nobody'"),
        ("trian", "there is no job 'trian'; did you mean train"),
        ("", "there is no job ''"),
    ],
)
def test_a_job_that_is_unknown_or_could_be_several(cli, past, command, name, said):
    past.morning()
    told = cli(command, name)
    assert (told.code, told.out) == (2, "")
    assert f"error: {said}" in told.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["statu"], "No such command 'statu'. Did you mean 'status'?"),
        (["delete", "train"], "No such command 'delete'. Did you mean 'cancel'?"),
        (["squeue"], "No such command 'squeue'. Did you mean 'status'?"),
        (["status", "-o", "xml"], "'table', 'wide', 'json', 'yaml', 'name'"),
        (["submit"], "name a file, or a command behind --"),
        (["events", "--last", "0"], "--last"),
        (["cost", "--by", "colour"], "'user', 'queue', 'day', 'month', 'job', 'offer'"),
        (["config", "check"], "Missing argument"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_words_that_are_no_command(cli, words, said):
    told = cli(*words)
    assert (told.code, told.out) == (2, "")
    assert said in one_line(told)


def test_a_phase_that_is_none(cli):
    assert one_line(cli("status", "--phase", "runing")).startswith(
        "--phase: 'runing' is not a phase; choose one"
    )


def test_a_bad_config_stops_up_before_it_begins(cli, home, tmp_path):
    file = tmp_path / "starburst.yaml"
    file.write_text("policy: {t_max: 15}\nclock: {sped: 1}")
    told = cli("up", "--config", file)
    assert (told.code, told.err.splitlines()) == (
        2,
        [
            f"error: {file}: policy.t_max: 15: a duration needs a unit; write 15s, 15m, 15h or 15d",
            f"error: {file}: clock.sped: there is no such field; did you mean speed?",
        ],
    )
    assert not home.exists()


def test_config_init_writes_what_config_check_takes(cli, tmp_path):
    file = tmp_path / "starburst.yaml"
    assert cli("config", "init", file).out == f"{file}: written; start with: starburst up --config {file}\n"
    assert cli("config", "check", file).out == f"{file}: ok: 2 nodes, 3 offers, Compute-Wait\n"
    assert one_line(cli("config", "init", file)) == f"{file}: exists already; name another file"
    assert one_line(cli("config", "init", tmp_path / "no" / "x.yaml")).endswith("; name another file")


@pytest.mark.parametrize(
    ("policy", "queues", "is_idle"),
    [
        ("factor: 0.1, budget_percent: 25", "[]", True),
        ("factor: 0.1", "[]", False),
        ("budget_percent: 25", "[]", False),
        ("factor: 0.1, budget_percent: 25", "[{name: a, budget_percent: 5}]", False),
        ("factor: 0.1, budget_percent: 25, budget_mode: calibrated", "[]", False),
    ],
)
def test_config_check_and_doctor_name_a_budget_that_changes_nothing(cli, tmp_path, policy, queues, is_idle):
    file = tmp_path / "starburst.yaml"
    file.write_text(f"policy: {{{policy}}}\nqueues: {queues}\n")
    told = cli("config", "check", file)
    assert told.code == 0
    assert ("policy.budget_percent has no effect" in told.out) == is_idle
    assert ("policy.budget_percent has no effect" in cli("doctor", "--config", file).out) == is_idle


def test_config_schema_is_json(cli):
    assert json.loads(cli("config", "schema").out)["title"] == "Config"


@pytest.mark.parametrize(("command", "shown"), [("submit", "<str>"), ("logs", "<int>"), ("token", "<str>")])
def test_help_shows_types_without_the_words_of_python(cli, command, shown):
    told = cli(*([command, "create"] if command == "token" else [command]), "--help").out
    assert shown in told
    assert "list[" not in told
    assert " range>" not in told


def test_help_has_a_whole_sentence_for_every_command(cli):
    lines = cli("--help").out.partition("Commands:")[2].splitlines()
    assert [line for line in lines if line.rstrip().endswith("...")] == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["status", "--limit", "-1"], "Invalid value for '--limit': must be greater than or equal to 0"),
        (["submit", "--retries", "x", "--", "a"], "Invalid value for '--retries': must be a whole number"),
        (["submit", "--nodes", "x", "--", "a"], "Invalid value for '--nodes': must be a whole number"),
    ],
)
def test_a_value_that_is_wrong_is_told_in_plain_words(cli, words, line):
    told = cli(*words).err
    assert told.startswith(f"error: {line}; see ")
    assert told.endswith(f"starburst {words[0]} --help\n")


def test_help_names_every_command(cli):
    told = cli("--help").out
    for command in main.COMMANDS:
        assert f"  {command} " in told


def test_nothing_is_said_of_an_empty_home(cli):
    assert cli("status").err.splitlines()[-1] == "no jobs"
    assert cli("status", "-o", "json").out == "[]\n"
    assert cli("cost").err == "the cloud has cost nothing\n"
    assert cli("instances").err == "no rented machines\n"
    assert cli("events").err == "nothing was decided yet\n"


def starburst(*words, **more):
    """A process of its own, where streams and signals matter."""
    command = [sys.executable, "-m", "starburst", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


@pytest.mark.processes
def test_a_reader_that_goes_away_is_no_error(home):
    process = starburst("config", "schema")
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(20) == 1


@pytest.mark.processes
def test_ctrl_c_ends_a_watch_quietly(home, past):
    past.morning()
    process = starburst("status", "--watch")
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert first == "done-11111 succeeded node\n"
    assert (process.returncode, "Traceback" in err) == (130, False)
    assert err.count("\n") == 1, "the note that no scheduler runs"


@pytest.mark.processes
def test_ctrl_c_in_a_wait_says_that_the_jobs_go_on(home, past):
    past.morning()
    process = starburst("submit", "--no-workdir", "--wait", "--cpus", "1", "--", "true")
    job = process.stdout.readline().split()[0].removeprefix("job/")
    assert "no starburst runs" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, f"note: the job goes on; to end it: starburst cancel {job}\n")


@pytest.mark.parametrize(
    "words", [["status", "\udcff"], ["status", "--user", "\udcff"], ["submit", "--", "echo", "\udcff"]]
)
def test_an_argument_that_is_not_text(cli, words):
    assert one_line(cli(*words)) == r"\udcff: is not text in UTF-8, the encoding of this locale; correct it"


def test_a_file_whose_name_is_not_text(cli, tmp_path):
    file = tmp_path / "\udcff.yaml"
    file.write_text(manifest("a", "true"))
    assert cli("submit", file).code == 0


def test_a_file_whose_name_is_too_long(cli):
    assert "cannot be read (File name too long)" in one_line(cli("submit", "a" * 300))


def test_a_working_directory_of_nobody(cli):
    told = one_line(cli("submit", "--workdir", "~nosuchuser/x", "--", "echo"))
    assert told == "--workdir: '~nosuchuser/x': is no directory; name one, or give --no-workdir"


def test_a_directory_that_cannot_be_read(cli, tmp_path, monkeypatch):
    def denied(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.iterdir", denied)
    told = one_line(cli("submit", tmp_path))
    assert told == f"{tmp_path}: cannot be read (Permission denied); name a directory of yours"
