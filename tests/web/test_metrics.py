"""/metrics: names that are kept, numbers that agree with the store, counters that never go back."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import delete

from starburst.core.model.decisions import REASONS
from starburst.core.model.events import (
    Event,
    InstanceGone,
    InstanceReady,
    LeaveRuled,
    RunEnd,
    RunEnded,
    RunStarted,
)
from starburst.domain.job import Member
from starburst.store import counters
from starburst.store import schema as t
from starburst.store.listings import queries
from starburst.store.listings.costs import costs
from starburst.store.store import Store
from starburst.web.context import AppContext
from starburst.web.routes.metrics import metrics
from tests.builders import job
from tests.store.samples import submission
from tests.web.lively import CONFIG, NOON, Lively
from tests.web.promtool import promtool
from tests.web.serving import served

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "starburst.rules.yaml"
#: Sample name and labels → value.
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(scope="module")
def lively(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lively]:
    with Lively.begin(tmp_path_factory.mktemp("metrics")) as it:
        it.morning()
        yield it


@pytest.fixture(scope="module")
def text(lively: Lively) -> str:
    return scrape(lively.app_context)


def scrape(app_context: AppContext) -> str:
    with served(metrics(app_context)) as url:
        answer = httpx.get(f"{url}/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return answer.text


def samples(text: str) -> Samples:
    return {
        (sample.name.removeprefix("starburst_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(found: Samples, name: str, **labels: str) -> float:
    return sum(v for (n, its), v in found.items() if n == name and labels.items() <= dict(its).items())


def test_promtool_finds_nothing_wrong_with_the_metrics(text: str) -> None:
    checked = subprocess.run(
        [promtool(), "check", "metrics"], check=False, input=text, capture_output=True, text=True
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_jobs_are_counted_as_the_store_lists_them(lively: Lively, text: str) -> None:
    found, jobs = samples(text), queries.summary(lively.app_context.store).jobs
    assert total(found, "pending_jobs") == jobs["queued"] > 0
    assert total(found, "running_jobs") == jobs["running"]
    assert total(found, "running_jobs", site="cloud") > 0
    assert total(found, "offloading_jobs") == jobs.get("offloading", 0)
    assert total(found, "kept_out_jobs") == jobs.get("held", 0) + jobs.get("blocked", 0)
    assert total(found, "overdue_jobs") == 0


def test_jobs_that_may_not_wait_yet_neither_wait_nor_leave(tmp_path: Path) -> None:
    with Lively.begin(tmp_path) as lively:
        arrays = [submission(name, array=Member(name, 0, 9, most)) for name, most in (("s", None), ("t", 2))]
        lively.app_context.store.submit(arrays, NOON)
        found = samples(scrape(lively.app_context))
    assert [total(found, f"{name}_jobs") for name in ("pending", "kept_out", "offloading")] == [9, 9, 0]


def test_jobs_that_should_have_left_and_cannot_are_overdue_whatever_became_of_their_deadline(
    tmp_path: Path,
) -> None:
    def overdue(home: Path, cloud: Mapping[str, object], *more: Event) -> float:
        with Lively.begin(home) as lively:
            lively.rent_from(cloud)
            lively.submit(job("huge", 64, max_wait_s=60.0), job("patient", 64, cloud="never"))
            lively.tell(*more, later_s=30.0)
            assert total(samples(scrape(lively.app_context)), "overdue_jobs") == 0
            lively.tell(later_s=90.0)
            return total(samples(scrape(lively.app_context)), "overdue_jobs")

    assert overdue(tmp_path / "small", CONFIG["cloud"]) == 1
    assert overdue(tmp_path / "kept", CONFIG["cloud"], LeaveRuled("huge", "may not")) == 0
    assert overdue(tmp_path / "none", {"kind": "none"}) == 0


def test_counters_agree_with_the_decision_log(lively: Lively, text: str) -> None:
    found, log = samples(text), queries.decisions(lively.app_context.store)
    for kind in REASONS:
        assert total(found, "decisions_total", kind=kind) == sum(row.kind == kind for row in log), kind
    assert total(found, "offloaded_jobs_total", reason="expired") == sum(
        row.kind == "offloaded" and row.numbers["why"] == "expired" for row in log
    )
    assert total(found, "returned_jobs_total") == sum(row.kind == "returning" for row in log) > 0
    assert total(found, "decision_log_seq") == log[-1].seq


def test_waits_run_from_submission_to_the_first_place_each_job_once(lively: Lively, text: str) -> None:
    found, waits = samples(text), dict[str, float]()
    arrived = {row.id: row.submitted_at for row in queries.jobs(lively.app_context.store)}
    for row in queries.decisions(lively.app_context.store):
        if row.kind in ("placed", "offloaded"):
            waits.setdefault(row.subject, row.at - arrived[row.subject])
    assert total(found, "admission_wait_time_seconds_count") == len(waits) > 50
    assert total(found, "admission_wait_time_seconds_sum") == pytest.approx(sum(waits.values()))
    assert total(found, "admission_wait_time_seconds_bucket", le="900.0") == sum(
        wait <= 900 for wait in waits.values()
    )


def test_how_long_steps_take_is_as_the_scheduler_kept_it(tmp_path: Path) -> None:
    with Lively.begin(tmp_path) as lively:
        assert total(samples(scrape(lively.app_context)), "step_duration_seconds_count", part="core") == 0
        kept = counters.StepDurations()
        for took_s in (0.002, 0.03, 70.0):
            kept.core.add(took_s)
        kept.commit.add(0.25)
        lively.app_context.store.set_fact(counters.STEPS, kept)
        found = samples(scrape(lively.app_context))
    for le, count in {"0.001": 0, "0.0025": 1, "0.05": 2, "10.0": 2, "+Inf": 3}.items():
        assert total(found, "step_duration_seconds_bucket", part="core", le=le) == count, le
    assert total(found, "step_duration_seconds_bucket", part="commit", le="0.25") == 1
    assert total(found, "step_duration_seconds_sum") == pytest.approx(70.282)


def test_settled_and_running_bills_are_what_starburst_cost_says(lively: Lively, text: str) -> None:
    found = samples(text)
    for row in costs(lively.app_context.store, "queue", NOON):
        settled = (row.micro_usd - row.running_micro_usd) / 1e6
        assert total(found, "cloud_cost_dollars_total", queue=row.name) == pytest.approx(settled)
        running = total(found, "cloud_unsettled_dollars", queue=row.name)
        assert running == pytest.approx(row.running_micro_usd / 1e6, abs=1e-3)
    rates = sum(m.rate.micro_usd for m in queries.instance_records(lively.app_context.store)) / 1e6
    assert total(found, "cloud_dollars_per_hour") == pytest.approx(rates)
    assert total(found, "cloud_dollars_per_hour_limit") == pytest.approx(
        12 * 3.06 + 8 * 12.24 + 2 * 24.48 + 10 * 0.09
    )


def test_a_bill_is_settled_and_running_from_the_first_machine_on_though_one_of_the_two_is_nothing(
    tmp_path: Path,
) -> None:
    """Else a first bill is no increase of the counter, and the sum of both is there by turns."""
    with Lively.begin(tmp_path) as lively:
        lively.rent_from(CONFIG["cloud"])
        lively.submit(job("train", 1, cloud="only", user="ada"))

        def bills() -> list[float]:
            found = samples(scrape(lively.app_context))
            key = (("queue", "default"), ("user", "ada"))
            return [found["cloud_cost_dollars_total", key], found["cloud_unsettled_dollars", key]]

        (machine,) = lively.scheduler.state.fleet.instances
        lively.tell(InstanceReady(machine, NOON), RunStarted("train", 1))
        lively.tell(later_s=3600.0)
        assert bills() == [0, pytest.approx(3.06)]
        lively.tell(RunEnded("train", 1, RunEnd.EXITED, 0), later_s=3600.0)
        lively.tell(InstanceGone(machine, NOON, NOON + 3600.0), later_s=3600.0)
        assert bills() == [pytest.approx(3.06), 0]


def test_the_packing_gap_is_there_once_machines_have_tasks(lively: Lively, tmp_path: Path) -> None:
    with served(metrics(lively.app_context)) as url:
        for _ in range(20):  # the first scrape may come before the proof
            found = samples(httpx.get(f"{url}/metrics").text)
            if ("packing_gap_ratio", ()) in found:
                break
    rate = total(found, "cloud_dollars_per_hour")
    # 18 GPUs, in seven pairs and a four, and three tasks without any: five p3.8xlarge hold them.
    assert total(found, "packing_gap_ratio") == pytest.approx(rate / (5 * 12.24) - 1)
    with Lively.begin(tmp_path) as empty:
        assert ("packing_gap_ratio", ()) not in samples(scrape(empty.app_context))


def test_an_hourly_cap_on_everybody_is_the_limit(tmp_path: Path) -> None:
    with Lively.begin(tmp_path) as lively:
        lively.cap({"usd": 40, "per": "hour"}, {"usd": 1, "per": "hour", "user": "ada"})
        assert total(samples(scrape(lively.app_context)), "cloud_dollars_per_hour_limit") == 40


def test_gpus_of_nodes_add_up_whatever_they_do(lively: Lively, text: str) -> None:
    found = samples(text)
    assert total(found, "nodes_gpus") == 28
    assert total(found, "nodes_gpus", state="unschedulable") == 4
    busy = 28 - sum(lively.scheduler.state.capacity.free(f"gpu-{n}").gpus for n in range(1, 5))
    assert total(found, "nodes_gpus", state="busy") + total(found, "nodes_gpus", state="reserved") == busy


def test_the_budget_is_that_of_the_calibrated_account(tmp_path: Path) -> None:
    with Lively.begin(tmp_path, budget_mode="calibrated") as lively:
        lively.morning()
        with served(metrics(lively.app_context)) as url:
            found = samples(httpx.get(f"{url}/metrics").text)
        spent = lively.scheduler.state.meter.account.spent_percent / 100
    assert total(found, "budget_target_ratio") == 0.25
    assert total(found, "budget_realised_ratio") == pytest.approx(spent, rel=0.05)
    assert spent > 0


def test_counters_do_not_go_back_when_log_and_jobs_are_pruned_and_all_is_started_anew(tmp_path: Path) -> None:
    with Lively.begin(tmp_path) as lively:
        lively.morning()
        before = samples(scrape(lively.app_context))
        with lively.app_context.store.write() as conn:
            conn.execute(delete(t.decisions).where(t.decisions.c.seq < 100))
            conn.execute(delete(t.jobs).where(t.jobs.c.phase == "succeeded"))
        lively.submit(job("late", 1))
        with Store.open(lively.app_context.home.database) as store:
            after = samples(scrape(AppContext(lively.app_context.home, store)))
    counters = [key for key in before if key[0].endswith(("_total", "_bucket", "_count"))]
    assert len(counters) > 40
    assert all(after[key] >= before[key] for key in counters)
    assert total(after, "decisions_total") > total(before, "decisions_total")


def test_an_empty_home_has_metrics_too(tmp_path: Path) -> None:
    with Lively.begin(tmp_path) as lively:
        found = samples(scrape(lively.app_context))
    assert total(found, "scheduler_up") == 0
    assert total(found, "decisions_total") == 0


def test_it_says_whether_a_scheduler_holds_the_home(lively: Lively) -> None:
    with lively.app_context.home.lock():
        assert total(samples(scrape(lively.app_context)), "scheduler_up") == 1


def test_alerts_and_the_grafana_dashboard_use_only_metrics_that_exist(text: str) -> None:
    known = {name for name, _ in samples(text)}
    rules = yaml.safe_load(RULES.read_text("utf-8"))
    alerts = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    board = json.loads((DEPLOY / "grafana" / "starburst.json").read_text("utf-8"))
    queries_ = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    used = {name for expr in [*alerts, *queries_] for name in re.findall(r"starburst_(\w+)", expr)}
    # These have no samples unless something failed or grew; their families are always there.
    families = set(re.findall(r"# TYPE starburst_(\w+)", text))
    assert used <= known | families, used - known - families
    assert {"scheduler_up", "pending_jobs", "cloud_dollars_per_hour_limit"} <= used


#: What each replica says, as all of them read one store.
EACH = {
    'pending_jobs{queue="q"}': "3x1600",
    "cloud_dollars_per_hour": "40x1600",
    'cloud_cost_dollars_total{queue="q",user="ada"}': "0+2x1600",
    'cloud_unsettled_dollars{queue="q",user="ada"}': "7x1600",
    "decision_log_seq": "0+5x1600",
    "packing_gap_ratio": "0.1x1600",
}


@pytest.mark.parametrize("leading", [{"a": 0, "b": 1}, {"a": None}])
def test_the_grafana_dashboard_counts_what_several_replicas_say_once(
    leading: Mapping[str, int | None], tmp_path: Path
) -> None:
    board = json.loads((DEPLOY / "grafana" / "starburst.json").read_text("utf-8"))
    shown = {panel["title"]: panel["targets"][-1]["expr"] for panel in board["panels"]}
    told = [
        {"series": f"starburst_{name}", "values": values}
        for replica, leads in leading.items()
        for name, values in {
            **{_of(replica, name): values for name, values in EACH.items()},
            **({} if leads is None else {_of(replica, "leading"): f"{leads}x1600"}),
        }.items()
    ]
    values = {
        "Waiting": 3,
        "Waiting by queue": 3,
        "Cloud, per hour": 40,
        "Cloud, settled in 24 h": 2880,
        "Bills by queue and user": 3007,
        "Decisions and failed launches per hour": 300,
        "Packing gap": 0.1,
    }
    asked = [
        {
            "expr": f"sum({shown[title]})",
            "eval_time": "1500m",
            "exp_samples": [{"labels": "{}", "value": value}],
        }
        for title, value in values.items()
    ]
    file = tmp_path / "board.test.yaml"
    file.write_text(
        yaml.safe_dump({"tests": [{"interval": "1m", "input_series": told, "promql_expr_test": asked}]})
    )
    done = subprocess.run(
        [promtool(), "test", "rules", str(file)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _of(replica: str, name: str) -> str:
    base, _, labels = name.rstrip("}").partition("{")
    return f'{base}{{instance="{replica}"{"," if labels else ""}{labels}}}'


def test_promtool_accepts_the_rules_and_they_fire_when_they_should() -> None:
    for arguments in (
        ["check", "rules", str(RULES)],
        ["test", "rules", str(RULES.parent / "starburst.test.yaml")],
    ):
        done = subprocess.run([promtool(), *arguments], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
