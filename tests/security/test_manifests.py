"""What strangers hand in costs nobody memory, time or disk, and asks for no more than its bounds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from starburst.app.config import parse_config
from starburst.app.daemon.shortages import shortage_of
from starburst.app.errors import UserError
from starburst.app.jobs import submitting
from starburst.app.reading import workers
from starburst.app.reading.requests import FoundObject, ManifestTexts, ReadAnswer, read
from starburst.app.reading.sources import ManifestText
from starburst.app.reading.workers import WorkerPool, shared
from starburst.domain.job import ANYBODY, OWNER
from starburst.store.listings import pages, queries
from starburst.store.quota import QuotaError
from starburst.store.store import Store
from tests.web.conftest import *  # noqa: F403 - the API and who asks it
from tests.web.conftest import Ask
from translator.errors import ManifestErrors
from translator.intake.rules import IntakeRules
from translator.intake.texts import read_manifests

Make = Callable[..., str]


def pod(name: str = "a", annotations: dict[str, str] | None = None, **container: Any) -> dict[str, Any]:
    main = {"name": "main", "command": ["true"], **container}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"restartPolicy": "Never", "containers": [main]},
    }


def doubling(levels: int) -> list[dict[str, str]]:
    """Variables each of which is the one before, twice."""
    more = ({"name": f"A{n}", "value": f"$(A{n - 1})$(A{n - 1})"} for n in range(1, levels))
    return [{"name": "A0", "value": "0123456789"}, *more]


def refusal(manifest: object, **how: Any) -> str:
    with pytest.raises(ManifestErrors) as bad:
        read_manifests(json.dumps(manifest), "f", suffix=lambda: "x", **how)
    return str(bad.value)


NATIVE = {"taking": IntakeRules(native=True)}
FORTY = pod(env=doubling(40))


@pytest.mark.parametrize("how", [{}, NATIVE], ids=["embedded", "native"])
def test_variables_that_double_forty_times_are_refused_by_name_before_they_are_made(how: Any) -> None:
    began = time.process_time()
    assert refusal(FORTY, **how) == (
        "f, document 1: spec.containers[0].env[14].value: is 163844 bytes with $(NAME) filled in, more than "
        "131071, which is what one text may have; make it smaller, or put it into a file"
    )
    assert time.process_time() - began < 1


def test_many_texts_are_bounded_together() -> None:
    said = refusal(pod(env=[{"name": "A", "value": "x" * 100_000}], args=["$(A)"] * 20))
    assert "spec.containers[0].args[9]: brings the container to more than 1048576 bytes" in said
    said = refusal(pod(args=["x" * 140_000]))
    assert "spec.containers[0].args[0]: is 140000 bytes" in said
    said = refusal(pod(annotations={"a": "x" * 200_000, "b": "x" * 100_000}))
    assert "metadata.annotations.b: brings labels and annotations to more than 262144" in said.replace(
        "the 262144", "262144"
    )
    assert "more than the 1500000 letters" in refusal({**pod(), "status": {"x": "y" * 1_600_000}})


def test_what_fits_is_filled_in_as_before() -> None:
    env = [*doubling(13), {"name": "B", "value": "$$(A0) $(A1) $(gone) $"}]
    (found,) = read_manifests(json.dumps(pod(env=env, args=["$(B)$(A12)"])), "f", suffix=lambda: "x")
    b = "$(A0) 01234567890123456789 $(gone) $"
    assert dict(found.workload.env)["B"] == b
    assert found.workload.command[-1] == b + "0123456789" * 4096


def test_brackets_without_end_take_linear_time() -> None:
    began = time.process_time()
    (found,) = read_manifests(json.dumps(pod(args=["$(" * 60_000])), "f", suffix=lambda: "x")
    assert found.workload.command[-1] == "$(" * 60_000
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "image", ["--volume=/:/host", "-it", "a b", "a;b", "Upper/Case:1", "$(X)", "a:" + "x" * 129, "a." * 256]
)
def test_an_image_is_no_option_of_docker(image: str) -> None:
    assert "containers[0].image" in refusal(pod(image=image))


@pytest.mark.parametrize(
    "image",
    ["python:3.12-slim", "localhost:5000/a/b_c", "ghcr.io/A/b@sha256:".lower() + "a" * 64, "[::1]:5/x"],
)
def test_images_of_every_kind_are_taken(image: str) -> None:
    (found,) = read_manifests(json.dumps(pod(image=image)), "f", suffix=lambda: "x")
    assert found.workload.image == image


BOMBS = {
    "nodes": "[" + "a," * 520_000 + "a]",
    "documents": "---\n" * 250_000,
    "depth": "[" * 1_000_000,
    "aliases": "a: &a [x, y]\nb: [" + "*a," * 240_000 + "]",
    "laughs": "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 50))]),
    "merges": "\n".join(
        ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 50))]
    ),
}


REFUSED = ("more than 500000 values", "aliases stand for more than", "10000 documents", "100 levels")


@pytest.fixture(scope="module")
def reader() -> Iterator[WorkerPool]:
    reader = WorkerPool()
    yield reader
    reader.close()


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_megabyte_of_yaml_is_refused_in_seconds_of_a_workers_time(reader: WorkerPool, bomb: str) -> None:
    answer = reader.read(ManifestTexts((ManifestText("body", BOMBS[bomb]),)))
    (problem,) = answer.problems
    assert any(said in problem for said in REFUSED)


def item(text: str) -> str:
    """Ten jobs by one anchor."""
    body = "\n".join(f"  {line}" for line in text.splitlines())
    return f"apiVersion: v1\nkind: List\nitems:\n- &a\n{body}\n" + "- *a\n" * 9


ARRAY = item(json.dumps(pod(annotations={"starburst.io/array": "0-99999"})))


def test_a_list_of_one_array_ten_times_is_refused_before_it_is_a_million_jobs(
    ask: Ask,
    past: Past,  # noqa: F405
) -> None:
    answer = ask("POST", "/jobs", content=ARRAY, headers={"Content-Type": "application/yaml"})
    assert answer.status_code == 400
    assert (
        "these jobs have 1000000 tasks, and limits.tasks_per_submission is 100000" in answer.json()["error"]
    )
    assert pages.counts(past.store, None).get("submitted") is None


def test_a_worker_that_takes_all_memory_takes_nobody_along(reader: WorkerPool) -> None:
    long = pod(env=[{"name": "A", "value": "x" * 100_000}], args=["$(A)"] * 8)
    text = "---\n".join([item(json.dumps(long)) + "- *a\n" * 450] * 4)  # an alias may stand for so much
    (problem,) = reader.read(ManifestTexts((ManifestText("body", text),))).problems
    assert problem.startswith("takes too much")
    assert reader.read(ManifestTexts((ManifestText("body", json.dumps(pod())),))).submissions


def test_a_worker_ends_when_its_client_goes_away_or_time_is_up() -> None:
    slow = ManifestTexts((ManifestText("body", "\n---\n".join([json.dumps(pod())] * 9000)),))
    hasty = WorkerPool(limit_s=0.01)
    assert hasty.read(slow).problems[0].startswith("takes too much time")
    assert WorkerPool().read(slow, gone=lambda: True).problems == ("nobody waits for the answer any more",)


GOOD = ManifestTexts((ManifestText("body", json.dumps(pod())),))


def test_a_worker_that_is_ended_while_it_is_idle_is_replaced() -> None:
    reader = WorkerPool()
    assert reader.read(GOOD).submissions
    (idle,) = reader._idle
    idle._process.kill()
    idle._process.wait()
    assert reader.read(GOOD).submissions
    reader.close()


def test_manifests_are_not_blamed_for_memory_that_others_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel ends workers first: a manifest need not be smaller, it is read again later."""
    asked: list[int] = []

    class Killed(workers._Worker):
        def ask(self, *more: Any) -> bytes:
            asked.append(self._process.pid)
            self._process.kill()
            return super().ask(*more)

    monkeypatch.setattr(workers, "_Worker", Killed)
    with pytest.raises(OSError, match="ended twice") as short:
        WorkerPool().read(GOOD)
    assert shortage_of(short.value) is not None
    assert len(asked) == 2


def test_an_object_that_cannot_be_read_is_told_so_and_the_scheduler_lives_on() -> None:
    bomb = {**FORTY, "metadata": {"name": "bomb", "namespace": "team", "uid": "1"}}
    answer = shared().read(FoundObject(json.dumps(bomb), "bomb-1"))
    assert answer.submissions == ()
    assert "spec.containers[0].env[14].value" in answer.problems[0]
    assert shared().read(FoundObject("[]", "x")).problems == ("Starburst cannot read it; its log says why",)


def test_the_worker_reads_as_the_command_at_home_does(reader: WorkerPool) -> None:
    texts = ManifestTexts(
        (ManifestText("f", json.dumps(pod("train"))), ManifestText("g", "kind: Pod")), seed="s"
    )
    assert reader.read(texts) == read(texts)
    good = ManifestTexts(texts.sources[:1], seed="s", rules=IntakeRules(native=True))
    assert reader.read(good) == read(good) != ReadAnswer()


# Quotas.


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.db") as store:
        yield store


def configured(store: Store, **sections: Any) -> None:
    store.set_fact("config", parse_config(sections, "test").model_dump(mode="json"))


def send(store: Store, *manifests: dict[str, Any], user: str = "ada", **more: Any) -> None:
    sources = [ManifestText("f", json.dumps(one)) for one in manifests]
    submitting.submit(store, submitting.read_sources(store, sources, user, **{"submitter": OWNER, **more}))


def test_so_many_jobs_of_a_user_and_of_a_queue_may_wait_and_none_of_the_rest_is_stored(store: Store) -> None:
    configured(store, limits={"pending_per_user": 3, "pending_per_queue": 5}, queues=[])
    send(store, pod("a"), pod("b"))
    with pytest.raises(
        QuotaError, match=r"user 'ada' has 2 jobs waiting, and these are 2 more: limits.pending"
    ):
        send(store, pod("c"), pod("d"))
    assert len(queries.jobs(store)) == 2
    send(store, pod("c"))
    send(store, pod("d"), pod("e"), user="bob")
    with pytest.raises(QuotaError, match="queue 'default' has 5 jobs waiting, and these are 1 more"):
        send(store, pod("f"), user="bob")


def test_a_queue_may_have_a_bound_of_its_own(store: Store) -> None:
    queue = {"name": "default", "max_pending": 1}
    configured(store, queues=[queue])
    send(store, pod("a"))
    with pytest.raises(QuotaError, match="its max_pending is 1; submit fewer, or wait"):
        send(store, pod("b"))
    configured(store, queues=[{**queue, "max_pending": 0}])
    send(store, pod("b"))


def test_over_http_a_quota_is_403_with_its_numbers(ask: Ask, past: Past) -> None:  # noqa: F405
    configured(past.store, limits={"pending_per_user": 1})
    assert ask("POST", "/jobs?user=eve", json=pod()).status_code == 201
    answer = ask("POST", "/jobs?user=eve", json=pod())
    assert (answer.status_code, answer.json()["error"][:34]) == (403, "user 'eve' has 1 jobs waiting, and")


def test_who_is_no_admin_goes_before_others_only_so_far(store: Store) -> None:
    urgent = pod(annotations={"starburst.io/priority": "1000000000"})
    send(store, urgent)
    with pytest.raises(
        UserError, match=r"starburst.io/priority: 1000000000: must be at most 100 for who is no"
    ):
        send(store, urgent, submitter=ANYBODY)
    send(store, pod(annotations={"starburst.io/priority": "100"}), submitter=ANYBODY)


# Names of users.


@pytest.mark.parametrize("user", ["a\x1b[31mred", "a\rb", "a b", "=cmd|' /C calc'!A0", "a" * 65, "\u202ea"])
def test_no_door_takes_a_user_whose_name_is_none(store: Store, ask: Ask, user: str) -> None:
    with pytest.raises(UserError, match="must be letters, digits and"):
        send(store, pod(), user=user)
    assert ask("POST", "/jobs", params={"user": user}, json=pod()).status_code == 400
    annotated = {**pod(), "metadata": {"name": "a", "annotations": {"starburst.io/user": user}}}
    (problem,) = read(FoundObject(json.dumps(annotated), "a-1")).problems
    assert problem.startswith('metadata.annotations["starburst.io/user"]: must be letters')


def test_an_adopted_job_may_be_its_namespaces_whatever_it_says() -> None:
    annotated = {
        **pod(),
        "metadata": {"name": "a", "namespace": "team", "annotations": {"starburst.io/user": "eve"}},
    }
    found = FoundObject(json.dumps(annotated), "a-1")
    assert read(found).submissions[0].job.user == "eve"
    bound = FoundObject(found.body, "a-1", user_from="namespace")
    assert read(bound).submissions[0].job.user == "team"
