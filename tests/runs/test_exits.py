"""What stands in an `exit.json` is an exit through and through, or none."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from starburst.runs.supervisor.exits import (
    ENDERS,
    MAX_CODE,
    MAX_SIGNAL,
    Exit,
    exit_of,
    load_exit,
    message_of,
    read_exit,
)
from starburst.runs.supervisor.files import ReservedFile

GOOD = {
    "exit_code": 143,
    "signal": 15,
    "ended_by": "stop",
    "message": "",
    "started_at": 1_700_000_000.5,
    "ended_at": 1_700_000_009,
}


def test_what_a_supervisor_writes_is_read() -> None:
    assert read_exit(json.dumps(GOOD)) == read_exit(json.dumps(GOOD).encode()) == Exit(**GOOD)  # type: ignore[arg-type]
    assert exit_of(GOOD) == Exit(**GOOD)  # type: ignore[arg-type]
    assert read_exit(json.dumps(GOOD) + " " * 3000) is not None, "a file that was reserved is padded"


@pytest.mark.parametrize("text", ["a\nb\t\0", "x" * 1200, "訓" * 1000, "😀" * 1000, "\udc80" * 1000])
def test_whatever_is_to_be_said_is_the_message_of_a_sound_exit(tmp_path: Path, text: str) -> None:
    path = tmp_path / "exit.json"
    said = Exit(MAX_CODE, MAX_SIGNAL, "time_limit", message_of(text), 1_700_000_000.123, 1_700_000_009.123)
    ReservedFile(str(path)).write(asdict(said))
    assert load_exit(path) == said
    assert len(said.message) >= min(len(text), 250)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "{",
        "null",
        "[1]",
        "[" * 4000,
        '{"evil": 1}',
        "\x00" * 4096,
        json.dumps(GOOD) + " " * 5000,
        json.dumps({key: value for key, value in GOOD.items() if key != "ended_by"}),
        *(
            json.dumps({**GOOD, key: value})
            for key, value in [
                ("evil", 1),
                ("exit_code", True),
                ("exit_code", "0"),
                ("exit_code", 0.0),
                ("exit_code", -9),
                ("exit_code", 10**400),
                ("exit_code", [0]),
                ("signal", 0),
                ("signal", 65),
                ("ended_by", "nobody"),
                ("ended_by", None),
                ("ended_by", ["stop"]),
                ("ended_by", {}),
                ("message", None),
                ("message", "\x1b]0;title\x07"),
                ("message", "two\nlines"),
                ("message", "x" * 1001),
                ("started_at", None),
                ("started_at", "1"),
                ("started_at", True),
                ("ended_at", float("nan")),
                ("ended_at", float("inf")),
                ("ended_at", -1),
                ("ended_at", 10**400),
            ]
        ),
    ],
)
def test_anything_else_is_none(bad: str) -> None:
    assert read_exit(bad) is None
    assert read_exit(bad.encode()) is None


def test_bytes_that_are_no_text_are_none() -> None:
    assert read_exit(b"\xff\xfe{}") is None


json_values = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=9),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.sampled_from([*GOOD]), inner),
    max_leaves=8,
)


@given(some.fixed_dictionaries(dict.fromkeys(GOOD, json_values)) | json_values)
def test_whatever_is_said_an_exit_has_the_types_it_says(said: object) -> None:
    found = exit_of(said)
    if found is not None:
        assert found.ended_by in ENDERS
        assert found.exit_code is None or type(found.exit_code) is int
        assert isinstance(found.message, str)
        assert 0 <= float(found.ended_at) < float("inf")


def test_a_pipe_a_link_a_directory_or_a_large_file_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "there").write_text(json.dumps(GOOD))
    (tmp_path / "link").symlink_to(tmp_path / "there")
    (tmp_path / "large").write_bytes(b" " * (1 << 20))
    names = ("pipe", "link", ".", "large", "absent", "there/below")
    assert [load_exit(tmp_path / name) for name in names] == [None] * 6
    assert load_exit(tmp_path / "there") is not None
