"""Facts are written whole, and those that never change only once."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from starburst.runs.files import claim_directory, directory_name, id_of, write_json_once
from starburst.runs.supervisor.files import read_json, write_json


def test_a_fact_stays_as_it_was_first_written(tmp_path: Path) -> None:
    assert write_json_once(tmp_path / "fact.json", 1)
    assert not write_json_once(tmp_path / "fact.json", 2)
    assert read_json(tmp_path / "fact.json") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["fact.json"]


def test_a_directory_is_claimed_by_one(tmp_path: Path) -> None:
    assert claim_directory(tmp_path / "a" / "1", {"0/spec.json": 1, "stop.json": 2})
    assert not claim_directory(tmp_path / "a" / "1", {"0/spec.json": 3})
    assert read_json(tmp_path / "a" / "1" / "0" / "spec.json") == 1


def test_what_a_crash_left_of_a_claim_is_no_claim(tmp_path: Path) -> None:
    (tmp_path / ".1" / "0").mkdir(parents=True)
    (tmp_path / ".1" / "0" / "spec.json.tmp").write_text('{"half')
    assert claim_directory(tmp_path / "1", {"1/spec.json": 1})
    assert not (tmp_path / "1" / "0").exists()


@pytest.mark.parametrize("id_", ["job-1", "..", "a/b", ".hidden", "Größe 1", "%2E"])
def test_any_id_makes_one_plain_file_name_and_comes_back(tmp_path: Path, id_: str) -> None:
    name = directory_name(id_)
    assert "/" not in name
    assert not name.startswith(".")
    assert id_of(tmp_path / name) == id_


def test_of_several_writers_of_a_fact_none_fails_and_one_counts(tmp_path: Path) -> None:
    fact = tmp_path / "fact.json"
    with ThreadPoolExecutor(8) as writers:
        list(writers.map(lambda number: write_json(fact, {"number": number}), range(400)))
    assert read_json(fact)["number"] in range(400)
    assert list(tmp_path.iterdir()) == [fact]


def test_what_cannot_be_written_leaves_the_fact_as_it_was_and_nothing_beside_it(tmp_path: Path) -> None:
    fact = tmp_path / "fact.json"
    write_json(fact, {"number": 1})
    with pytest.raises(TypeError):
        write_json(fact, {"number": object()})
    assert read_json(fact) == {"number": 1}
    assert list(tmp_path.iterdir()) == [fact]


def claimed(path: Path, data: object) -> None:
    claim_directory(path, {"spec.json": data})


@pytest.mark.parametrize("make", [write_json, write_json_once, claimed])
def test_a_new_name_is_synced_after_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path, object], object]
) -> None:
    """Else a crash of the machine forgets a launch that was noted before it was asked for."""
    synced: list[tuple[bool, bool]] = []

    def fsync(file: int) -> None:
        synced.append((os.path.samestat(os.fstat(file), os.stat(tmp_path)), (tmp_path / "fact").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    make(tmp_path / "fact", {"a": 1})
    assert synced[0] == (False, False), "the content comes first"
    assert (True, True) in synced
