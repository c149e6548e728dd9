"""The HTTP API: what the command line says, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import delete

from starburst.app.config import parse_config
from starburst.app.config.home import Home
from starburst.domain.job import CloudChoice, JobEdit, Member
from starburst.runs.attempt_dir import log_path
from starburst.store.listings import queries
from starburst.store.schema import requests as asked
from tests.cli.manifests import manifest
from tests.cli.past import CONFIG, Past
from tests.web.conftest import Ask

YAML = {"Content-Type": "application/yaml"}


def write(home: Path, job: str, rank: int, text: str) -> None:
    path = log_path(Home(home).cluster, job, 1, rank)
    path.parent.mkdir(parents=True)
    path.write_text(text)


def take_up(past: Past, count: int) -> None:
    """As the scheduler does it, in one step."""
    requests = past.store.requests(count)
    past.tell(submissions=tuple(request.submission for request in requests))
    with past.store.write() as conn:
        conn.execute(delete(asked).where(asked.c.seq.in_([request.seq for request in requests])))


def refused(answer, status: int) -> str:
    """The words of a refusal."""
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    return answer.json()["error"]


def ids(answer) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [row["id"] for row in answer.json()]


def test_jobs_are_listed_in_order_of_arrival_and_by_choice(ask: Ask) -> None:
    everyone = ["done-11111", "bad-22222", "render-33333", "train-44444", "wait-55555"]
    assert ids(ask("GET", "/jobs")) == everyone
    assert ids(ask("GET", "/jobs", params={"phase": ["running", "queued"]})) == everyone[2:]
    assert ids(ask("GET", "/jobs", params={"user": "bob"})) == ["bad-22222"]
    assert ids(ask("GET", "/jobs", params={"queue": "papers"})) == ["bad-22222"]
    assert ids(ask("GET", "/jobs", params={"id": ["wait-55555", "done-11111"]})) == [everyone[0], everyone[4]]
    assert refused(ask("GET", "/jobs?phase=runing"), 400).startswith("phase: 'runing' is not a phase; choose")


@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_pages_follow_each_other_without_a_gap_while_jobs_are_taken_up(
    ask: Ask, past: Past, limit: int
) -> None:
    ask("POST", "/jobs", content="\n---\n".join(manifest(f"new-{i}", "true") for i in range(4)), headers=YAML)
    found: list[str] = []
    while True:
        more = {"after": found[-1]} if found else {}
        page = ids(ask("GET", "/jobs", params={"limit": limit, **more}))
        found += page
        if len(page) < limit:
            break
        if len(found) == 6:  # the scheduler takes two of them up in the middle
            take_up(past, 2)
    assert len(found) == len(set(found)) == 9
    assert [name.rpartition("-")[0] for name in found[5:]] == ["new-0", "new-1", "new-2", "new-3"]


def test_a_job_tells_its_story_and_why_it_stands_where_it_does(ask: Ask) -> None:
    told = ask("GET", "/jobs/bad").json()
    assert told["explanation"].startswith("failed at 10:00: its command ended with exit code 3")
    assert [step["decision"] for step in told["decisions"]] == ["offloaded", "started", "failed"]
    assert told["cloud_cost_usd"] == 2.04
    told = ask("GET", "/jobs/wait/explain").json()
    assert list(told)[:3] == ["id", "phase", "explanation"]
    assert (told["id"], told["position"]) == ("wait-55555", 1)
    assert told["explanation"].startswith("waits for 2 GPUs on the cluster until 12:14")
    log = ask("GET", "/jobs/bad/events", params={"limit": 2}).json()
    assert [row["decision"] for row in log] == ["offloaded", "started"]
    log = ask("GET", "/jobs/bad/events", params={"after": log[-1]["seq"]}).json()
    assert [row["decision"] for row in log] == ["failed"]


def test_an_unknown_address_is_a_page_for_browsers_and_json_for_programs(ask: Ask) -> None:
    page = ask("GET", "/login/nowhere", headers={"Accept": "text/html,*/*"})
    assert page.status_code == 404
    assert "there is no page /login/nowhere" in page.text
    assert refused(ask("GET", "/login/nowhere"), 404) == "Not Found"
    assert refused(ask("GET", "/nowhere", headers={"Accept": "text/html"}), 404) == "Not Found"


def test_a_job_that_is_not_there_is_404_and_one_of_several_400(ask: Ask) -> None:
    ask("POST", "/jobs", content=manifest("train-2", "true"), headers=YAML)
    for path in ("", "/explain", "/events", "/logs"):
        assert refused(ask("GET", f"/jobs/trian{path}"), 404).startswith(
            "there is no job 'trian'; did you mean"
        )
        assert refused(ask("GET", f"/jobs/trai{path}"), 400).startswith("'trai' could be train-")


def test_what_is_explained_changes_when_the_scheduler_has_moved_on(ask: Ask, past: Past) -> None:
    assert "1st in line" in ask("GET", "/jobs/wait/explain").json()["explanation"]
    past.end("train-44444")
    assert "1st in line" not in ask("GET", "/jobs/wait/explain").json()["explanation"]


def test_manifests_are_submitted_as_yaml_json_or_files(ask: Ask, past: Past) -> None:
    one = json.loads(manifest("a", "true"))
    bodies = [
        {"content": manifest("a", "true"), "headers": YAML},
        {"json": one},
        {"json": [one, one]},
        {"json": {"apiVersion": "v1", "kind": "List", "items": [one]}},
        {"json": {"files": [{"name": "x.yaml", "text": manifest("a", "true")}]}},
    ]
    for body in bodies:
        answer = ask("POST", "/jobs", **body)
        assert answer.status_code == 201, answer.text
        assert {tuple(row) for row in answer.json()} == {("id", "name", "notes")}
    assert len(queries.jobs(past.store, phases=["submitted"])) == 6


def test_a_dry_run_says_what_would_happen_and_submits_nothing(ask: Ask, past: Past) -> None:
    job = manifest("new", "true", gpus=2, runtime_estimate="1h30m")
    answer = ask("POST", "/jobs?dry_run=true", content=job, headers=YAML)
    assert answer.status_code == 200
    (row,) = answer.json()
    assert row["explanation"].startswith("waits for 2 GPUs on the cluster until 12:14")
    assert row["position"] == 2
    assert not queries.jobs(past.store, phases=["submitted"])
    assert ask("GET", "/jobs/wait/explain").json()["position"] == 1


def test_one_bad_manifest_stops_them_all_and_every_problem_is_a_line(ask: Ask, past: Past) -> None:
    good, bad = manifest("good", "true"), manifest("bad", "true", max_wait="15")
    said = refused(ask("POST", "/jobs", content=f"{good}\n---\n{bad}", headers=YAML), 400)
    assert said == (
        'body, document 2: metadata.annotations["starburst.io/max-wait"]: "15": '
        "a duration needs a unit; write 15s, 15m, 15h or 15d"
    )
    files = [{"name": "a.yaml", "text": bad}, {"name": "b.yaml", "text": ""}, {"name": "c", "text": good}]
    lines = refused(ask("POST", "/jobs", json={"files": files}), 400).splitlines()
    assert [line.split(":")[0] for line in lines] == ["a.yaml, document 1", "b.yaml"]
    assert not queries.jobs(past.store, phases=["submitted"])


NO_MANIFESTS = [
    ("text/plain", b"{}", "content-type: 'text/plain': must be application/yaml or application/json"),
    ("", b"{}", "content-type: ''"),
    ("application/yaml", b"\xff", "body: is not text; send UTF-8"),
    ("application/json", b"{", "body: is not JSON (Expecting property name"),
    ("application/json", b"[" * 100_000, "body: is too deep"),
    ("application/json", b"1" * 5000, "body: is too deep, or has too large numbers"),
    ("application/json", b'{"kind": "\\ud800"}', "body: holds half a character"),
    ("application/json", b'{"files": []}', "body: files: must be an array of at least one"),
    ("application/json", b'{"files": [{"name": 1, "text": ""}]}', "body: files: each must have name"),
    ("application/json", b"[]", "body: there is no Job or Pod in it"),
]


def test_a_body_that_is_no_manifest(ask: Ask) -> None:
    for kind, body, said in NO_MANIFESTS:
        told = refused(ask("POST", "/jobs", content=body, headers={"Content-Type": kind}), 400)
        assert told.startswith(said)


def test_a_body_may_be_just_so_large(ask: Ask) -> None:
    fits = manifest("a", "true").encode().ljust(2**20)
    assert ask("POST", "/jobs", content=fits, headers={"Content-Type": "application/json"}).status_code == 201
    said = refused(ask("POST", "/jobs", content=fits + b" ", headers=YAML), 413)
    assert said == "the body has more than 1048576 bytes; send less, or raise http.max_body"


def test_a_job_is_cancelled_and_asking_again_changes_nothing(ask: Ask, past: Past) -> None:
    for _ in range(2):
        assert ask("POST", "/jobs/wait/cancel").json()["phase"] == "queued"
    (request,) = past.store.requests(9)
    assert (request.kind, request.job_id) == ("cancel", "wait-55555")
    assert ask("POST", "/jobs/done/cancel").json()["phase"] == "succeeded"
    assert len(past.store.requests(9)) == 1


def array(past: Past, id_: str, queue: str, user: str = "ada") -> list[str]:
    """An array of two; its ids."""
    for n in range(2):
        name = f"{id_.partition('-')[0]}-{n}"
        past.submit(f"{id_}-{n}", 4, name=name, queue=queue, user=user, array=Member(id_, n, 2, 1))
    return [f"{id_}-0", f"{id_}-1"]


def test_the_name_of_an_array_is_all_of_its_jobs_and_those_of_other_queues_are_not_there(
    ask: Ask, past: Past, token: Callable[..., str]
) -> None:
    mine, others = array(past, "twin-c2d3f", "papers"), array(past, "twin-d2f3g", "theirs")
    said = refused(ask("GET", "/jobs?name=wait&name=twin"), 400)
    assert said == "'twin' could be twin-c2d3f, twin-d2f3g; give the whole id"
    assert ids(ask("GET", "/jobs?name=wait&name=twin-d2f3g")) == ["wait-55555", *others]
    scoped = token("viewer", "papers")
    assert ids(ask("GET", "/jobs?name=twin", scoped)) == mine
    assert "there is no job 'twin-d2f3g'" in refused(ask("GET", "/jobs?name=twin-d2f3g", scoped), 404)


def test_jobs_by_name_or_id_are_chosen_otherwise_too(ask: Ask, past: Past) -> None:
    mine = array(past, "twin-c2d3f", "papers")
    assert ids(ask("GET", "/jobs?name=twin&phase=blocked")) == mine[1:]
    for choice in ("user=bob", "queue=default"):
        assert ids(ask("GET", f"/jobs?name=twin&{choice}")) == []
    both = "&".join(f"id={job}" for job in (*mine, "wait-55555"))
    assert ids(ask("GET", f"/jobs?{both}&queue=papers&user=ada")) == mine
    assert ids(ask("GET", f"/jobs?{both}&phase=failed")) == []
    assert ids(ask("GET", f"/jobs?name=twin&id={mine[0]}")) == mine[:1]


def test_several_are_steered_at_once_or_none(ask: Ask, past: Past, token: Callable[..., str]) -> None:
    twin, bobs = array(past, "twin-c2d3f", "papers"), array(past, "bobs-d2f3g", "papers", "bob")
    ada, admin = token("submitter", name="ada"), token("admin")
    for names, status in ([["twin", "nobody"], 404], [["twin", *bobs], 403], [["twin", "bobs-"], 400]):
        refused(ask("POST", "/jobs/cancel", ada, json={"names": names}), status)
    assert past.store.requests(9) == []
    assert ids(ask("POST", "/jobs/hold", ada, json={"names": ["twin", "wait", "wait"]})) == [
        *twin,
        *["wait-55555"] * 2,
    ]
    assert ids(ask("POST", "/jobs/cancel", admin, json={"names": bobs})) == bobs
    assert ids(ask("POST", "/jobs/release", ada, json={"names": ["twin"]})) == twin
    asked = [(request.kind, request.job_id) for request in past.store.requests(19)]
    assert asked == [
        ("hold", "wait-55555"),  # the others wait no longer
        *(("cancel", job) for job in bobs),
        *(("release", job) for job in twin),
    ]


NO_NAMES = [
    *(b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"names": []}', b'{"names": "a"}', b'{"names": ["a", 1]}'),
    *(b'{"names": ["\\u0000"]}', b'{"names": ["\\ud800"]}', b'{"names": ["a"], "x": 1}'),
    json.dumps({"names": ["wait"] * 1001}).encode(),
]


def test_a_body_that_names_nobody(ask: Ask, past: Past) -> None:
    for body in NO_NAMES:
        kind = {"Content-Type": "application/json"}
        assert refused(ask("POST", "/jobs/cancel", content=body, headers=kind), 400).startswith("body: ")
    assert refused(ask("POST", "/jobs/hold", content=b"{}"), 400).startswith("content-type: ''")
    assert past.store.requests(9) == []


def test_a_job_is_held_released_and_requeued(ask: Ask, past: Past) -> None:
    (sent,) = ask("POST", "/jobs?hold=true", content=manifest("a", "true"), headers=YAML).json()
    assert past.store.submission(sent["id"]).job.hold
    assert ask("POST", "/jobs/wait/hold").json()["phase"] == "queued"
    assert ask("POST", f"/jobs/{sent['id']}/release").json()["phase"] == "submitted"
    assert ask("POST", "/jobs/train/requeue").json()["phase"] == "running"
    assert ids(ask("POST", "/jobs/requeue", json={"names": ["train", "wait"]})) == [
        "train-44444",
        "wait-55555",
    ]
    asked = [(request.kind, request.job_id) for request in past.store.requests(9)]
    assert asked == [
        ("submit", sent["id"]),
        ("hold", "wait-55555"),
        ("release", sent["id"]),
        ("requeue", "train-44444"),  # asked for once; what waits already is left alone
    ]


def test_a_job_that_waits_is_changed(ask: Ask, past: Past, token: Callable[..., str]) -> None:
    assert ask("POST", "/jobs/wait/edit?priority=5&max_wait_s=60").json()["phase"] == "queued"
    assert ids(ask("POST", "/jobs/edit?runtime_estimate_s=9", json={"names": ["wait", "train"]})) == [
        "wait-55555",
        "train-44444",
    ]
    (asked,) = past.store.requests(9)
    assert (asked.job_id, asked.edit) == ("wait-55555", JobEdit(5, 60, 9))
    refused(ask("POST", "/jobs/wait/edit"), 400)
    refused(ask("POST", "/jobs/wait/edit?priority=high"), 400)
    refused(ask("POST", "/jobs/wait/edit?runtime_estimate_s=0"), 400)
    ada, bob = token("submitter", name="ada"), token("submitter", name="bob")
    assert "no admin" in refused(ask("POST", "/jobs/wait/edit?priority=999999", ada), 400)
    refused(ask("POST", "/jobs/wait/edit?priority=1", bob), 403)


def test_machines_money_nodes_and_offers(ask: Ask) -> None:
    (machine,) = ask("GET", "/instances").json()
    assert (machine["id"], machine["jobs"], machine["cost_usd"]) == ("i-000002", ["render-33333"], 2.04)
    assert ids(ask("GET", "/instances?all=true")) == ["i-000001", "i-000002"]
    assert ask("GET", "/cost?by=queue").json() == [
        {"queue": "default", "cost_usd": 2.04, "running_usd": 2.04, "cluster_usd": None},
        {"queue": "papers", "cost_usd": 2.04, "running_usd": 0.0, "cluster_usd": None},
    ]
    assert refused(ask("GET", "/cost?by=colour"), 400).startswith("by: input should be 'user', 'queue'")
    (node,) = ask("GET", "/nodes").json()
    assert (node["gpus"], node["free_gpus"], node["gpu_type"]) == (4, 0, "V100")
    assert [offer["name"] for offer in ask("GET", "/offers").json()] == ["p3.2xlarge", "c7i.large"]


def test_a_scoped_token_sees_what_the_cluster_is_reckoned_at_for_its_jobs(
    ask: Ask, past: Past, token: Callable[..., str]
) -> None:
    priced = parse_config({**CONFIG, "cluster": {"usd_per_gpu_hour": 0.5}}, "test")
    past.submit("mine-66666", queue="papers", user="bob", cloud=CloudChoice.NEVER)
    past.end("train-44444")
    past.start("mine-66666")
    past.now += 7200
    past.end("mine-66666")
    admin, scoped = token("admin"), token("viewer", "papers")
    assert {row["cluster_usd"] for row in ask("GET", "/cost?by=job", scoped).json()} == {None}
    past.store.set_fact("config", priced.model_dump(mode="json"))
    for by in ("queue", "job"):
        of_all = ask("GET", f"/cost?by={by}", admin).json()
        mine = [row for row in of_all if row[by] in ("papers", "mine-66666", "bad-22222")]
        assert ask("GET", f"/cost?by={by}", scoped).json() == mine
    (bobs,) = ask("GET", "/cost?by=user", scoped).json()
    assert (bobs["user"], bobs["cost_usd"], bobs["cluster_usd"]) == ("bob", 2.04, 1.0)


def test_the_decision_log_by_row_by_subject_and_from_its_end(ask: Ask) -> None:
    log = ask("GET", "/events").json()
    assert [row["seq"] for row in log] == list(range(1, len(log) + 1))
    assert ask("GET", "/events?after=3&limit=2").json() == log[3:5]
    assert ask("GET", "/events?newest=true&limit=2").json() == log[-2:]
    assert {row["subject"] for row in ask("GET", "/events?subject=i-000001").json()} == {"i-000001"}


def test_a_summary_in_a_few_numbers(ask: Ask) -> None:
    told = ask("GET", "/summary").json()
    assert told["jobs"] == {"failed": 1, "queued": 1, "running": 2, "succeeded": 1}
    assert (told["instances"], told["usd_per_hour"]) == ({"ready": 1}, 2.04)
    assert (told["now"], told["scheduler_running"]) == ("2026-03-02T12:00:00.000+00:00", False)
    assert told["last_seq"] == ask("GET", "/events?newest=true&limit=1").json()[0]["seq"]


def test_what_a_job_wrote_is_plain_text(ask: Ask, home: Path) -> None:
    write(home, "done-11111", 0, "a\nc")
    write(home, "done-11111", 1, "b\n")
    answer = ask("GET", "/jobs/done/logs")
    assert (answer.text, answer.headers["content-type"]) == (
        "[0] a\n[0] c[1] b\n",
        "text/plain; charset=utf-8",
    )
    assert ask("GET", "/jobs/done/logs?rank=1").text == "b\n"
    assert ask("GET", "/jobs/done/logs?follow=true").text == "[0] a\n[0] c[1] b\n"
    assert ask("GET", "/jobs/wait/logs").status_code == 204
    said = refused(ask("GET", "/jobs/done/logs?attempt=2"), 400)
    assert said == "attempt: 2: the last run of job/done-11111 is 1; give one up to that"
    for more in ("", "&follow=true"):
        said = refused(ask("GET", f"/jobs/wait/logs?rank=1{more}"), 400)
        assert said == "rank: 1: the last task of job/wait-55555 is 0; give one up to that"


def test_a_long_log_arrives_whole(ask: Ask, home: Path) -> None:
    text = "".join(f"{i} {'x' * 50}\n" for i in range(50_000))
    write(home, "done-11111", 0, text)
    assert ask("GET", "/jobs/done/logs").text == text


def test_what_cannot_be_asked_is_one_line(ask: Ask) -> None:
    for path in ("/nowhere", "/jobs?limit=0", "/jobs?limit=1001", "/jobs?limit=x", "/events?after=-1"):
        answer = ask("GET", path)
        assert len(refused(answer, 404 if path == "/nowhere" else 400).splitlines()) == 1
    for path in (f"/events?after={2**63}", "/jobs/a%00b", "/jobs?user=%00", "/jobs/wait/logs?attempt=0"):
        assert len(refused(ask("GET", path), 400).splitlines()) == 1


def test_openapi_describes_every_route_in_words(ask: Ask) -> None:
    told = ask("GET", "/openapi.json").json()
    routes = [route for path in told["paths"].values() for route in path.values()]
    assert len(routes) >= 14
    assert all(route["summary"] and {"200", "201", "204"} & route["responses"].keys() for route in routes)
    assert "application/yaml" in told["paths"]["/api/v1/jobs"]["post"]["requestBody"]["content"]
