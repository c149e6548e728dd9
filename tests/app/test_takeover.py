"""Two schedulers on one store: the leader dies, stops or goes, and nothing is lost, twice or left."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from tests.app.cut_line import CutLine
from tests.app.replicas import CUT, DRAIN, KILL, STOP, Replicas
from tests.postgres import server


@pytest.mark.processes
@pytest.mark.sqlite
def test_whoever_leads_may_die_stop_or_go_at_any_moment(tmp_path: Path) -> None:
    run = Replicas(7, tmp_path, [0.7, 0.3, 0.9, 0.4], ends=[KILL, DRAIN, KILL, STOP])
    wrong = run.run()
    assert not wrong, "\n".join([*wrong, str(run.took_s), run.story()])


@pytest.mark.processes
@pytest.mark.postgres
def test_whoever_leads_on_postgresql_may_be_cut_off_from_it_too(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with server(port) as running, closing(CutLine(port)) as one, closing(CutLine(port)) as other:
        run = Replicas(
            8,
            tmp_path,
            [0.7, 0.3, 0.9, 0.4],
            ends=[CUT, KILL, STOP, DRAIN],
            url=running.create(),
            lines=(one, other),
        )
        wrong = run.run()
    assert not wrong, "\n".join([*wrong, str(run.took_s), run.log.read_text()[-3000:]])
