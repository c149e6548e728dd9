"""What is journaled of a launch before SkyPilot is asked for it, where the disk of the scheduler is full."""

from __future__ import annotations

from pathlib import Path

import pytest

from starburst.clouds.sky.journal import FileJournal
from starburst.core.model.events import InstanceReady
from tests.app.virtual import run
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.life import OFFER, Life


def test_an_intent_that_a_full_disk_did_not_note_as_asked_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a crash would leave a machine whose cluster counts as another's, and whose bill nobody has."""
    put = FileJournal.put

    def full(self: FileJournal, key: str, value: dict[str, object]) -> None:
        if value.get("asked"):
            raise OSError(28, "No space left on device")
        put(self, key, value)

    async def main() -> None:
        sky = FakeSky(tmp_path / "sky")
        monkeypatch.setattr(FileJournal, "put", full)
        life = Life(sky, tmp_path / "home")
        await life.cloud.launch("i-1", OFFER)
        for _ in range(3):  # a scheduler watches again after a shortage
            with pytest.raises(OSError, match="No space"):
                await life.cloud.watch(life.report)
        assert not sky.vms
        monkeypatch.setattr(FileJournal, "put", put)
        async with Life(sky, tmp_path / "home") as life:
            await life.heard(InstanceReady)
        assert len(sky.vms) == 1

    run(main())
