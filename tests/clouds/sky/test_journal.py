"""The journal has one writer: who leads. What an earlier leader still writes goes nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from starburst.clouds.sky.journal import FileJournal, claimed, journal_root
from starburst.runs.fence import NO_FENCE, LeaderFence, NotCertainError


def leader(epoch: int, *, certain: bool = True) -> LeaderFence:
    return LeaderFence(lambda: certain, lambda: epoch)


def test_a_leader_goes_on_with_what_the_one_before_it_wrote(tmp_path: Path) -> None:
    claimed(tmp_path, NO_FENCE).put("machine/i-1", {"ready": False})
    for epoch in (1, 7):
        journal = claimed(tmp_path, leader(epoch))
        assert journal.get("machine/i-1") == {"ready": epoch > 1}
        journal.put("machine/i-1", {"ready": True})
    assert [path.name for path in tmp_path.iterdir()] == ["notes-7"]
    assert FileJournal(journal_root(tmp_path)).all_keys("machine/") == ["machine/i-1"]
    assert claimed(tmp_path, NO_FENCE).all_keys("machine/") == ["machine/i-1"], "of a process without a lead"


def test_what_a_stopped_leader_writes_late_changes_nothing(tmp_path: Path) -> None:
    old = claimed(tmp_path, leader(1))
    old.put("machine/i-1", {"ready": False})
    new = claimed(tmp_path, leader(2))
    new.put("machine/i-1", {"ready": True})
    with pytest.raises(FileNotFoundError):
        old.put("machine/i-1", {"ready": False})
    old.drop("machine/i-1")
    assert new.get("machine/i-1") == {"ready": True}


def test_one_that_was_stopped_before_it_took_the_journal_does_not_get_it(tmp_path: Path) -> None:
    claimed(tmp_path, leader(2)).put("machine/i-1", {})
    with pytest.raises(NotCertainError):
        claimed(tmp_path, leader(1, certain=False))
    assert journal_root(tmp_path).name == "notes-2"


def test_who_leads_for_certain_has_it_also_after_a_store_was_restored(
    tmp_path: Path,
) -> None:
    claimed(tmp_path, leader(8)).put("machine/i-1", {})
    assert claimed(tmp_path, leader(3)).all_keys("machine/") == ["machine/i-1"]
    assert journal_root(tmp_path).name == "notes-3"
