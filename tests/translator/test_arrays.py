"""One manifest that stands for an array of jobs."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from starburst.domain.job import Member
from translator.carried import Carried
from translator.errors import ManifestErrors
from translator.intake.rules import IntakeRules
from translator.intake.texts import read_manifests


def manifest(span: str | None = None, name: str = "sweep", **spec: Any) -> str:
    """A Job of one small task."""
    limits = {"cpu": "1"}
    container = {"name": "main", "image": "x", "command": ["true"], "resources": {"limits": limits}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    hints = {} if span is None else {"starburst.io/array": span}
    metadata = {"name": name, "annotations": hints}
    whole = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {**spec, "template": template},
    }
    return yaml.safe_dump(whole)


def read(text: str, *, native: bool = False) -> list[Any]:
    return read_manifests(text, "a.yaml", suffix=lambda: "x1y2z", taking=IntakeRules(native=native))


def refusal(text: str) -> str:
    with pytest.raises(ManifestErrors) as refused:
        read(text)
    return str(refused.value)


@pytest.mark.parametrize("native", [False, True])
def test_an_annotation_makes_jobs_that_differ_in_their_index_alone(native: bool) -> None:
    found = read(manifest("3-5%2"), native=native)
    assert [item.job.id for item in found] == ["sweep-x1y2z-3", "sweep-x1y2z-4", "sweep-x1y2z-5"]
    assert [item.job.name for item in found] == ["sweep-3", "sweep-4", "sweep-5"]
    assert [item.job.array for item in found] == [Member("sweep-x1y2z", n, 3, 2) for n in (3, 4, 5)]
    assert len({item.workload for item in found}) == 1
    assert (found[0].workload.manifest is not None) == native


def test_an_indexed_job_with_fewer_at_once_than_in_all_is_an_array_too() -> None:
    found = read(manifest(completionMode="Indexed", completions=4, parallelism=2))
    assert [item.job.array for item in found] == [Member("sweep-x1y2z", n, 4, 2) for n in range(4)]
    assert {len(item.job.tasks) for item in found} == {1}


def test_what_is_said_of_the_indexes_of_a_job_is_refused_for_an_array_of_them() -> None:
    """Servers take such fields of Indexed Jobs only, and each job of the array has a Job of its own."""
    turns: dict[str, Any] = {"completionMode": "Indexed", "completions": 4, "parallelism": 2}
    for key, value in (
        ("backoffLimitPerIndex", 1),
        ("maxFailedIndexes", 2),
        ("successPolicy", {"rules": [{"succeededIndexes": "0"}]}),
    ):
        with pytest.raises(ManifestErrors) as refused:
            read(manifest(**turns, **{key: value}), native=True)
        assert f"spec.{key}: is of the indexes of one Job" in str(refused.value)
    assert "spec.successPolicy: is of" in refusal(manifest(**turns, successPolicy={"rules": []}))
    at_once = {"rules": [{"succeededIndexes": "0"}]}
    (gang,) = read(manifest(**turns | {"parallelism": 4}, successPolicy=at_once, backoffLimitPerIndex=1))
    assert gang.workload.deciding == (0,)


@pytest.mark.parametrize("kind", ["annotations", "labels"])
def test_the_index_is_read_as_a_variable_as_no_job_of_an_array_is_an_indexed_one(kind: str) -> None:
    """From the annotation each of them had the index 0, or none."""
    source = {"fieldRef": {"fieldPath": f"metadata.{kind}['batch.kubernetes.io/job-completion-index']"}}
    turns: dict[str, Any] = {"completionMode": "Indexed", "completions": 4, "parallelism": 2}
    indexed = yaml.safe_load(manifest(**turns))
    pod = indexed["spec"]["template"]["spec"]
    pod["containers"][0]["env"] = [{"name": "JOB_COMPLETION_INDEX", "valueFrom": source}]
    assert len(read(yaml.safe_dump(indexed), native=True)) == 4, "Starburst sets this one"
    pod["containers"][0]["env"] = [{"name": "INDEX", "valueFrom": source}]
    files = {"downwardAPI": {"items": [{"path": "index", **source}]}}
    pod["volumes"] = [{"name": "a", **files}, {"name": "b", "projected": {"sources": [files]}}]
    with pytest.raises(ManifestErrors) as refused:
        read(yaml.safe_dump(indexed), native=True)
    lines = str(refused.value).splitlines()
    assert len(lines) == 3
    assert all("read $JOB_COMPLETION_INDEX in the command" in line for line in lines)
    indexed["spec"]["parallelism"] = 4
    assert len(read(yaml.safe_dump(indexed), native=True)[0].job.tasks) == 4, "a gang is an Indexed Job"


@pytest.mark.parametrize("tasks", [1, 2])
def test_an_array_that_reads_the_names_of_its_pods_stays_where_each_has_its_own(tasks: int) -> None:
    """On rented machines all its jobs had one name, and wrote what they name by it over one another's."""
    named = yaml.safe_load(manifest("0-3", parallelism=tasks, completions=tasks))
    source = {"fieldRef": {"fieldPath": "metadata.name"}}
    named["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "POD", "valueFrom": source}]
    rules = IntakeRules(native=True, carries=Carried())

    def stays() -> str:
        return str(read_manifests(yaml.safe_dump(named), "a", suffix=lambda: "x", taking=rules)[0].job.stays)

    assert stays() == "stays on the cluster: the names of pods"
    named["metadata"]["annotations"] = {}
    assert stays() == ""


def test_the_time_limit_of_an_indexed_job_counts_for_each_job_of_its_array_and_that_is_said() -> None:
    said = "spec.activeDeadlineSeconds: counts for each job of the array, not for all of them together"
    turns: dict[str, Any] = {"completionMode": "Indexed", "completions": 4, "parallelism": 2}
    first, *_ = read(manifest(**turns, activeDeadlineSeconds=60))
    assert (first.workload.time_limit_s, first.notes) == (60, (said,))
    first, *_ = read(manifest("0-3", activeDeadlineSeconds=60))
    assert (first.workload.time_limit_s, first.notes) == (60, ())


def test_an_indexed_job_that_runs_all_at_once_stays_a_gang() -> None:
    (found,) = read(manifest(completionMode="Indexed", completions=4, parallelism=4))
    assert (found.job.array, len(found.job.tasks)) == (None, 4)


def test_ids_of_an_arrays_jobs_are_labels_however_long_its_name() -> None:
    found = read(manifest("99990-99999", name="n" * 200))
    assert len({item.job.id for item in found}) == 10
    assert all(
        len(item.job.id) <= 63 and item.job.id.startswith(f"{item.job.array.array}-") for item in found
    )


@pytest.mark.parametrize("span", ["", "5", "9-3", "0-9%0", "0-100000", "99999-100000", "a-b", "-1-3"])
def test_what_is_no_span_is_refused_with_the_mend(span: str) -> None:
    assert "write the first and last index, such as 0-99" in refusal(manifest(span))


def test_a_hundred_thousand_jobs_are_the_most() -> None:
    assert len(read(manifest("0-99999"))) == 100_000
    told = refusal(manifest(completionMode="Indexed", completions=100_001, parallelism=2))
    assert "an array has at most 100000 jobs; submit several" in told


@pytest.mark.parametrize("native", [False, True])
def test_each_job_of_an_array_may_be_a_gang(native: bool) -> None:
    found = read(manifest("3-5%2", completionMode="Indexed", parallelism=2, completions=2), native=native)
    assert [item.job.array for item in found] == [Member("sweep-x1y2z", n, 3, 2) for n in (3, 4, 5)]
    assert {len(item.job.tasks) for item in found} == {2}


@pytest.mark.parametrize(
    "spec", [{"completionMode": "Indexed", "completions": 4, "parallelism": 2}, {"completions": 3}]
)
def test_the_tasks_of_an_arrays_job_run_at_once(spec: dict[str, Any]) -> None:
    with pytest.raises(ManifestErrors) as refused:
        read(manifest("0-9", **spec), native=True)
    assert "spec.completions: " in str(refused.value)
    assert "the tasks of an array's job run at once; make it equal parallelism" in str(refused.value)


def test_an_array_has_a_hundred_thousand_tasks_at_most() -> None:
    assert "an array has at most 100000 tasks in all" in refusal(manifest("0-999", parallelism=101))
    assert "parallelism: " in refusal(manifest("0-9", parallelism="two", completions=3))
