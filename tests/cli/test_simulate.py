"""`simulate` and `advise`: what they say, what they write, what they refuse."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys

import pytest

from sim.reports import figures

KEYS = {
    *("cloud_cost", "cloud_cost_usd", "mean_jct_h", "mean_wait_h", "p90_jct_h", "p99_jct_h"),
    *("cluster_utilization", "system_utilization", "cloud_jobs", "jobs_counted", "returned_jobs"),
    *("p50_slowdown", "p90_slowdown", "p99_slowdown", "longest_wait_h", "classes", "users"),
    *("passed_jobs", "queues", "engine", "cpu_seconds", "jobs_per_cpu_second", "max_rss_mb", "seed", "spec"),
}
CLUSTER = ("--nodes", 1, "--gpus-per-node", 2, "--engine", "core")


@pytest.fixture
def jobs(tmp_path):
    """One-hour jobs of one GPU, four an hour: twice what two GPUs can do."""
    file = tmp_path / "jobs.csv"
    lines = [f"j{i},{i / 4},1,1" for i in range(40)]
    file.write_text("\n".join(["job_id,arrival_h,duration_h,gpus", *lines, ""]))
    return file


def one_line(answer):
    assert (answer.code, answer.out) == (2, "")
    (line,) = answer.err.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def test_the_best_possible_stands_beside_a_simulation(cli, jobs) -> None:
    words = ("simulate", jobs, "--nodes", 1, "--gpus-per-node", 2, "--engine", "core")
    told = json.loads(cli(*words, "--bound", "-o", "json").out)
    best = told["best_possible"]
    assert best["at_least"] <= best["possible"] <= told["cloud_cost"] <= best["no_wait"]
    assert best["possible_usd"] == pytest.approx(2.5 * best["possible"])
    assert "best possible  $" in cli(*words, "--bound").out
    assert one_line(cli(*words, "--bound", "--sweep", "budget=5,10")) == (
        "--bound: is for one simulation; leave out --sweep or --bound"
    )


def test_a_bound_on_slowdowns_holds_for_every_class_and_its_price_is_shown(cli, jobs) -> None:
    words = ("simulate", jobs, *CLUSTER, "--waiting", "constant", "--factor", 8)
    told = json.loads(cli(*words, "--max-slowdown", 2, "-o", "json").out)
    without = told["without_max_slowdown"]
    assert max(group["p99_slowdown"] for group in told["classes"]) <= 2 < without["p99_slowdown"]
    assert without["p99_slowdown"] == json.loads(cli(*words, "-o", "json").out)["p99_slowdown"]
    dearer = told["cloud_cost_usd"] - without["cloud_cost_usd"]
    assert f"costs ${dearer:,.2f} more than without it" in cli(*words, "--max-slowdown", 2).out
    assert one_line(cli(*words, "--max-slowdown", 0.5)) == "--max-slowdown: 0.5: must be at least 1"


def test_a_summary_for_people(cli, jobs):
    told = cli("simulate", jobs, *CLUSTER, "--waiting", "no-wait")
    assert (told.code, told.err) == (0, "")
    head, cost, cloud, *_ = told.out.splitlines()
    assert head == "No-Wait, FIFO, first-fit; 1 × 2 GPUs; 40 of 40 jobs count"
    assert cost == "cloud cost     20.000 GPU-hours, $50.00"
    assert cloud == "cloud jobs     20 (50.0%)"


@pytest.fixture
def two_queues(tmp_path):
    """A hundred jobs each of one hour and one GPU, all there at once."""
    file = tmp_path / "queues.csv"
    lines = [f"{queue}{i},0,1,1,{queue}" for i in range(100) for queue in ("a", "b")]
    file.write_text("\n".join(["job_id,arrival_h,duration_h,gpus,queue", *lines, ""]))
    return file


def test_queues_share_the_cluster_as_they_are_told_to(cli, two_queues):
    """Of what starts in the first twenty hours, 40 jobs, a has three quarters."""
    words = ("--waiting", "constant", "--factor", 20, "--order", "fair", "--out-of-order")
    told = json.loads(cli("simulate", two_queues, *CLUSTER, *words, "--share", "a=3", "-o", "json").out)
    (a, b) = told["queues"]
    assert (a["queue"], a["jobs"], b["queue"], b["jobs"]) == ("a", 100, "b", 100)
    assert a["cluster_gpu_hours"] == pytest.approx(3 * b["cluster_gpu_hours"], abs=4)
    assert a["cluster_gpu_hours"] + b["cluster_gpu_hours"] == 40
    assert (a["mean_wait_h"], a["cloud_cost"]) < (b["mean_wait_h"], b["cloud_cost"])
    even = json.loads(cli("simulate", two_queues, *CLUSTER, *words, "-o", "json").out)["queues"]
    assert even[0]["cluster_gpu_hours"] == even[1]["cluster_gpu_hours"] == 20
    assert "queue a        100 jobs, waiting mean" in cli("simulate", two_queues, *CLUSTER, *words).out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--share", "a=3"], "--share: has no effect under --order fifo; write --order fair"),
        (["--share", "a"], "--share: 'a': write a queue and its share, a number above 0, as in research=3"),
        (
            ["--share", "a=0"],
            "--share: 'a=0': write a queue and its share, a number above 0, as in research=3",
        ),
        (
            ["--order", "fair", "--share", "c=1"],
            "--share: 'c': no job is in it; the trace has the queues a, b",
        ),
    ],
)
def test_wrong_shares_are_named(cli, two_queues, words, message):
    assert one_line(cli("simulate", two_queues, *CLUSTER, *words)) == message


@pytest.mark.parametrize("engine", ["core", "array"])
def test_under_the_order_priority_those_of_the_trace_count(cli, tmp_path, engine):
    if engine == "array":
        pytest.importorskip("numba")
    file, out = tmp_path / "ranked.csv", tmp_path / "out.csv"
    file.write_text("job_id,arrival_h,duration_h,gpus,priority\na,0,1,1,0\nb,0.1,1,1,2\nc,0.1,1,1,9\n")
    words = ("--nodes", 1, "--gpus-per-node", 1, "--waiting", "infinite", "--order", "priority")
    answer = cli("simulate", file, *words, "--engine", engine, "--outcomes", out)
    assert (answer.code, answer.err) == (0, "")
    assert [row["start_h"] for row in csv.DictReader(out.read_text().splitlines())] == ["0.0", "2.0", "1.0"]


def test_a_trace_without_priorities_says_so_under_their_order(cli, jobs, past):
    past.morning()
    said = "names no priorities, so under the order priority the jobs go by arrival\n"
    told = cli("simulate", jobs, *CLUSTER, "--order", "priority")
    assert (told.code, told.err) == (0, f"note: {jobs}: {said}")
    assert cli("simulate", "--history", *CLUSTER, "--order", "priority").err == f"note: --history: {said}"


def test_json_has_the_promised_keys_and_every_option(cli, jobs):
    words = ("--factor", 0.5, "--out-of-order", "--queue-cap", 3, "--seed", 5, "--cloud-delay", 36)
    told = json.loads(cli("simulate", jobs, *CLUSTER, *words, "-o", "json").out)
    assert set(told) == KEYS
    assert (told["seed"], told["engine"], told["jobs_counted"]) == (5, "core", 40)
    spec = told["spec"]
    assert (spec["factor"], spec["out_of_order"], spec["queue_cap"], spec["cloud_delay_s"]) == (
        0.5,
        True,
        3,
        36,
    )


def test_star_wait_returns_after_t_max(cli, jobs):
    words = ("--waiting", "star", "--factor", 2, "--t-max", 0.5)
    told = json.loads(cli("simulate", jobs, *CLUSTER, *words, "-o", "json").out)
    assert told["returned_jobs"] > 0


def test_outcomes_tell_every_job(cli, jobs, tmp_path):
    file = tmp_path / "out.csv"
    told = json.loads(cli("simulate", jobs, *CLUSTER, "--outcomes", file, "-o", "json").out)
    with file.open() as lines:
        rows = list(csv.DictReader(lines))
    assert list(rows[0]) == [
        "job_id",
        "start_h",
        "end_h",
        "wait_h",
        "cloud",
        "charged",
        "returned",
        "passed",
        "node",
    ]
    assert [row["job_id"] for row in rows] == [f"j{i}" for i in range(40)]
    assert sum(float(row["charged"]) for row in rows) == told["cloud_cost"]
    assert all((row["cloud"] == "1") == (row["node"] == "-1") for row in rows)


def test_one_simulation_leaves_its_schedule_as_a_picture(cli, jobs, tmp_path):
    assert cli("simulate", jobs, *CLUSTER, "--out", tmp_path / "out").code == 0
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["gantt.svg", "outcomes.csv"]
    picture = (tmp_path / "out" / "gantt.svg").read_text()
    assert re.search(r">jobs\.csv: \d+ jobs on \d+ × \d+ GPUs</text>", picture)


def test_a_sweep_is_a_table_and_figures(cli, jobs, tmp_path):
    pytest.importorskip("matplotlib")
    words = ("--sweep", "nodes=1,2", "--sweep", "budget=25,100", "--out", tmp_path / "out")
    told = cli("simulate", jobs, *CLUSTER, *words)
    head, *rows = told.out.splitlines()
    assert head.split()[:2] == ["NODES", "BUDGET"]
    assert [row.split()[:2] for row in rows] == [["1", "25"], ["1", "100"], ["2", "25"], ["2", "100"]]
    files = {"cost-jct.png", "cost-jct.svg", "cost-load.png", "cost-load.svg", "gantt.svg", "results.csv"}
    assert {file.name for file in (tmp_path / "out").iterdir()} == files
    with (tmp_path / "out" / "results.csv").open() as lines:
        assert [row["sweep_budget"] for row in csv.DictReader(lines)] == ["25.0", "100.0"] * 2


def test_a_sweep_as_json(cli, jobs):
    rows = json.loads(
        cli("simulate", jobs, *CLUSTER, "--sweep", "waiting=no-wait,infinite", "-o", "json").out
    )
    assert [row["sweep"] for row in rows] == [{"waiting": "no-wait"}, {"waiting": "infinite"}]
    assert [row["saved_percent"] for row in rows] == [0, 100]
    assert set(rows[0]) == KEYS | {"sweep", "saved_percent", "jct_increase_percent", "load", "no_wait"}


def test_history_is_what_has_ended_here(cli, past):
    past.morning()
    told = json.loads(cli("simulate", "--history", *CLUSTER, "-o", "json").out)
    assert told["jobs_counted"] == 2, "done and bad; the others have not ended"
    assert told["mean_jct_h"] == 1


def test_history_is_simulated_with_the_estimates_that_its_jobs_had(cli, past):
    past.now -= 4 * 3600
    past.submit("told-1", runtime_estimate_s=7200.0)
    past.submit("mute-2")
    for job in ("told-1", "mute-2"):
        past.start(job)
    past.now += 3600
    for job in ("told-1", "mute-2"):
        past.end(job)
    words = ("simulate", "--history", *CLUSTER)
    assert "estimates      1 of 2 jobs had an estimate of their run time\n" in cli(*words).out
    asked = {"given": (), "none": ("--runtime-estimates", "none"), "right": ("--runtime-estimates", "right")}
    for kind, more in asked.items():
        spec = json.loads(cli(*words, *more, "-o", "json").out)["spec"]
        assert spec["runtime_estimates"] == kind
    assert json.loads(cli(*words, "--estimate-error", 5, "-o", "json").out)["spec"]["estimate_error"] == 5


def test_advice_is_four_sentences_a_table_and_a_picture(cli, jobs, tmp_path):
    pytest.importorskip("matplotlib")
    told = cli("advise", jobs, "--nodes", 1, "--gpus-per-node", 2, "--out", tmp_path / "out")
    advice, table, who_pays = told.out.split("\n\n")
    first, second, third, fourth = advice.splitlines()
    head, *rows = table.splitlines()
    assert first.startswith("Without waiting, 40 jobs on 1 × 2 GPUs would have cost $50 in the cloud")
    assert second.startswith("Choose P = ")
    assert third.startswith("P = ")
    assert re.match(
        r"This takes every run time as known .*; if no job had an estimate, P = \d+ % would", fourth
    )
    assert head.startswith("BUDGET")
    assert [row.split()[0] for row in rows] == ["5", "10", "25", "50", "100"]
    assert re.match(r"Who pays at P = \d+ %:\nslowdown +p50 1", who_pays)
    assert "1 GPU  " in who_pays
    assert (tmp_path / "out" / "cost-jct.png").is_file()


def test_advice_as_json(cli, jobs):
    told = json.loads(cli("advise", jobs, "--nodes", 1, "--gpus-per-node", 2, "-o", "json").out)
    assert told["advised_budget"] in (5, 10, 25, 50, 100)
    assert len(told["sentences"]) == 4
    assert told["other_estimates"]["spec"]["runtime_estimates"] == "none"
    assert told["other_estimates"]["spec"]["budget_percent"] == told["advised_budget"]
    assert [row["sweep"]["budget"] for row in told["budgets"]] == [5, 10, 25, 50, 100]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--waiting", "compte"], "--waiting: 'compte': did you mean compute? choose one of "),
        (["--order", "x"], "--order: 'x': choose one of fifo, sjf, edf, priority"),
        (["--engine", "gpu"], "--engine: 'gpu': choose one of auto, core, array"),
        (["--factor", "nan"], "--factor: nan: must be a finite number"),
        (["--no-short-jobs", "-1"], "--no-short-jobs: -1.0: must be at least 0"),
        (["--factor", "1", "--budget", "5"], "--factor: has no effect beside --budget; leave one out"),
        (["--backfill", "--out-of-order"], "--backfill: is for a strict queue"),
        (["--warmup", "20"], "--warmup: 20: off both ends leaves none of the trace's 40 jobs"),
        (["--waiting", "star"], "--waiting: star waits after a return only; give --t-max"),
        (["--budget", "50", "--sweep", "factor=1,2"], "--budget: has no effect beside --sweep factor=…"),
        (["--sweep", "x=1"], "--sweep: 'x=1': write OPTION=VALUE"),
        (["--sweep", "budget=5", "--outcomes", "o.csv"], "--outcomes: is for one simulation"),
        (["--on", "head:10001", "--sweep", "budget=5"], "--on: 'head:10001': write ray://HOST:PORT"),
        (["--on", "ray://head:10001"], "--on: is for a grid of simulations without a packer; give --sweep"),
        (["--history"], "give either JOBS or --history"),
        (["--outcomes", "/proc/no/o.csv"], "--outcomes: /proc/no/o.csv: "),
        (["--out", "/proc/no"], "--out: /proc/no: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_gets_one_line(cli, jobs, words, said):
    assert one_line(cli("simulate", jobs, *words)).startswith(said)


def test_a_published_trace_is_fitted_to_each_cluster_of_a_grid(cli, tmp_path):
    file = tmp_path / "pods.csv"
    head = "name,num_gpu,cpu_milli,memory_mib,gpu_milli,creation_time,scheduled_time,deletion_time"
    rows = [f"p{i},{gpus},1000,0,1000,{i},{i},{i + 3600}" for i, gpus in enumerate((1, 1, 1, 4))]
    file.write_text("\n".join([head, *rows, ""]))
    words = ("simulate", file, "--nodes", 2, "--waiting", "no-wait", "-o", "json")
    swept = json.loads(cli(*words, "--sweep", "gpus-per-node=2,4").out)
    alone = [json.loads(cli(*words, "--gpus-per-node", gpus).out) for gpus in (2, 4)]
    assert [each["cloud_jobs"] for each in alone] == [1, 0], "the large one has a node of four to itself"
    assert [point["cloud_jobs"] for point in swept] == [1, 0]
    assert cli("simulate", file, "--nodes", 2, "--out", tmp_path).code == 0
    assert ">pods.csv: 4 jobs on 2 × 8 GPUs<" in (tmp_path / "gantt.svg").read_text()


def test_a_calibrated_budget_is_kept_to_with_a_factor_too(cli, jobs):
    words = ("simulate", jobs, *CLUSTER, "--factor", 1, "--budget-mode", "calibrated")
    told = [json.loads(cli(*words, "--budget", percent, "-o", "json").out) for percent in (5, 50)]
    assert told[0]["mean_jct_h"] < told[1]["mean_jct_h"]
    swept = json.loads(cli(*words, "--sweep", "budget=5,50", "-o", "json").out)
    assert [point["mean_jct_h"] for point in swept] == [each["mean_jct_h"] for each in told]
    assert cli(*words, "--budget", 5).out.startswith("Compute-Wait, α 1, P 5 %, FIFO, ")
    at_5 = cli(*words[:-4], "--budget-mode", "calibrated", "--budget", 5, "--sweep", "factor=1", "-o", "json")
    assert json.loads(at_5.out)[0]["mean_jct_h"] == told[0]["mean_jct_h"]


def test_a_job_that_no_node_holds_is_named(cli, jobs):
    jobs.write_text("job_id,arrival_h,duration_h,gpus\nbig,0,1,9\n")
    assert "big" in one_line(cli("simulate", jobs, "--nodes", 1, "--gpus-per-node", 8))


@pytest.mark.parametrize("command", ["simulate", "advise"])
def test_memory_runs_short_where_that_of_a_node_is_given(cli, tmp_path, command):
    file = tmp_path / "large.csv"
    lines = [f"j{i},0,1,1,100" for i in range(2)]
    file.write_text("\n".join(["job_id,arrival_h,duration_h,gpus,memory_gib", *lines, ""]))
    words = ("--nodes", 1, "--gpus-per-node", 2, "--waiting", "runtime", "-o", "json")
    enough, short = (
        json.loads(cli(command, file, *words, *more).out) for more in ((), ("--memory-gib-per-node", 150))
    )
    if command == "advise":
        enough, short = enough["budgets"][0], short["budgets"][0]
    assert [told["cloud_jobs"] for told in (enough, short)] == [0, 1]
    assert short["spec"]["memory_gib_per_node"] == 150


@pytest.mark.parametrize("sizes", ["16,256", "256,16"])
def test_every_cluster_of_a_grid_must_hold_the_jobs(cli, tmp_path, sizes):
    """Whatever they are swept over; what does not fit would leave at once, and nobody would say so."""
    file = tmp_path / "large.csv"
    file.write_text("job_id,arrival_h,duration_h,gpus,memory_gib\nbig,0,1,1,100\n")
    said = one_line(cli("simulate", file, *CLUSTER, "--sweep", f"memory-gib-per-node={sizes}"))
    assert "memory_gib per node: 100 (id big): there are 16 a node" in said


def test_jobs_that_are_not_said_or_not_there(cli, tmp_path):
    assert one_line(cli("simulate")) == "give either JOBS or --history"
    assert str(tmp_path / "no.csv") in one_line(cli("simulate", tmp_path / "no.csv"))
    assert (
        one_line(cli("advise", "--history")) == "--history: no job has finished here yet; give JOBS, a trace"
    )


def test_advice_needs_a_policy_with_a_budget(cli, jobs):
    assert (
        one_line(cli("advise", jobs, "--waiting", "infinite"))
        == "--waiting: 'infinite': has no budget to choose"
    )


def test_figures_are_asked_for_before_the_work(cli, jobs, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    told = one_line(cli("simulate", jobs, "--sweep", "budget=5", "--out", tmp_path / "out"))
    assert told == "--out: figures need matplotlib: pip install starburst-hybrid[plots]"


@pytest.mark.processes
@pytest.mark.parametrize(
    "words", [("advise",), ("simulate", "--sweep", "budget=5,10")], ids=["advise", "a sweep"]
)
def test_a_picture_that_cannot_be_written_is_named_and_what_was_simulated_is_told(cli, jobs, tmp_path, words):
    pytest.importorskip("matplotlib")
    taken = tmp_path / "out" / "cost-jct.svg"
    taken.mkdir(parents=True)
    command, *others = words
    told = cli(command, jobs, *others, "--nodes", 1, "--gpus-per-node", 2, "--out", taken.parent)
    assert told.code == 2
    assert told.err.splitlines()[-1] == f"error: --out: {taken}: Is a directory; choose another directory"
    assert "CLOUD GPU-H" in told.out


def test_other_commands_do_not_wait_for_numpy():
    program = (
        "import sys; sys.argv = ['starburst', 'status', '--help']\n"
        "from starburst.cli.main import run\n"
        "try: run()\n"
        "finally: print(sorted({'numpy', 'matplotlib'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
