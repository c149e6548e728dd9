"""`starburst doctor` about the offers of a SkyPilot cloud, and `up`, which refuses to start without any."""
# ruff: noqa: F811 - fixtures

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from starburst.app.doctor import cloud_checks as module
from starburst.clouds.sky.quotas import AwsQuotas
from tests.cli.conftest import Cli
from tests.cli.test_cloud_checks import HEADER, ROWS, _installed, diagnose, of, prices  # noqa: F401
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.fake_line import Line


@pytest.mark.parametrize(
    ("config", "line"),
    [
        (
            {"regions": ["us-easst-1"]},
            "cloud.regions: no offer has us-easst-1; did you mean us-east-1?",
        ),
        (
            {"regions": [], "instance_types": ["dgx"]},
            "cloud.instance_types: no offer has dgx; there are c7i.xlarge, g5.xlarge, p3.2xlarge, p3.8xlarge",
        ),
        (
            {"regions": ["us-west-2"], "instance_types": ["p3.8xlarge"]},
            "none is left by cloud.regions, cloud.instance_types, cloud.spot; "
            "there would be 1 without cloud.regions, 2 without cloud.instance_types",
        ),
        (
            {"regions": ["us-west-2"], "spot": "only"},
            "none is left by cloud.regions, cloud.spot; "
            "there would be 1 without cloud.regions, 2 without cloud.spot",
        ),
        (
            {"regions": ["us-west-2"], "instance_types": ["p3.8xlarge"], "spot": "only"},
            "none is left by cloud.regions, cloud.instance_types, cloud.spot; "
            "there would be 5 without all of them",
        ),
    ],
)
def test_no_offers_is_a_failure_that_names_the_fields_which_leave_none(
    prices: Path, config: dict[str, Any], line: str
) -> None:
    assert of(diagnose(prices, **config, whole=False), "offers") == [("fail", line)]


def test_a_name_that_no_offer_has_and_prices_that_nobody_knows_are_told_beside_the_rest(prices: Path) -> None:
    types = ["g5.xlarge", "c7i.xlarge", "c7i.xlrge"]
    config = {"regions": ["us-west-2"], "instance_types": types}
    (status, line), *more = of(diagnose(prices, **config), "offers")
    assert (status, line) == (
        "ok",
        f"2 from {prices}: 2 types in 1 region, none with GPUs at a known price",
    )
    assert more == [
        ("warn", "cloud.instance_types: no offer has c7i.xlrge; did you mean c7i.xlarge?"),
        (
            "warn",
            "1 of 2 without a known price, which counts as dearer than any other; "
            "give them one in cloud.prices",
        ),
    ]
    assert len(of(diagnose(prices, **config, whole=False), "offers")) == 1


def test_prices_that_cannot_be_read_are_told_with_file_and_row(prices: Path) -> None:
    prices.write_text(HEADER + "p3.2xlarge,V100,1,eight,61,3.06,,us-east-1\n")
    told = f"{prices}, row 2: vCPUs: 'eight' is not an amount; write a number such as 4 or 0.5"
    assert of(diagnose(prices), "offers") == [("fail", told)]
    prices.unlink()
    told = f"{prices}: cannot be read (No such file or directory); name an existing file"
    assert of(diagnose(prices), "offers") == [("fail", told)]


# --- both sites -------------------------------------------------------------------------------------------


def test_up_tells_what_is_wrong_with_cluster_and_cloud_in_one_go(
    cli: Cli, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    monkeypatch.setattr(module, "SdkApi", lambda: Line(FakeSky(tmp_path, server_up=False)))
    config = tmp_path / "both.yaml"
    config.write_text("{cluster: {kind: kubernetes}, cloud: {kind: skypilot, prices: none.csv}}")
    told = cli("up", "--config", config)
    assert told.code == 2
    heads = [line.removeprefix("error: ").partition(": ")[0] for line in told.err.splitlines()]
    assert heads == ["kubeconfig", "api-server", "offers"]
    assert not (home / "starburst.db").exists(), "nothing has begun"
    bad = [line for line in cli("doctor", "-c", config).out.splitlines() if line.startswith("✗ ")]
    assert [f"error: {line.removeprefix('✗ ')}" for line in bad] == told.err.splitlines()


def test_an_empty_list_of_offers_is_no_cloud_which_is_no_mistake(cli: Cli, tmp_path: Path) -> None:
    config = tmp_path / "alone.yaml"
    config.write_text("cloud: {offers: []}")
    told = cli("doctor", "--config", config)
    assert (told.code, told.out.splitlines()[-1]) == (0, "✓ cloud: embedded, no offers")


def test_offers_above_a_quota_are_told(prices: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quotas = AwsQuotas(
        lambda _region: {"L-P": 8}, lambda kind, spot: None if spot or "p3" not in kind else "L-P"
    )
    monkeypatch.setattr(module, "AwsQuotas", lambda: quotas)
    ((status, line),) = of(diagnose(prices), "quotas")
    assert status == "warn"
    assert "aws/us-east-1/p3.8xlarge has 32 vCPUs, and AWS lets this account have 8 of such on-demand" in line
