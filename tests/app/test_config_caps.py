"""The section `caps`, the price of one machine and the price of the cluster, as they are written."""

from __future__ import annotations

import pytest

from starburst.app.config import Config, parse_config
from starburst.app.errors import UserError
from starburst.core.model.settings import Settings
from starburst.domain.money import Money
from starburst.policy.caps import Cap


def test_without_caps_the_core_is_told_of_none() -> None:
    assert Config().settings() == Settings()


def test_caps_are_as_they_are_written() -> None:
    written = [
        {"usd": 500, "per": "day"},
        {"usd": 100, "per": "month", "queue": "research", "then": "finish"},
        {"usd": 0.5, "per": "hour", "user": "ada", "warn_at": 0.5},
    ]
    assert parse_config({"caps": written}, "test").settings().caps == (
        Cap(Money.of(500), "day"),
        Cap(Money.of(100), "month", queue="research", then="finish"),
        Cap(Money.of("0.5"), "hour", user="ada", warn_at=0.5),
    )


def test_a_config_with_caps_survives_being_stored() -> None:
    config = parse_config({"caps": [{"usd": 20, "per": "day", "user": "ada"}]}, "test")
    assert parse_config(config.model_dump(mode="json"), "stored") == config


@pytest.mark.parametrize("cloud", [{}, {"kind": "skypilot"}])
def test_a_machine_may_cost_so_much_an_hour(cloud: dict[str, str]) -> None:
    config = parse_config({"cloud": {**cloud, "max_usd_per_hour": 12.5}}, "test")
    assert config.settings().max_rate == Money.of("12.5")


@pytest.mark.parametrize(
    ("written", "bound"), [({}, 25), ({"max_usd_on_failures": 3}, 3), ({"max_usd_on_failures": None}, None)]
)
def test_runs_that_fail_soon_may_cost_so_much(written: dict[str, int | None], bound: int | None) -> None:
    config = parse_config({"cloud": {"kind": "skypilot", **written}}, "test")
    assert config.settings().max_failing == (None if bound is None else Money.of(bound))


@pytest.mark.parametrize("cluster", [{}, {"kind": "kubernetes"}])
def test_the_cluster_has_a_price_for_reports(cluster: dict[str, str]) -> None:
    config = parse_config({"cluster": {**cluster, "usd_per_gpu_hour": 0.4}}, "test")
    assert config.cluster.usd_per_gpu_hour == 0.4
    assert config.settings() == Settings()


@pytest.mark.parametrize(
    ("caps", "problem"),
    [
        ({}, "caps: must be a list; begin each element with a dash"),
        ([{"per": "day"}], "caps[0].usd: is missing; add it"),
        ([{"usd": 5}], "caps[0].per: is missing; add it"),
        ([{"usd": -5, "per": "day"}], "caps[0].usd: -5: must be at least 0"),
        ([{"usd": 5, "per": "year"}], "caps[0].per: \"year\": must be 'hour', 'day', 'week' or 'month'"),
        ([{"usd": 5, "per": "day", "usr": "a"}], "caps[0].usr: there is no such field; did you mean user?"),
        (
            [{"usd": 5, "per": "day", "then": "panic"}],
            "caps[0].then: \"panic\": must be 'stop', 'return' or 'finish'",
        ),
        ([{"usd": 5, "per": "day", "warn_at": 80}], "caps[0].warn_at: 80: must be at most 1"),
        (
            [{"usd": 5, "per": "day"}, {"usd": 6, "per": "day", "then": "finish"}],
            "cap/day stands there twice; keep the smaller one",
        ),
    ],
)
def test_a_mistake_is_one_line_with_its_mend(caps: object, problem: str) -> None:
    with pytest.raises(UserError) as error:
        parse_config({"caps": caps}, "f.yaml")
    (line,) = str(error.value).splitlines()
    assert line.startswith("f.yaml: ")
    assert problem in line
