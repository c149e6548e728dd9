"""Demands and capacities."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starburst.domain.resources import HOST_PORT, Resources, total
from tests.builders import job

NODE = Resources.of(gpus=8, cpus=96, memory_gib=768, gpu_type="V100")


def test_a_demand_fits_when_every_amount_does() -> None:
    assert Resources.of(gpus=8, cpus=96, memory_gib=768).fits(NODE)
    assert not Resources.of(gpus=9).fits(NODE)
    assert not Resources.of(cpus=96.001).fits(NODE)
    assert not Resources.of(memory_gib=769).fits(NODE)


def test_a_gpu_type_is_a_wish_of_a_demand_and_a_fact_of_a_capacity() -> None:
    assert Resources.of(gpus=1, gpu_type="V100").fits(NODE)
    assert not Resources.of(gpus=1, gpu_type="A100").fits(NODE)
    assert Resources.of(cpus=1, gpu_type="A100").fits(NODE), "no GPU, no type to mind"


def test_a_demand_may_take_any_of_several_gpu_types() -> None:
    assert Resources.of(gpus=1, gpu_type="A100 or V100").fits(NODE)
    assert not Resources.of(gpus=1, gpu_type="A100 or V100-32GB").fits(NODE)
    assert not Resources.of(gpus=1, gpu_type="A100 or H100").fits(Resources.of(gpus=8)), "of no known type"
    assert str(Resources.of(gpus=8, gpu_type="A100 or H100")) == "8 A100 or H100 GPUs"


def test_people_write_cores_and_gib_and_we_keep_integers() -> None:
    assert Resources.of(cpus=0.5, memory_gib=1.5) == Resources(0, 500, 1536)
    assert Resources.of(cpus=0.0004).cpu_milli == 0


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (Resources(), "nothing"),
        (Resources.of(gpus=1), "1 GPU"),
        (Resources.of(gpus=2, gpu_type="A100"), "2 A100 GPUs"),
        (Resources.of(cpus=1), "1 CPU"),
        (Resources.of(cpus=0.5), "0.5 CPUs"),
        (Resources.of(gpus=4, cpus=16, memory_gib=1.5), "4 GPUs, 16 CPUs, 1.5 GiB"),
    ],
)
def test_an_amount_reads_as_people_say_it(amount: Resources, text: str) -> None:
    assert str(amount) == text


def test_cpus_weigh_in_at_their_price_in_gpus() -> None:
    assert Resources.of(gpus=2, cpus=25).gpu_equivalents(50) == 2.5


amounts = st.builds(Resources, st.integers(0, 64), st.integers(0, 10**6), st.integers(0, 10**7))


@given(st.lists(amounts, max_size=5))
def test_a_total_holds_every_part(parts: list[Resources]) -> None:
    assert all(part.fits(total(parts)) for part in parts)
    assert total(parts).cpu_milli == sum(part.cpu_milli for part in parts)


def test_a_gang_needs_what_its_tasks_need() -> None:
    assert job(gang=(8, 8, 2), cpus=4).resources == Resources.of(gpus=18, cpus=12)


DISK = Resources(1, others=(("ephemeral-storage", 60 * 1024**3),))
PORT = Resources(1, others=((f"{HOST_PORT}TCP/80", 1),))


def test_other_resources_count_by_name_where_they_are_counted() -> None:
    there = Resources(8, others=(("ephemeral-storage", 100 * 1024**3), ("pods", 110)))
    assert DISK.fits(there)
    assert not DISK.fits(there - DISK)
    assert not Resources(others=(("example.com/fpga", 1),)).fits(there), (
        "a node has none of what it does not list"
    )
    assert DISK.fits(NODE), "an embedded node or a machine does not count them"
    assert DISK.fits(NODE - DISK)


def test_a_host_port_is_free_until_it_is_taken() -> None:
    there = Resources(8, others=(("pods", 110),))
    assert PORT.fits(there)
    assert not PORT.fits(there - PORT)
    assert PORT.fits(there - PORT + PORT)


def test_other_resources_are_told_by_name() -> None:
    assert str(DISK) == "1 GPU, 60 GiB ephemeral-storage"
    assert str(PORT) == "1 GPU, host port TCP/80"
    assert total([DISK, DISK, PORT]).others == (
        ("ephemeral-storage", 120 * 1024**3),
        (f"{HOST_PORT}TCP/80", 1),
    )
