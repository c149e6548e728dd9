"""Holding, releasing and what else steers jobs, as typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from starburst.app.config import parse_config
from starburst.app.jobs.submitting import this_user
from starburst.core.model.events import EditRequested, HoldRequested, RequeueRequested
from starburst.domain.job import JobEdit, Member
from starburst.store.listings import queries
from starburst.store.upkeep.rollup import roll_up
from tests.cli.manifests import manifest

CRON = """apiVersion: batch/v1
kind: CronJob
metadata:
  name: c
  annotations: {starburst.io/singleton: "true"}
spec:
  schedule: "0 2 * * *"
  timeZone: Etc/UTC
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: main, image: busybox, command: ["true"]}]
"""


@pytest.fixture
def write(tmp_path: Path):
    def write(name: str, *documents: str) -> Path:
        file = tmp_path / name
        file.write_text("\n---\n".join(documents))
        return file

    return write


def requests(past) -> list[tuple[str, str]]:
    return [(request.kind, request.job_id) for request in past.store.requests(100)]


def test_what_is_submitted_with_hold_is_held(cli, past, write):
    told = cli("submit", "--hold", write("a.yaml", manifest("a", "true"), manifest("b", "true")))
    assert told.code == 0
    assert [request.submission.job.hold for request in past.store.requests(10)] == [True, True]
    told = cli("submit", "--hold", "--dry-run", write("c.yaml", manifest("c", "true")))
    assert told.out.startswith(
        "c is held: it neither waits nor leaves until it is released: starburst release c"
    )


def test_only_what_waits_is_held_and_everything_else_is_named(cli, past):
    past.morning()
    told = cli("hold", "wait", "train", "done")
    assert told.out == (
        "job/wait-55555 is being held\n"
        "job/train-44444 is not held: it waits no longer, it is running\n"
        "job/done-11111 is over already: succeeded\n"
    )
    assert requests(past) == [("hold", "wait-55555")]


@pytest.mark.parametrize(
    "verb", [("hold",), ("release",), ("cancel",), ("requeue",), ("edit", "--priority", "3")]
)
def test_requests_are_answered_in_every_format(cli, past, verb):
    past.morning()
    (row,) = json.loads(cli(*verb, "wait", "-o", "json").out)
    assert list(row) == ["kind", "id", "phase", "message"]
    assert (row["kind"], row["id"], row["phase"]) == ("job", "wait-55555", "queued")
    assert cli(*verb, "wait", "-o", "name").out == "job/wait-55555\n"
    assert cli(*verb, "wait").out == f"job/wait-55555 {row['message']}\n"


def test_a_held_job_is_listed_as_held_and_can_be_released(cli, past):
    past.morning()
    past.tell(HoldRequested("wait-55555"))
    (row,) = json.loads(cli("status", "--phase", "held", "-o", "json").out)
    assert (row["id"], row["phase"], row["leaves_at"]) == ("wait-55555", "held", None)
    assert (
        "starburst release wait-55555, by whoever may submit to queue default" in cli("explain", "wait").out
    )
    assert cli("hold", "wait").out == "job/wait-55555 is held already\n"
    assert cli("release", "wait", "train").out == (
        "job/wait-55555 is being released\njob/train-44444 is not held: it is running\n"
    )
    assert ("release", "wait-55555") in requests(past)


def test_what_runs_is_stopped_and_queues_again_and_everything_else_is_named(cli, past):
    past.morning()
    told = cli("requeue", "train", "wait", "done")
    assert told.out == (
        "job/train-44444 is being stopped, and queues again\n"
        "job/wait-55555 does not run: it is queued\n"
        "job/done-11111 is over already: succeeded; submit it again\n"
    )
    assert requests(past) == [("requeue", "train-44444")]
    past.tell(RequeueRequested("train-44444"))
    assert "its user has it queued again" in cli("explain", "train").out


def test_what_waits_is_changed_and_everything_else_is_named(cli, past):
    past.morning()
    assert cli("edit", "wait", "train", "--priority", "7", "--max-wait", "1h30m").out == (
        "job/wait-55555 is being changed\njob/train-44444 is not changed: it waits no longer, it is running\n"
    )
    cli("edit", "wait", "--estimate", "2h")
    (asked,) = past.store.requests(9)
    assert (asked.job_id, asked.edit) == ("wait-55555", JobEdit(7, 5400, 7200))
    past.tell(EditRequested(asked.job_id, asked.edit))
    assert "priority 7, max-wait 5400 s, runtime-estimate 7200 s" in cli("events", "wait").out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "name what to change, with --priority, --max-wait or --estimate"),
        (["--max-wait", "5"], "--max-wait: '5': a duration needs a unit"),
        (["--estimate", "0"], "--estimate: '0': must be more than 0"),
        (["--max-wait", "3651d"], "--max-wait: '3651d': must be at most 3650d"),
    ],
)
def test_a_change_that_is_none(cli, past, words, problem):
    past.morning()
    told = cli("edit", "wait", *words)
    assert told.code == 2
    assert problem in told.err
    assert requests(past) == []


def after(past) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    jobs = [request.submission.job for request in past.store.requests(100)]
    return {item.name: (item.after_ok, item.after_any) for item in jobs}


def test_names_of_other_jobs_become_ids_first_of_the_same_file_then_of_the_store(cli, past, write):
    past.morning()
    file = write("a.yaml", manifest("b", "true", after_ok="a, done", after_any="bad"), manifest("a", "true"))
    told = cli("submit", file)
    a, b = (line.split()[0].removeprefix("job/") for line in told.out.splitlines())
    assert (a[:2], b[:2]) == ("a-", "b-")
    assert after(past) == {"a": ((), ()), "b": ((a, "done-11111"), ("bad-22222",))}
    told = cli("submit", "--dry-run", write("c.yaml", manifest("c", "true", after_ok="train")))
    assert told.out.startswith(
        "c does not wait for a place yet: it comes after train-44444 if that succeeds;"
    )


def test_a_singleton_comes_after_earlier_jobs_of_its_user_and_name(cli, past, write):
    past.morning()
    for other, user in (("train-99999", "somebody else"), ("train-77777", this_user())):
        past.submit(other, name="train", user=user)
    sweep = manifest("train", "true", array="0-1")
    assert cli("submit", write("a.yaml", sweep)).code == 0
    array = sorted(row.id for row in queries.jobs(past.store) if row.name in ("train-0", "train-1"))
    assert len(array) == 2
    ones = [manifest(name, "true", singleton="true") for name in ("train", "b")]
    file = write("b.yaml", *ones)
    assert cli("submit", file, "--hold").code == 0
    last, other = [r.submission for r in past.store.requests(9)][-2:]
    assert sorted(last.job.after_any) == sorted(["train-77777", *array])
    assert (other.job.name, other.job.after_any, last.singleton) == ("b", (), False)
    twice = manifest("new", "true", singleton="true")
    assert cli("submit", write("c.yaml", manifest("new", "true"), twice)).code == 0
    first, second = [r.submission.job for r in past.store.requests(9)][-2:]
    assert second.after_any == (first.id,)


def test_what_cannot_be_a_singleton_is_refused(cli, past, write):
    told = cli("submit", write("a.yaml", manifest("a", "true", singleton="true", array="0-1")))
    assert (told.code, told.err.splitlines()[0]) == (
        2,
        "error: job a: starburst.io/singleton: is not for arrays; write 0-9%1, which runs one at a time",
    )
    told = cli("submit", write("c.yaml", CRON))
    assert (told.code, told.err) == (
        2,
        "error: job c: starburst.io/singleton: is for jobs; write concurrencyPolicy: Forbid for a CronJob\n",
    )


def test_what_cannot_come_after_is_refused_with_everything_else_in_the_file(cli, past, write):
    past.morning()
    told = cli("submit", write("a.yaml", manifest("a", "true", after_ok="trainn"), manifest("b", "true")))
    problem = "job a: starburst.io/after-ok: there is no job 'trainn'; did you mean train"
    assert (told.code, told.err[: len(problem) + 7]) == (2, f"error: {problem}")
    told = cli("submit", write("a.yaml", manifest("a", "true", after_ok="bad")))
    assert told.err == (
        "error: job a: starburst.io/after-ok: bad-22222 is failed already; submit it again first\n"
    )
    circle = [manifest("a", "true", after_ok="b"), manifest("b", "true", after_any="a")]
    told = cli("submit", write("a.yaml", *circle, manifest("c", "true")))
    assert (told.code, told.out) == (2, "")
    assert told.err == "error: jobs come after each other in a circle: a after b after a; break it\n"
    told = cli("submit", write("a.yaml", manifest("a", "true", after_ok="a,,b")))
    assert "must be names or ids of jobs with commas between them" in told.err
    assert past.store.requests(10) == []


def test_a_job_may_come_after_one_that_ended_so_long_ago_that_only_its_end_is_known(cli, past, write):
    past.morning()
    assert sum(roll_up(past.store, past.now, past.now)) > 0
    told = cli("submit", write("a.yaml", manifest("a", "true", after_ok="bad-22222")))
    assert told.err == (
        "error: job a: starburst.io/after-ok: bad-22222 is failed already; submit it again first\n"
    )
    assert cli("submit", write("a.yaml", manifest("a", "true", after_ok="done-11111"))).code == 0
    (request,) = past.store.requests(10)
    assert request.submission.job.after_ok == ("done-11111",)


def test_what_cannot_come_after_a_failure_is_refused(cli, past, write):
    past.morning()

    def problem(*manifests):
        told = cli("submit", write("a.yaml", *manifests))
        assert (told.code, told.out) == (2, "")
        return told.err.removeprefix("error: job a: ").rstrip("\n")

    assert problem(manifest("a", "true", after_not_ok="done")) == (
        "starburst.io/after-not-ok: done-11111 is succeeded already; submit it again first"
    )
    sweep = manifest("sweep", "true", array="0-3")
    assert problem(manifest("a", "true", after_not_ok="sweep"), sweep) == (
        "starburst.io/after-not-ok: 'sweep' is an array of 4 jobs; name those that have to fail"
    )
    both = manifest("a", "true", after_not_ok="train", after_ok="train-44444")
    assert problem(both) == (
        "train-44444 is in starburst.io/after-ok and in after-not-ok; keep one of the two"
    )
    assert cli("submit", write("a.yaml", manifest("a", "true", after_not_ok="bad"))).code == 0
    assert cli("submit", write("a.yaml", manifest("a", "true", after_start="train, sweep"), sweep)).code == 0


def test_an_array_is_addressed_by_its_name_and_its_jobs_by_theirs(cli, past, write):
    told = cli(
        "submit", write("a.yaml", manifest("sweep", "true", array="0-11%2"), manifest("sweep-up", "true"))
    )
    line, _ = told.out.splitlines()
    assert line.endswith("[0-11] submitted: an array of 12 jobs")
    array = line.removeprefix("job/").partition("[")[0]
    ids = [f"{array}-{n}" for n in range(12)]
    for name in ("sweep", array):
        rows = json.loads(cli("status", name, "-o", "json").out)
        assert [row["id"] for row in rows] == ids
    assert cli("hold", "sweep").out == f"job/{array}[0-11] is being held (12 jobs)\n"
    assert len(cli("hold", "sweep", "-o", "name").out.splitlines()) == 12
    assert cli("cancel", "sweep-3").out == f"job/{array}-3 is being cancelled\n"
    assert "sweep" in cli("status", "swee").err


def test_an_array_that_was_taken_up_is_found_too(cli, past):
    for n in (10, 9):
        past.submit(f"x-b2c3d-{n}", name=f"x-{n}", array=Member("x-b2c3d", n, 20, 1))
    past.submit("x-y-b2c3d", name="x-y")
    rows = json.loads(cli("status", "x", "-o", "json").out)
    assert [(row["name"], row["phase"]) for row in rows] == [("x-9", "blocked"), ("x-10", "starting")]
    assert "at most 1 job of x-b2c3d at a time" in cli("explain", "x-9").out


def test_two_arrays_of_one_name_are_told_apart_by_their_ids(cli, past, write):
    for _ in range(2):
        cli("submit", write("a.yaml", manifest("sweep", "true", array="0-1")))
    told = cli("cancel", "sweep")
    assert (told.code, told.out) == (2, "")
    assert "'sweep' could be sweep-" in told.err


def test_one_comes_after_all_jobs_of_an_array(cli, past, write):
    cli(
        "submit",
        write("a.yaml", manifest("sum", "true", after_ok="map"), manifest("map", "true", array="0-2")),
    )
    found = after(past)["sum"][0]
    assert [name.rpartition("-")[2] for name in found] == ["0", "1", "2"]
    cli("submit", write("b.yaml", manifest("again", "true", after_any="map")))
    assert after(past)["again"][1] == found
    told = cli(
        "submit", write("c.yaml", manifest("m", "true", array="0-100"), manifest("s", "true", after_ok="m"))
    )
    assert told.err == "error: job s: starburst.io/after-ok: these are 101 jobs, 100 at most; name fewer\n"


def test_jobs_for_a_queue_that_there_is_not_are_refused_with_the_list(cli, past, write):
    config = parse_config({"queues": [{"name": "papers"}, {"name": "demos"}]}, "test")
    past.store.set_fact("config", config.model_dump(mode="json"))
    file = write("a.yaml", manifest("a", "true", queue="zzz"), manifest("b", "true", queue="papers"))
    told = cli("submit", file)
    assert (told.code, told.out) == (2, "")
    assert told.err == (
        f"error: {file}, job a: starburst.io/queue: 'zzz': there is no such queue; "
        "the queues are papers, demos\n"
    )
    assert cli("submit", write("b.yaml", manifest("b", "true", queue="papers"))).code == 0


def test_a_cancel_without_a_grace_is_another_wish_also_for_jobs_that_stop_already(cli, past):
    past.morning()
    assert cli("cancel", "train").code == 0
    assert cli("cancel", "--now", "train", "done").out == (
        "job/train-44444 is being cancelled\njob/done-11111 is over already: succeeded\n"
    )
    assert cli("cancel", "--now", "train").code == 0
    assert requests(past) == [("cancel", "train-44444"), ("cancel-now", "train-44444")]


def test_a_grace_that_no_stop_will_give_is_told_at_submission(cli, past, write):
    item = json.loads(manifest("a", "true"))
    item["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 2_000_000_000
    told = cli("submit", write("a.yaml", json.dumps(item)))
    assert told.code == 0
    assert "a run that is told to stop has at most 600 s here (policy.max_grace)" in told.out + told.err
