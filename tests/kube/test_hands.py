"""Hands on running jobs, on real kubelets: each command runs once, and the scheduler's restart finds it."""

from __future__ import annotations

import json
from pathlib import Path

from starburst.kube.resources import Object
from tests.kube.lab import Lab
from tests.kube.live import IMAGE, Live, applied_job, applied_pod, working

LABELS = ("starburst.io/job-", "starburst.io/controller-")
MEDDLED = ("submitted", "applied", "bare")


def test_hands_on_running_jobs_make_no_second_copy_and_no_loop(two_kubelets: Lab, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    script = "echo start >>{mark}; until [ -e {marks}/open ]; do sleep 0.2; done; echo end >>{mark}"
    told = {name: script.format(mark=marks / name, marks=marks) for name in (*MEDDLED, "again")}
    with working(two_kubelets, tmp_path) as running:
        submitted = applied_job("submitted", told["submitted"], gpus=2, volume=marks)
        (tmp_path / "job.json").write_text(json.dumps(submitted))
        running.run("submit", "job.json", "-o", "name")
        again = applied_job("again", told["again"], gpus=2, volume=marks)
        applied = applied_job("applied", told["applied"], gpus=2, volume=marks)
        running.apply([applied, again, applied_pod("bare", told["bare"], gpus=2, volume=marks)])

        def phases() -> dict[str, str]:
            """Of the jobs of each name, in the order of the alphabet."""
            found = sorted((job["phase"], job["name"]) for job in running.jobs())
            return {name: " ".join(phase for phase, its in found if its == name) for name in told}

        running.wait_for("all run", lambda: phases() == dict.fromkeys(told, "running"))
        running.wait_for("all have begun", lambda: len(list(marks.iterdir())) == len(told))
        meddle(running)
        running.kubectl("delete", "job", "again")
        running.apply([again])
        recreated = {**dict.fromkeys(MEDDLED, "running"), "again": "cancelled running"}
        running.wait_for("the one created again is another job", lambda: phases() == recreated)
        running.kill("starburst")
        running.up()
        running.wait_for("all that ran is found", lambda: phases() == recreated)

        (marks / "open").touch()
        over = {**dict.fromkeys(MEDDLED, "succeeded"), "again": "cancelled succeeded"}
        running.wait_for("all come to their end", lambda: phases() == over)
        assert {name: (marks / name).read_text() for name in told} == {
            **dict.fromkeys(MEDDLED, "start\nend\n"),
            "again": "start\nstart\nend\n",
        }
        attempts = {job["name"]: job["attempt"] for job in running.jobs()}
        assert set(attempts.values()) == {1}


def meddle(running: Live) -> None:
    """Another attempt, no labels, and a pod that claims to be one of theirs."""
    jobs = running.kubectl("get", "jobs", "-o", "name").split()
    pods = running.kubectl("get", "pods", "-o", "name").split()
    running.apply([forged(next(job["id"] for job in running.jobs() if job["name"] == "applied"))])
    running.kubectl("annotate", "--overwrite", *jobs, *pods, "starburst.io/attempt=99")
    running.kubectl("label", *jobs, *pods, *LABELS)


def forged(job_id: str) -> Object:
    """It ends at once, which is not the end of the job that it names."""
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["true"]}
    labels = {"starburst.io/job": job_id, "starburst.io/queue": "default"}
    metadata = {"name": "forged", "labels": labels, "annotations": {"starburst.io/attempt": "1"}}
    spec = {"nodeName": "node1", "restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
