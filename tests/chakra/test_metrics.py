"""What Prometheus gets to read."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from chakra_plugin.metrics import Metrics


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def families(metrics: Metrics) -> dict[str, Metric]:
    text = generate_latest(metrics.registry).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def samples(metrics: Metrics) -> dict[str, float]:
    """Without the buckets, by name and result."""
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in families(metrics).values()
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_created"))
    }


def test_everything_is_there_from_the_start_at_zero(metrics: Metrics) -> None:
    assert samples(metrics) == {
        "chakra_scheduling_attempts_total scheduled": 0,
        "chakra_scheduling_attempts_total unschedulable": 0,
        "chakra_scheduling_attempts_total error": 0,
        "chakra_pod_scheduling_duration_seconds_count": 0,
        "chakra_pod_scheduling_duration_seconds_sum": 0,
        "chakra_scheduling_round_duration_seconds_count": 0,
        "chakra_scheduling_round_duration_seconds_sum": 0,
        "chakra_pending_pods": 0,
        "chakra_preemption_victims_total": 0,
        "chakra_leader": 0,
    }


def test_what_happens_is_counted_once_and_in_its_place(metrics: Metrics) -> None:
    metrics.scheduled(0.25)
    metrics.scheduled(0.5)
    metrics.unschedulable()
    metrics.bind_error()
    metrics.preempted(3)
    metrics.pending(7)
    metrics.pending(4)
    metrics.cycle_took(0.125)
    metrics.leader(True)
    assert samples(metrics) == {
        "chakra_scheduling_attempts_total scheduled": 2,
        "chakra_scheduling_attempts_total unschedulable": 1,
        "chakra_scheduling_attempts_total error": 1,
        "chakra_pod_scheduling_duration_seconds_count": 2,
        "chakra_pod_scheduling_duration_seconds_sum": 0.75,
        "chakra_scheduling_round_duration_seconds_count": 1,
        "chakra_scheduling_round_duration_seconds_sum": 0.125,
        "chakra_pending_pods": 4,
        "chakra_preemption_victims_total": 3,
        "chakra_leader": 1,
    }
    metrics.leader(False)
    assert samples(metrics)["chakra_leader"] == 0


def test_types_and_units_are_those_of_the_naming_rules(metrics: Metrics) -> None:
    found = families(metrics)
    assert {name: family.type for name, family in found.items() if not name.endswith("_created")} == {
        "chakra_scheduling_attempts": "counter",
        "chakra_pod_scheduling_duration_seconds": "histogram",
        "chakra_scheduling_round_duration_seconds": "histogram",
        "chakra_pending_pods": "gauge",
        "chakra_preemption_victims": "counter",
        "chakra_leader": "gauge",
    }
    assert all(family.documentation.endswith(".") for family in found.values() if family.type == "gauge")


def test_waits_are_told_apart_from_a_millisecond_to_minutes(metrics: Metrics) -> None:
    metrics.scheduled(300.0)
    wait = families(metrics)["chakra_pod_scheduling_duration_seconds"]
    edges = {float(sample.labels["le"]): sample.value for sample in wait.samples if "le" in sample.labels}
    assert min(edges) == 0.001
    assert (edges[262.144], edges[524.288]) == (0, 1)


def test_two_schedulers_in_one_process_do_not_mix(metrics: Metrics) -> None:
    metrics.unschedulable()
    assert samples(Metrics())["chakra_scheduling_attempts_total unschedulable"] == 0


@pytest.fixture
def port(metrics: Metrics) -> Iterator[int]:
    port, close = metrics.serve(0, "127.0.0.1")
    yield port
    close()


def test_they_are_served_over_http(metrics: Metrics, port: int) -> None:
    metrics.pending(12)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        read = list(text_string_to_metric_families(answer.read().decode()))
    assert [family.samples[0].value for family in read if family.name == "chakra_pending_pods"] == [12]


def test_a_port_that_is_taken_is_an_error_of_the_system(port: int) -> None:
    with pytest.raises(OSError, match="in use"):
        Metrics().serve(port, "127.0.0.1")


def test_the_page_of_metrics_names_them_all_and_no_others() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    explained = re.findall(r"^\| `(chakra_\w+?)(?:_total)?(?:\{\w+\})?`", page, re.MULTILINE)
    assert sorted(explained) == sorted(family.name for family in Metrics().registry.collect())
