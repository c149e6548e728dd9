"""The files of a packed cloud; whatever is wrong is named with file, line and column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sim.errors import SimulationError
from sim.packing.inputs import Kind
from sim.readers.packing import read_catalog, read_jobs, read_tasks, read_throughput, read_workloads
from starburst.domain.money import Money
from starburst.domain.resources import Resources

CATALOG = "name,family,gpu,cpu,ram_gb,usd_per_hour\n"
KINDS = {"w": Kind("w", 2.0)}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def put(text: str) -> Path:
        path = tmp_path / "given.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return put


Write = Callable[[str], Path]


def test_a_catalog_has_prices_to_the_micro_dollar_and_steps_that_add_up(write: Write) -> None:
    path = write(
        "name,family,gpu,vcpu,ram_gb,usd_per_hour,region,spot,acquire_delay_s,setup_delay_s,register_delay_s\n"
        "c7i.large,c7i,0,2,4,0.08925,us-east-1,true,7,98,65\n"
    )
    (machine,) = read_catalog(path)
    offer = machine.offer
    assert (offer.name, offer.family, offer.region, offer.spot) == ("c7i.large", "c7i", "us-east-1", True)
    assert (offer.resources, offer.price_per_hour) == (Resources.of(0, 2, 4), Money(89_250))
    assert (machine.acquire_s, offer.ready_s, machine.terminate_s) == (7, 170, 0)


def test_cpus_of_a_catalog_come_from_cpu_else_vcpu_unless_another_column_is_named(write: Write) -> None:
    path = write("name,family,gpu,cpu,vcpu,cpu_cores,ram_gb,usd_per_hour\nm,f,1,4,8,2,16,1\n")
    assert read_catalog(path)[0].offer.resources.cpus == 4
    assert read_catalog(path, cpu_column="cpu_cores")[0].offer.resources.cpus == 2


@pytest.mark.parametrize(
    ("row", "column", "value"),
    [
        ("m,f,1,4,16,0", "usd_per_hour", "0"),
        ("m,f,1,4,16,-1", "usd_per_hour", "-1"),
        ("m,f,1,4,16,nan", "usd_per_hour", "nan"),
        ("m,f,1,4,16,", "usd_per_hour", "''"),
        ("m,f,1,0,16,1", "cpu", "0"),
        ("m,f,1,4,0,1", "ram_gb", "0"),
        ("m,f,-1,4,16,1", "gpu", "-1"),
        ("m,f,0.5,4,16,1", "gpu", "0.5"),
        ("m,f,many,4,16,1", "gpu", "many"),
        ("m,,1,4,16,1", "family", "''"),
        (",f,1,4,16,1", "name", "''"),
        ("first,f,1,4,16,1", "name", "first"),
        ("m,f,1,4,16", "row", "5 cells"),
    ],
)
def test_a_bad_row_of_a_catalog_is_named(write: Write, row: str, column: str, value: str) -> None:
    path = write(f"{CATALOG}first,f,0,4,16,1\n{row}\n")
    with pytest.raises(SimulationError) as error:
        read_catalog(path)
    assert str(error.value).startswith(f"{path}:3: {column}: {value}: ")
    assert "\n" not in str(error.value)


def test_a_missing_column_and_an_empty_catalog_are_named(write: Write) -> None:
    with pytest.raises(SimulationError, match=r"given.csv:1: usd_per_hour: no such column"):
        read_catalog(write("name,family,gpu,cpu,ram_gb\nm,f,1,4,16\n"))
    with pytest.raises(SimulationError, match=r"given.csv: no rows"):
        read_catalog(write(CATALOG))


def test_tasks_ask_by_family_and_do_not_run_on_one_whose_cell_is_empty(write: Write) -> None:
    path = write("task_id,job_id,workload,gpu,cpu_p3,cpu_c7i,ram_gb\nt0,j,w,0,12,6,40\nt1,j,w,1,4,,24\n")
    first, second = read_tasks(path)
    assert (first.key, second.key, first.workload) == (("j", 0), ("j", 1), "w")
    assert first.demand("c7i") == Resources.of(0, 6, 40)
    assert second.demand("c7i") is None
    assert second.demand("r7i") is None


def test_tasks_without_families_run_on_all_and_are_jobs_of_their_own(write: Write) -> None:
    (task,) = read_tasks(write("task_id,gpu,cpu,ram_gb\nt0,2,8,24\n"))
    assert task.key == ("t0", 0)
    assert task.demand("any") == Resources.of(2, 8, 24)


def test_the_prefix_of_columns_by_family_can_be_another(write: Write) -> None:
    (task,) = read_tasks(write("task_id,gpu,cores.p3,ram_gb\nt0,2,8,24\n"), prefix="cores.")
    assert task.per_family == (("p3", Resources.of(2, 8, 24)),)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("task_id,gpu,cpu_p3,ram_gb\nt,1,-4,8\n", ":2: cpu_p3: -4: "),
        ("task_id,gpu,cpu_p3,ram_gb\nt,1,nan,8\n", ":2: cpu_p3: nan: "),
        ("task_id,gpu,cpu_p3,ram_gb\nt,1,,8\n", ":2: cpu_p3: '': "),
        ("task_id,gpu,cpu_p3,ram_gb\nt,1,4,8\nt,1,4,8\n", ":3: task_id: t: "),
        ("task_id,gpu,cpu_p3,cpu,ram_gb\nt,1,4,4,8\n", ":1: cpu: given besides cpu_p3: "),
        ("task_id,gpu,ram_gb\nt,1,8\n", ":1: cpu: no such column: "),
    ],
)
def test_a_bad_row_of_tasks_is_named(write: Write, text: str, place: str) -> None:
    path = write(text)
    with pytest.raises(SimulationError) as error:
        read_tasks(path)
    assert str(error.value).startswith(f"{path}{place}")


def test_jobs_come_in_order_of_arrival_and_keep_the_work_that_is_given(write: Write) -> None:
    path = write(
        "job_id,arrival_s,duration_s,workload,gpu,cpu,ram_gb,num_tasks,total_iters\n"
        "a,60,10,w,1,4,8,2,19\n"
        "b,30,0,w,1,4,8,1,0\n"
    )
    second, first = read_jobs(path, KINDS)
    assert (first.id, [task.key for task in first.tasks], first.iterations) == ("a", [("a", 0), ("a", 1)], 19)
    assert (second.id, second.iterations) == ("b", 0)


def test_a_workload_that_nobody_knows_is_named(write: Write) -> None:
    path = write("job_id,arrival_s,duration_s,workload,gpu,cpu,ram_gb\na,0,10,x,1,4,8\n")
    with pytest.raises(SimulationError, match=r"given.csv:2: workload: x: is no workload; there are w"):
        read_jobs(path, KINDS)


def test_workloads_and_pairs_are_read_and_checked(write: Write) -> None:
    kinds = read_workloads(
        write("workload,full_throughput_iters_per_s,kill_delay_s,upload_delay_s\nw,2.5,1,4\n")
    )
    assert (kinds["w"].pace, kinds["w"].move_s, kinds["w"].build_s) == (2.5, 5, 0)
    pairs = read_throughput(write("workload,colocated_with,throughput\na,b,0.9\nb,a,0.7\n"))
    assert (pairs.pair("a", "b"), pairs.pair("b", "a"), pairs.pair("a", "a")) == (0.9, 0.7, 0.95)
    with pytest.raises(SimulationError, match=r":2: throughput: 0: must be more than 0"):
        read_throughput(write("workload,colocated_with,throughput\na,b,0\n"))
    with pytest.raises(SimulationError, match=r":3: colocated_with: b: is given above for a"):
        read_throughput(write("workload,colocated_with,throughput\na,b,0.9\na,b,0.8\n"))
    with pytest.raises(SimulationError, match=r":2: full_throughput_iters_per_s: 0: must be more than 0"):
        read_workloads(write("workload,full_throughput_iters_per_s\nw,0\n"))
