"""CronJobs on the command line: submitted, listed, explained, suspended, cancelled; what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from starburst.cli.backend.backend import Backend
from starburst.cli.jobs.cronjobs import steer_cron_jobs
from starburst.store import cron_jobs
from starburst.store.errors import DiskFullError
from tests.cli.conftest import Cli
from tests.cli.manifests import manifest
from tests.cli.past import Past
from translator.errors import ManifestErrors
from translator.intake.texts import read_firsts

EXAMPLE = Path(__file__).parents[2] / "configs" / "examples" / "cron-job.yaml"


def test_the_life_of_a_cron_job(cli: Cli, past: Past) -> None:
    told = cli("submit", EXAMPLE, "-o", "name")
    cron_job = told.out.strip()
    assert cron_job.startswith("cronjob/retrain-")
    assert past.store.requests(9) == []
    (row,) = json.loads(cli("cronjobs", "-o", "json").out)
    assert (row["schedule"], row["time_zone"], row["concurrency"]) == ("0 2 * * *", "Europe/Berlin", "Forbid")
    assert row["next_at"][11:19] in ("00:00:00", "01:00:00")
    assert cli("explain", cron_job).out.startswith(
        f"{row['id']} ticks at 0 2 * * * (Europe/Berlin); next on "
    )
    assert cli("hold", "cronjob/retrain").out == f"{cron_job} is suspended; its jobs go on\n"
    assert "suspended" in cli("cronjobs").out
    assert cli("release", "cronjob/retrain").out == f"{cron_job} ticks again\n"
    assert "note: replaces the CronJob of this name\n" in cli("submit", EXAMPLE).err
    assert cli("cancel", cron_job).out == f"{cron_job} is cancelled: it ticks no more\n"
    assert cron_jobs.every(past.store) == []
    gone = cli("explain", cron_job)
    assert (gone.code, gone.err.startswith("error: there is no CronJob")) == (2, True)


@pytest.mark.parametrize("schedule", ["@every 9999999999h", "*/00 2 * * *"])
def test_a_schedule_without_a_tick_on_the_calendar_is_refused(
    cli: Cli, past: Past, tmp_path: Path, schedule: str
) -> None:
    file = tmp_path / "never.yaml"
    file.write_text(EXAMPLE.read_text(encoding="utf-8").replace("0 2 * * *", schedule))
    told = cli("submit", file)
    assert told.code == 2
    assert "spec.schedule: " in told.err
    assert cron_jobs.every(past.store) == []


def test_a_cron_job_that_is_submitted_has_no_log_to_follow(cli: Cli, past: Past) -> None:
    told = cli("submit", "-f", EXAMPLE)
    assert (told.code, "submitted\n" in told.out) == (0, True)
    assert "note: a CronJob has no log; those of its jobs are shown by starburst logs -f JOB\n" in told.err


@pytest.mark.parametrize("now", [False, True])
def test_jobs_of_a_cancelled_cron_job_get_no_grace_if_none_is_asked_for(now: bool) -> None:
    asked: list[object] = []

    class Lab:
        """A backend with one CronJob, of which a job runs."""

        def steer_cron_job(self, how: str, name: str) -> dict[str, object]:
            asked.append((how, name))
            return {"id": "retrain-11111", "suspended": False, "jobs": ["retrain-2-22222"]}

        def cancel(self, names: list[str], *, now: bool) -> None:
            asked.append((names, now))

    told = steer_cron_jobs(cast(Backend, Lab()), "cancel", ["retrain"], now=now)
    assert [each.name for each in told] == ["retrain-11111", "retrain-2-22222"]
    assert asked == [("cancel", "retrain"), (["retrain-2-22222"], True)][: 1 + now]


def test_where_a_job_is_asked_for_a_cron_job_is_told_apart(cli: Cli, past: Past) -> None:
    told = cli("logs", "cronjob/retrain")
    assert told.err.startswith("error: cronjob/retrain: is a CronJob; name one of its jobs")


@pytest.mark.parametrize("verb", ["cancel", "hold", "release"])
@pytest.mark.parametrize("unknown", ["nosuch", "cronjob/nosuch"])
def test_nothing_is_asked_of_a_cron_job_if_what_is_named_beside_it_is_not_there(
    cli: Cli, past: Past, verb: str, unknown: str
) -> None:
    cli("submit", EXAMPLE, *(["--hold"] if verb == "release" else []))
    past.submit("a-11111")
    before = cron_jobs.every(past.store)
    told = cli(verb, "cronjob/retrain", "a", unknown)
    assert (told.code, told.out) == (2, "")
    assert "nosuch" in told.err
    assert cron_jobs.every(past.store) == before
    assert past.store.requests(9) == []


@pytest.mark.parametrize("choice", [("--all",), ("--queue", "x"), ("--user", "ada")])
def test_a_cron_job_and_a_choice_of_jobs_are_not_cancelled_at_once(
    cli: Cli, past: Past, choice: tuple[str, ...]
) -> None:
    """Else whoever cancels a CronJob and all jobs leaves the jobs running, and is told nothing of it."""
    cli("submit", EXAMPLE)
    told = cli("cancel", "cronjob/retrain", *choice, "--yes")
    assert told.err == "error: name jobs, or choose them with --user, --queue or --all; not both\n"
    assert len(cron_jobs.every(past.store)) == 1


def test_jobs_and_cron_jobs_of_a_file_are_stored_together_or_not_at_all(
    cli: Cli, past: Past, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else who submits the file again has its jobs twice."""
    file = tmp_path / "both.yaml"
    file.write_text(f"{manifest('once', 'true')}\n---\n{EXAMPLE.read_text()}")

    def put(*_: object) -> None:
        raise DiskFullError("starburst.db")

    with monkeypatch.context() as full:
        full.setattr(cron_jobs, "put", put)
        assert cli("submit", file).code == 2
    assert (past.store.requests(9), cron_jobs.every(past.store)) == ([], [])
    assert cli("submit", file).code == 0
    assert len(past.store.requests(9)) == len(cron_jobs.every(past.store)) == 1


def test_a_dry_run_says_what_the_job_of_a_tick_would_do(cli: Cli, past: Past) -> None:
    told = cli("submit", "--dry-run", EXAMPLE)
    assert told.out.startswith("retrain would ")
    assert "a job would be submitted at 0 2 * * *, not now" in told.err
    assert cron_jobs.every(past.store) == []


def test_two_of_one_name_are_refused_and_held_is_suspended(cli: Cli, past: Past) -> None:
    assert "give each a name of its own" in cli("submit", EXAMPLE, EXAMPLE).err
    cli("submit", "--hold", EXAMPLE)
    assert cron_jobs.find(past.store, "retrain").timing.suspended


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('"0 2 * * *"', '"0 25 * * *"', "spec.schedule: \"0 25 * * *\": hours: '25' is not from 0 to 23"),
        ("Europe/Berlin", "Berlin", 'spec.timeZone: "Berlin": there is no time zone Berlin'),
        ("Forbid", "forbid", 'spec.concurrencyPolicy: "forbid": must be Allow or Forbid or Replace'),
        ("14400", "soon", 'spec.startingDeadlineSeconds: "soon": must be a whole number'),
        (
            "jobTemplate",
            "template",
            "spec.template: is not a field of a CronJob spec; did you mean jobTemplate?",
        ),
        ("Never", "Always", 'spec.jobTemplate.spec.template.spec.restartPolicy: "Always": '),
    ],
)
def test_what_is_wrong_is_refused_by_its_own_path(old: str, new: str, line: str) -> None:
    with pytest.raises(ManifestErrors) as refused:
        read_firsts(EXAMPLE.read_text().replace(old, new), "cron", suffix=lambda: "a1b2c")
    assert line in str(refused.value)


def test_what_is_read_otherwise_is_noted() -> None:
    text = EXAMPLE.read_text().replace("timeZone: Europe/Berlin", "failedJobsHistoryLimit: 3")
    (item,) = read_firsts(text, "cron", suffix=lambda: "a1b2c")
    assert item.notes == (
        "spec.failedJobsHistoryLimit: jobs that ended stay in the listings, with their bills",
        "spec.timeZone: is not given; the schedule is read in UTC",
    )
    assert item.job.max_wait_s == 7200
