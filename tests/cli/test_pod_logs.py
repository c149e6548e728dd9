"""`starburst logs` on a Kubernetes cluster: from pods, from what was kept of them, and which of the two."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from starburst.app.config import parse_config
from starburst.app.config.home import Home
from starburst.app.logs.job_log import read_log
from starburst.app.logs.sites import LogPart, LogPosition
from starburst.app.times import iso
from starburst.domain.job import Adopted, CloudChoice, Job, Submission, Workload
from starburst.domain.resources import Resources
from starburst.kube import api as kube_api
from starburst.kube.resources import PODS
from starburst.runs.attempt_dir import log_path
from starburst.store.listings import queries
from tests.cli.conftest import Cli
from tests.cli.past import Past
from tests.kube_unit.server import FakeServer

MANIFEST = json.dumps({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {}})
FOUND = Adopted("Job", "ml", "theirs", "uid-1")


@pytest.fixture(autouse=True)
def _on_kubernetes(server: FakeServer, past: Past, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_api, "FIRST_PAUSE_S", 0.0)
    cluster = {"kind": "kubernetes", "kubeconfig": str(server.kubeconfig(tmp_path / "kubeconfig"))}
    past.store.set_fact("config", parse_config({"cluster": cluster}, "test").model_dump(mode="json"))


def submit(past: Past, job_id: str, tasks: int = 1, adopted: Adopted | None = None, **of_job: Any) -> None:
    """A job that runs."""
    job = Job(job_id, job_id, (Resources.of(1),) * tasks, **of_job)
    past.tell(submissions=(Submission(job, Workload(manifest=MANIFEST, adopted=adopted)),))
    if of_job.get("cloud") is not CloudChoice.ONLY:
        past.start(job_id)


def pod(server: FakeServer, name: str, text: bytes, *, namespace: str = "default", **metadata: Any) -> None:
    """A bound pod that wrote this."""
    spec = {"nodeName": "node", "containers": [{"name": "main"}, {"name": "sidecar"}]}
    server.add(PODS, {"metadata": {"namespace": namespace, "name": name, **metadata}, "spec": spec})
    server.logs[namespace, name] = text


def marks(job_id: str, attempt: int = 1, rank: int | None = None) -> dict[str, Any]:
    """What pods of created Jobs carry."""
    annotations = {"starburst.io/attempt": str(attempt)}
    if rank is not None:
        annotations["starburst.io/rank"] = str(rank)
    return {"labels": {"starburst.io/job": job_id}, "annotations": annotations}


def keep(home: Path, job_id: str, text: str, attempt: int = 1, rank: int = 0, *, cloud: bool = False) -> None:
    place = Home(home)
    path = log_path(place.cloud / "runs" if cloud else place.cluster, job_id, attempt, rank)
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_lines_come_from_the_first_container_of_the_jobs_pod(
    cli: Cli, past: Past, server: FakeServer
) -> None:
    submit(past, "a")
    pod(server, "a-1-xyz", b"one\n\ttwo \xff", **marks("a", rank=0))
    pod(server, "b-1-xyz", b"another's\n", **marks("b", rank=0))
    told = cli("logs", "a")
    assert (told.code, told.out, told.err) == (0, "one\n\ttwo \N{REPLACEMENT CHARACTER}", "")
    assert [asked.query["container"] for asked in server.asked if asked.path.endswith("/log")] == ["main"]


def test_lines_of_a_gang_begin_with_their_rank(cli: Cli, past: Past, server: FakeServer) -> None:
    submit(past, "a", tasks=2)
    pod(server, "a-1-x", b"b\n", **marks("a", rank=1))
    pod(server, "a-1-y", b"a\nc\n", **marks("a", rank=0))
    assert cli("logs", "a").out == "[0] a\n[0] c\n[1] b\n"
    assert cli("logs", "a", "--rank", "1").out == "b\n"
    told = cli("logs", "a", "--rank", "2")
    assert (told.code, told.err) == (
        2,
        "error: --rank: 2: the last task of job/a is 1; give one up to that\n",
    )


def test_the_times_of_lines_are_those_of_the_kubelet(cli: Cli, past: Past, server: FakeServer) -> None:
    submit(past, "a", tasks=2)
    pod(server, "a-1-x", b"one\ntwo", **marks("a", rank=1))
    pace = queries.pace(past.store)
    first, second = (iso(pace.scheduler_time(1_772_442_000.25 + s)) for s in (0, 60))
    assert cli("logs", "a", "--timestamps").out == f"{first} [1] one\n{second} [1] two"
    assert cli("logs", "a", "--since", "2100-01-01").out == ""


def test_the_pods_of_an_adopted_job_are_its_own_and_no_namesakes(
    cli: Cli, past: Past, server: FakeServer
) -> None:
    submit(past, "a", adopted=FOUND)
    for uid in ("uid-1", "uid-of-one-before"):
        owner = {"kind": "Job", "name": "theirs", "uid": uid, "controller": True}
        of_job = {"labels": {"job-name": "theirs"}, "ownerReferences": [owner]}
        pod(server, f"theirs-{uid}", f"of {uid}\n".encode(), namespace="ml", **of_job)
    assert cli("logs", "a").out == "of uid-1\n"
    told = cli("logs", "a", "--attempt", "2")
    assert (told.code, told.err) == (
        2,
        "error: --attempt: 2: the last run of job/a is 1; give one up to that\n",
    )


def test_an_adopted_pod_is_found_by_its_name(cli: Cli, past: Past, server: FakeServer) -> None:
    submit(past, "a", adopted=Adopted("Pod", "ml", "mine", "uid-1"))
    pod(server, "mine", b"hi\n", namespace="ml")
    assert cli("logs", "a").out == "hi\n"


def test_a_pod_that_is_not_bound_or_has_no_log_yet_has_written_nothing(
    cli: Cli, past: Past, server: FakeServer
) -> None:
    submit(past, "a")
    server.add(
        PODS,
        {"metadata": {"namespace": "default", "name": "a-1-x", **marks("a")}, "spec": {"containers": []}},
    )
    told = cli("logs", "a")
    assert (told.code, told.out, told.err) == (0, "", "job/a has written nothing: running\n")
    server.remove(PODS, "default", "a-1-x")
    pod(server, "a-1-x", b"", **marks("a", rank=0))
    server.fail("a-1-x/log", status=400, reason="BadRequest")
    told = cli("logs", "a")
    assert (told.code, told.out) == (0, "")


def test_what_was_kept_is_read_when_the_pods_are_gone(cli: Cli, past: Past, home: Path) -> None:
    submit(past, "a", tasks=2)
    keep(home, "a", "kept 0\n")
    keep(home, "a", "kept 1\n", rank=1)
    assert cli("logs", "a").out == "[0] kept 0\n[1] kept 1\n"


def test_a_dying_pod_whose_log_is_gone_is_finished_from_what_was_kept(
    cli: Cli, past: Past, server: FakeServer, home: Path
) -> None:
    submit(past, "a")
    keep(home, "a", "one\ntwo\n")
    pod(server, "a-1-x", b"unable to retrieve container logs for containerd://64", **marks("a", rank=0))
    assert cli("logs", "a").out == "one\ntwo\n"
    server.logs["default", "a-1-x"] = b"one\n"
    assert cli("logs", "a").out == "one\ntwo\n", "each byte once"


def test_the_last_run_is_shown_wherever_it_was(cli: Cli, past: Past, server: FakeServer, home: Path) -> None:
    submit(past, "a")
    pod(server, "a-2-x", b"second\n", **marks("a", attempt=2, rank=0))
    keep(home, "a", "first\n", attempt=1)
    assert cli("logs", "a").out == "second\n"
    assert cli("logs", "a", "--attempt", "1").out == "first\n"
    keep(home, "a", "third\n", attempt=3, cloud=True)
    assert cli("logs", "a").out == "third\n"


def test_following_a_job_that_is_over_prints_it_once(cli: Cli, past: Past, server: FakeServer) -> None:
    submit(past, "a")
    past.end("a")
    pod(server, "a-1-x", b"all of it\n", **marks("a", rank=0))
    assert cli("logs", "a", "-f").out == "all of it\n"


def test_whoever_goes_on_from_a_position_gets_the_rest_whatever_it_comes_from(
    past: Past, server: FakeServer, home: Path
) -> None:
    """A first run that was kept; a second one in two pods, of one of which more was kept than it has."""
    submit(past, "a", tasks=2)
    past.end("a")
    keep(home, "a", "kept 0\n")
    keep(home, "a", "of pod 1\nand more\n", attempt=2, rank=1)
    for rank, text in enumerate([b"of pod 0\nhalf", b"of pod 1\n"]):
        pod(server, f"a-2-{rank}", text, **marks("a", attempt=2, rank=rank))

    def read(since: str) -> list[tuple[str, str]]:
        told: list[tuple[str, str]] = []
        position = LogPosition.parse(since)

        async def write(text: str) -> None:
            told.append((text, str(position)))

        reading = read_log(past.store, Home(home), "a", LogPart(), write, follow=True, position=position)
        assert asyncio.run(reading)
        return told

    whole = read("1")
    texts = [text for text, _ in whole]
    assert sorted(texts) == ["[0] half", "[0] kept 0\n", "[0] of pod 0\n", "[1] and more\n", "[1] of pod 1\n"]
    for n, (_, position) in enumerate(whole):
        assert [text for text, _ in read(position)] == texts[n + 1 :]


def test_a_server_that_is_away_is_one_line(cli: Cli, past: Past, server: FakeServer, home: Path) -> None:
    submit(past, "a")
    server.fail("", times=99)
    told = cli("logs", "a")
    away = f"the API server at {server.url} does not answer"
    assert (told.code, told.out) == (2, "")
    assert told.err == f"error: {away}; see what is amiss with: starburst doctor\n"
    keep(home, "a", "kept\n")
    told = cli("logs", "a")
    assert (told.code, told.out, told.err) == (0, "kept\n", f"note: {away}; this is what was kept of it\n")


def test_a_server_that_says_no_is_one_line(cli: Cli, past: Past, server: FakeServer) -> None:
    submit(past, "a")
    server.fail("GET /api/v1/namespaces/default/pods", status=403, reason="Forbidden", times=9)
    told = cli("logs", "a")
    assert told.code == 2
    assert told.err.startswith(f"error: {server.url}: 403 Forbidden: ")
    assert len(told.err.splitlines()) == 1


def test_exec_is_kubectls_in_the_pod_of_a_task(
    cli: Cli,
    past: Past,
    server: FakeServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submit(past, "a", tasks=2)
    pod(server, "a-1-x", b"", **marks("a", rank=1))
    assert cli("exec", "a", "--", "ls").err == "error: job/a: task 0 has no pod that runs\n"
    program = tmp_path / "kubectl"
    program.write_text('#!/bin/sh\necho "$@"\nexit 3\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    told = cli("exec", "a", "--rank", "1", "--", "ls", "-l")
    asked = f"--kubeconfig={tmp_path / 'kubeconfig'} exec -i -n default a-1-x -c main -- ls -l\n"
    assert (told.code, told.out) == (3, asked)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert cli("shell", "a").err.startswith("error: kubectl is not on the PATH")
