"""activeDeadlineSeconds on real kubelets: commands that hang end at their limits, whoever notices them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kube.lab import Lab
from tests.kube.live import applied_job, working

LIMIT_S = 5
#: Six applied at once to an empty cluster: of those the controller of 1.20 overlooks some.
APPLIED = tuple(f"applied-{number}" for number in range(6))
SUBMITTED = ("submitted-0", "submitted-1")
#: Of the Job controller, and of Starburst where that overlooks the limit.
WORDS = {"DeadlineExceeded", "it was active for longer than its activeDeadlineSeconds"}


def test_hanging_commands_end_at_their_limits_and_no_wait_counts(two_kubelets: Lab, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    script = "echo start >>{mark}; sleep 300; echo end >>{mark}"
    made = {
        name: applied_job(name, script.format(mark=marks / name), gpus=2, volume=marks)
        for name in (*APPLIED, *SUBMITTED)
    }
    for manifest in made.values():
        manifest["spec"]["activeDeadlineSeconds"] = LIMIT_S
    late = applied_job("late", f"echo start >>{marks}/late; echo end >>{marks}/late", gpus=8, volume=marks)
    late["spec"]["activeDeadlineSeconds"] = 60
    with working(two_kubelets, tmp_path) as running:
        (tmp_path / "jobs.yaml").write_text("\n---\n".join(json.dumps(made[name]) for name in SUBMITTED))
        running.run("submit", "jobs.yaml", "-o", "name")
        running.apply([*(made[name] for name in APPLIED), late])  # it waits until a whole node is free

        def phases() -> dict[str, str]:
            return {job["name"]: job["phase"] for job in running.jobs()}

        over = {**dict.fromkeys(made, "failed"), "late": "succeeded"}
        running.wait_for("all have ended", lambda: phases() == over)
        why = {job["name"]: job["message"] for job in running.jobs() if job["name"] != "late"}
        assert {each.partition(":")[0] for each in why.values()} <= WORDS
        assert (marks / "late").read_text() == "start\nend\n"
        assert {path.name for path in marks.iterdir() if "end" in path.read_text()} == {"late"}
        running.wait_for(
            "their pods are gone", lambda: not alive(running.kubectl("get", "pods", "-o", "json"))
        )


def alive(pods: str) -> list[str]:
    """Names of pods whose commands may still run."""
    return [
        pod["metadata"]["name"]
        for pod in json.loads(pods)["items"]
        if pod["status"]["phase"] not in ("Succeeded", "Failed")
    ]
