"""What a run's Job and pods say of it: once, only when nothing lives, and whoever is heard first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starburst.clusters.kubernetes.runs.identity import adopted_id
from starburst.clusters.kubernetes.runs.run_object import DELETED
from starburst.core.model.events import CancelRequested, RunEnd, RunEnded, RunStarted
from starburst.kube import names
from starburst.kube.objects import JobView, PodView
from starburst.kube.pods.outcome import NEVER_RAN
from tests.clusters.kubernetes.run_reader import ADOPTED, Reader, View, adopted, ended
from tests.clusters.kubernetes.views import ME, a_job, a_pod, failed, marked, running, succeeded

# --- a Job that we made


def test_a_run_starts_when_its_pod_runs_and_ends_when_its_job_is_complete() -> None:
    reader, job = Reader(), a_job()
    pod = a_pod(job=job)
    assert reader.see(job, pod) == []
    assert reader.see(running(pod)) == [RunStarted("a", 1)]
    assert reader.see(succeeded(pod)) == []
    assert reader.see(replace(job, end="Complete")) == [ended(RunEnd.EXITED, 0)]
    assert reader.see(replace(job, end="Complete", started_at=1.0)) == [], "once"


def test_a_gang_starts_when_each_of_its_pods_runs() -> None:
    reader, job = Reader(), a_job(parallelism=2)
    one, two = a_pod("one", job), a_pod("two", job)
    assert reader.see(job, running(one), two) == []
    assert reader.see(running(two)) == [RunStarted("a", 1)]


def test_a_pod_that_the_job_controller_made_again_is_no_second_start_and_no_end() -> None:
    reader, job = Reader(), a_job(parallelism=2)
    one, two, again = a_pod("one", job), a_pod("two", job), a_pod("again", job)
    assert reader.see(job, running(one), running(two)) == [RunStarted("a", 1)]
    assert reader.see(failed(one, 3), again) == []
    assert reader.see(running(again)) == []
    assert reader.see(succeeded(two), succeeded(again), replace(job, end="Complete")) == [
        ended(RunEnd.EXITED, 0)
    ]


def test_it_fails_with_the_worst_exit_code_once_the_rest_of_its_gang_is_dead() -> None:
    reader, job = Reader(), a_job(parallelism=3)
    one, two, three = (a_pod(name, job) for name in ("one", "two", "three"))
    reader.see(job, running(one), running(two), running(three))
    over = replace(job, end="Failed", end_reason="BackoffLimitExceeded")
    assert reader.see(failed(one, 3), failed(two, 4), over) == []
    assert reader.see(replace(running(three), deleting=True)) == []
    assert reader.lose(replace(running(three), deleting=True)) == [ended(RunEnd.EXITED, 4)]


def test_pods_that_die_with_their_failed_job_have_no_say_in_its_exit_code() -> None:
    reader, job = Reader(), a_job(parallelism=2)
    over = replace(job, end="Failed", end_reason="BackoffLimitExceeded")
    killed = failed(a_pod("two", job), 143, deleting=True)
    assert reader.see(over, failed(a_pod("one", job), 3), killed)[-1] == ended(RunEnd.EXITED, 3)


def test_a_time_limit_is_told_in_kubernetes_words() -> None:
    job = a_job(end="Failed", end_reason="DeadlineExceeded", end_message="was active too long")
    told = ended(RunEnd.OUT_OF_TIME, 1, "DeadlineExceeded: was active too long")
    assert Reader().see(job) == [told]
    unready = failed(a_pod("p", job), None, reason="ContainerCreating")  # it was over before it began
    assert Reader().see(job, unready)[-1] == told


@pytest.mark.parametrize("bare", [False, True])
def test_so_is_the_limit_of_a_pod(bare: bool) -> None:
    """`activeDeadlineSeconds` of a pod: the kubelet ends it, and its Job fails for a pod that failed."""
    job = a_job(end="Failed", end_reason="BackoffLimitExceeded")
    late = {"code": 137, "reason": "DeadlineExceeded", "message": "it was active too long"}
    alone = a_pod("a-1", labels=job.labels, annotations={**job.annotations, **ADOPTED})
    job_id = adopted_id(alone.name, alone.uid)
    alone = replace(alone, labels={**alone.labels, names.JOB: job_id})
    told = Reader().see(failed(running(alone), **late) if bare else job, failed(a_pod(job=job), **late))
    key = (job_id if bare else "a", 1)
    assert told[-1] == ended(RunEnd.OUT_OF_TIME, 137, "DeadlineExceeded: it was active too long", key)


def test_so_is_a_container_that_was_killed() -> None:
    job = a_job(end="Failed", end_reason="BackoffLimitExceeded")
    told = Reader().see(job, failed(a_pod(job=job), 137, "OOMKilled"))
    assert told[-1] == ended(RunEnd.EXITED, 137, "OOMKilled")


@pytest.mark.parametrize("reason", ["Evicted", "OutOfcpu", "NodeLost", "Shutdown"])
def test_a_pod_whose_node_gave_its_place_away_makes_the_run_displaced(reason: str) -> None:
    job = a_job(end="Failed", end_reason="BackoffLimitExceeded")
    pod = failed(a_pod(job=job), None, reason, message="no room")
    assert Reader().see(job, pod) == [RunStarted("a", 1), ended(RunEnd.DISPLACED, None, f"{reason}: no room")]


@pytest.mark.parametrize(
    ("message", "how"),
    [
        ("failed to create shim task: context canceled: unknown", RunEnd.DISPLACED),
        ("failed to start container: context deadline exceeded", RunEnd.DISPLACED),
        ("runc create failed: namespace path: lstat /proc/13260/ns/ipc: no such file", RunEnd.DISPLACED),
        ('exec: "tran.py": executable file not found in $PATH', RunEnd.EXITED),
    ],
)
def test_so_does_a_runtime_that_gives_up_but_not_a_command_that_is_not_there(
    message: str, how: RunEnd
) -> None:
    job = a_job(end="Failed", end_reason="BackoffLimitExceeded")
    told = Reader().see(job, failed(a_pod(job=job), 128, "StartError", message=message))
    code = None if how is RunEnd.DISPLACED else 128
    assert told[-1] == ended(how, code, f"StartError: {message}")


def test_so_does_a_pod_that_was_deleted_whether_it_is_still_seen_or_not() -> None:
    job = a_job(end="Failed", end_reason="BackoffLimitExceeded")
    gone = Reader().see(job)
    assert gone == [ended(RunEnd.DISPLACED, None, "its pods were taken away")]
    seen = Reader().see(job, failed(a_pod(job=job), 143, deleting=True))
    assert [getattr(event, "end", None) for event in seen] == [None, RunEnd.DISPLACED]


def test_but_not_where_containers_are_restarted_in_place_for_there_the_job_controller_deletes() -> None:
    job = a_job(end="Failed", end_reason="BackoffLimitExceeded")
    assert Reader(restarts=True).see(job) == [ended(RunEnd.EXITED, 1)]


@pytest.mark.parametrize(
    ("done", "completions", "how"),
    [(0, 1, RunEnd.LOST), (1, 2, RunEnd.LOST), (1, 1, RunEnd.EXITED), (2, 2, RunEnd.EXITED)],
)
def test_a_job_is_complete_only_with_as_many_successes_as_it_needs(
    done: int, completions: int, how: RunEnd
) -> None:
    """A pod that never ran counts as succeeded with the Job controller."""
    job = a_job(end="Complete", completions=completions)
    good = [succeeded(a_pod(f"good-{number}", job)) for number in range(done)]
    told = Reader().see(job, failed(a_pod(job=job), None, NEVER_RAN, message="no start"), *good)
    lost = how is RunEnd.LOST
    assert told[-1] == ended(how, None if lost else 0, f"{NEVER_RAN}: no start" if lost else "")


def test_a_bare_pod_that_never_ran_is_lost() -> None:
    alone = a_pod("a-1", labels=a_job().labels, annotations={**a_job().annotations, **ADOPTED})
    job_id = adopted_id(alone.name, alone.uid)
    alone = replace(alone, labels={**alone.labels, names.JOB: job_id})
    told = Reader().see(running(alone), failed(alone, None, NEVER_RAN))
    assert told[-1] == ended(RunEnd.LOST, None, NEVER_RAN, (job_id, 1))


def test_one_pod_that_failed_by_itself_is_enough_for_a_failure() -> None:
    job = a_job(end="Failed", end_reason="BackoffLimitExceeded")
    evicted = failed(a_pod("one", job), None, "Evicted")
    assert Reader().see(job, evicted, failed(a_pod("two", job), 7))[-1] == ended(RunEnd.EXITED, 7)


@pytest.mark.parametrize("how", [RunEnd.STOPPED, RunEnd.DISPLACED])
def test_a_run_that_we_end_is_over_when_its_job_and_pods_are_gone(how: RunEnd) -> None:
    reader, job = Reader(), a_job()
    pod = running(a_pod(job=job))
    reader.see(job, pod)
    stopping = marked(job, how.value, deleting=True)
    assert reader.see(stopping, replace(pod, deleting=True)) == []
    assert reader.see(replace(stopping, end="Failed")) == [], "its pod lives"
    assert reader.lose(stopping) == []
    assert reader.lose(pod) == [ended(how)]


def test_what_succeeded_before_it_was_ended_has_succeeded() -> None:
    reader, job = Reader(), a_job()
    assert reader.see(marked(job, "stopped", end="Complete"))[-1] == ended(RunEnd.EXITED, 0)


def test_the_mark_of_an_earlier_run_and_marks_that_say_nothing_count_for_nothing() -> None:
    job = a_job(attempt=2, annotations={names.STOPPING: "1 stopped"}, parallelism=0)
    assert Reader().see(job) == []
    assert Reader().see(a_job(annotations={names.STOPPING: "1 nonsense"}, parallelism=0)) == []


def test_a_job_that_its_user_deletes_is_cancelled_at_once_and_ends_with_its_pods() -> None:
    reader, job = Reader(), a_job()
    pod = running(a_pod(job=job))
    reader.see(job, pod)
    assert reader.see(replace(job, deleting=True), replace(pod, deleting=True)) == []
    assert reader.see(replace(job, deleting=True, end="Failed")) == [], "that is for the pods it lost"
    assert reader.lose(job) == [CancelRequested("a")]
    assert reader.lose(pod) == [ended(RunEnd.STOPPED, None, DELETED)]


def test_objects_of_others_and_objects_that_wait_are_no_runs() -> None:
    reader = Reader()
    others = a_job(labels={names.CONTROLLER: "store-2"}, end="Failed")
    assert reader.see(others, a_job(attempt=None), a_pod(), a_pod("q", others)) == []
    assert reader.book.known() == frozenset()


@pytest.mark.parametrize("attempt", ["", "x", "²", "-1", "9" * 5000])
def test_nonsense_in_the_annotation_is_no_run(attempt: str) -> None:
    job = adopted(annotations={names.ATTEMPT: attempt}, end="Complete")
    assert Reader().see(job) == []


def test_a_job_whose_annotations_somebody_strips_off_stays_the_run_it_is() -> None:
    reader, job = Reader(), a_job()
    reader.see(job)
    assert reader.see(replace(job, annotations={}, labels={}, end="Complete"))[-1] == ended(RunEnd.EXITED, 0)


def test_a_copy_of_its_object_is_not_the_run() -> None:
    reader, job = Reader(), a_job()
    reader.see(job)
    assert reader.see(replace(job, uid="copy", name="copy", end="Complete")) == []
    assert reader.lose(replace(job, uid="copy")) == []
    assert reader.see(replace(job, end="Complete"))[-1] == ended(RunEnd.EXITED, 0)


def test_pods_that_outlive_their_job_are_known_by_their_marks() -> None:
    job = a_job()
    labels = {names.JOB: "a", names.CONTROLLER: ME}
    pod = running(a_pod(job=job, labels=labels, annotations={names.ATTEMPT: "1"}))
    reader = Reader()
    reader.see(pod, running(a_pod("other", a_job("b"))))
    assert reader.book.orphans() == {("a", 1)}
    assert reader.book.run_of(pod) == ("a", 1)
    reader.see(job)
    assert reader.book.orphans() == frozenset()


# --- whatever happens

STORIES = st.sampled_from(["success", "failure", "eviction", "stop", "withdrawal", "deletion"])


def story(kind: str, tasks: int) -> tuple[list[JobView | None], list[list[PodView | None]]]:
    """The states of a Job, and those of each of its pods, in their order; None: it is gone."""
    job = adopted(parallelism=tasks) if kind == "withdrawal" else a_job(parallelism=tasks)
    pods = [a_pod(f"p{rank}", job) for rank in range(tasks)]
    ends: dict[str, tuple[list[JobView | None], list[PodView | None]]] = {
        "success": ([replace(job, end="Complete")], [succeeded(pods[0])]),
        "failure": (
            [replace(job, end="Failed", end_reason="BackoffLimitExceeded")],
            [failed(pods[0], 7)],
        ),
        "eviction": (
            [replace(job, end="Failed", end_reason="BackoffLimitExceeded")],
            [failed(pods[0], None, "Evicted")],
        ),
        "stop": ([marked(job, "stopped"), marked(job, "stopped", deleting=True), None], [None]),
        "withdrawal": ([marked(job, "displaced", parallelism=0)], [None]),
        "deletion": ([replace(job, deleting=True), None], [None]),
    }
    of_job, of_pod = ends[kind]
    histories: list[list[PodView | None]] = []
    for pod in pods:
        last = [None if end is None else replace(end, name=pod.name, uid=pod.uid) for end in of_pod]
        histories.append([pod, running(pod), replace(running(pod), deleting=kind == "stop"), *last])
    return [job, *of_job], histories


EXPECTED = {
    "success": (RunEnd.EXITED, 0),
    "failure": (RunEnd.EXITED, 7),
    "eviction": (RunEnd.DISPLACED, None),
    "stop": (RunEnd.STOPPED, None),
    "withdrawal": (RunEnd.DISPLACED, None),
    "deletion": (RunEnd.STOPPED, None),
}


def play(histories: Sequence[Sequence[View | None]], draw: st.DataObject) -> tuple[Reader, list[RunEnded]]:
    """Tell them in any order that keeps each object's own, and look at any time."""
    reader, left, ends = Reader(), [list(history) for history in histories], []
    states: list[View | None] = [None] * len(left)
    # Pods are heard of before their end is; of a Job nobody says that it ended before they were made.
    for index in range(len(left)):
        states[index] = left[index].pop(0)
        reader._change(None, states[index])
    while any(left):
        index = draw.draw(st.sampled_from([i for i, states_left in enumerate(left) if states_left]))
        new = left[index].pop(0)
        reader._change(states[index], new)
        states[index] = new
        if draw.draw(st.booleans()):
            told = [event for event in reader.book.take_events() if isinstance(event, RunEnded)]
            alive = [s for s in states[1:] if isinstance(s, PodView) and not s.over]
            assert not (told and alive), "an end while a pod may be alive"
            ends += told
    ends += [event for event in reader.book.take_events() if isinstance(event, RunEnded)]
    return reader, ends


@settings(max_examples=25)
@given(STORIES, st.integers(1, 3), st.data())
def test_every_story_has_one_end_in_whatever_order_it_is_heard(
    kind: str, tasks: int, data: st.DataObject
) -> None:
    job, pods = story(kind, tasks)
    _, ends = play([job, *pods], data)
    assert [(end.end, end.exit_code) for end in ends] == [EXPECTED[kind]]


@settings(max_examples=25)
@given(STORIES.filter(lambda kind: kind not in ("stop", "deletion")), st.integers(1, 3), st.data())
def test_who_sees_only_what_is_left_tells_the_same_end(kind: str, tasks: int, data: st.DataObject) -> None:
    job, pods = story(kind, tasks)
    _, ends = play([job, *pods], data)
    left = [history[-1] for history in (job, *pods) if history[-1] is not None]
    told = Reader().see(*data.draw(st.permutations(left)))
    assert [event for event in told if isinstance(event, RunEnded)] == ends


@settings(max_examples=25)
@given(STORIES, st.integers(1, 3), st.data())
def test_nothing_is_remembered_of_what_is_gone(kind: str, tasks: int, data: st.DataObject) -> None:
    job, pods = story(kind, tasks)
    end = [history if history[-1] is None else [*history, None] for history in (job, *pods)]
    reader, _ = play(end, data)
    book = reader.book
    assert (book._units, book._by_uid, book._pods, book._news) == ({}, {}, {}, {})
