"""The Python client of a home, where no scheduler runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from starburst import LocalClient
from starburst.app.config.home import Home
from starburst.client import NotFoundError, RefusedError
from starburst.domain.resources import Resources
from starburst.runs.attempt_dir import log_path
from starburst.store.store import Store
from tests.cli.conftest import Cli
from tests.cli.past import Past


def test_a_job_waits_in_the_store_and_its_user_is_told_why(past: Past, home: Path) -> None:
    said: list[str] = []

    async def in_a_notebook() -> None:  # which has a loop of its own
        with LocalClient() as client:
            job = client.run("true", gpus=1, workdir=None, note=said.append)
            assert job.status()["phase"] == "submitted"
            assert "".join(job.logs()) == ""
            assert job.cancel()["id"] == job.id

    asyncio.run(in_a_notebook())
    assert said == [f"note: no starburst runs in {home}; start it with: starburst up"]


def test_who_follows_the_log_of_a_gang_gets_each_line_whole(past: Past, home: Path) -> None:
    past.submit("gang-66666", tasks=(Resources.of(1), Resources.of(1)))
    past.start("gang-66666")
    first, second = (log_path(Home(home).cluster, "gang-66666", 1, rank) for rank in (0, 1))
    for path, text in ((first, b"one\nepoch 1 \xc3"), (second, b"other\n")):
        path.parent.mkdir(parents=True)
        path.write_bytes(text)

    def later(_seconds: float) -> None:
        with first.open("ab") as log:
            log.write(b"\xa9 done\nend")
        past.end("gang-66666")

    with LocalClient(sleep=later) as client:
        assert "".join(client.logs("gang-66666", follow=True)) == (
            "[0] one\n[1] other\n[0] epoch 1 é done\n[0] end"
        )


def test_errors_are_those_of_the_client_of_a_server(past: Past, tmp_path: Path) -> None:
    with LocalClient() as client:
        with pytest.raises(NotFoundError, match="there is no job 'other'"):
            client.attach("other")
        with pytest.raises(NotFoundError, match="there is no job 'other-1', or no more"):
            client.wait(["other-1"])
        with pytest.raises(RefusedError, match="no node or offer has 900 GPUs"):
            client.run("true", gpus=900, workdir=None)
        assert client.run("true", gpus=900, workdir=None, allow_unsatisfiable=True).status()["need"]
    (tmp_path / "file").touch()
    with pytest.raises(RefusedError, match="cannot be made"):
        LocalClient(tmp_path / "file" / "home")


def test_after_a_restore_jobs_go_to_the_store_that_the_home_has_now(
    cli: Cli, past: Past, home: Path, tmp_path: Path
) -> None:
    past.store.close()
    with LocalClient() as client:
        before = client.run("true", gpus=1, workdir=None)
        assert cli("backup", tmp_path / "copy.db").code == 0
        late = client.run("true", gpus=1, workdir=None)
        assert cli("restore", tmp_path / "copy.db", "--yes").code == 0
        after = client.run("true", gpus=1, workdir=None)
        assert before.status()["phase"] == after.status()["phase"] == "submitted"
        with pytest.raises(NotFoundError):
            client.cancel(late.id)
        with pytest.raises(NotFoundError, match=f"there is no job '{late.id}', or no more"):
            late.status()
    with Store.open(home / "starburst.db") as store:
        assert store.submission(after.id) is not None
