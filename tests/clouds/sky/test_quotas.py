"""Offers above a quota of the account are barred; what AWS does not tell bars nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from starburst.clouds.sky import quotas as module
from starburst.clouds.sky.quotas import (
    AT_A_TIME,
    READ_S,
    AwsQuotas,
    GcpQuotas,
    gcp_quotas,
    timed_http,
    within_quotas,
)
from starburst.domain.cloud import Offer
from starburst.domain.resources import Resources

CODES = {("p3.8xlarge", False): "L-P", ("p3.8xlarge", True): "L-P-SPOT"}


def an_offer(spot: bool = False, region: str = "us-east-1", cloud: str = "aws") -> Offer:
    name = f"{cloud}/{region}/p3.8xlarge{'/spot' if spot else ''}"
    return Offer(name, Resources.of(4, 32, 244, "V100"), None, region, spot, cloud=cloud)


def barred(told: Mapping[str, float], offer: Offer) -> str:
    (found,) = AwsQuotas(lambda _region: told, lambda kind, spot: CODES.get((kind, spot))).applied([offer])
    return found.barred


@pytest.mark.parametrize(
    ("told", "offer", "is_barred"),
    [
        ({"L-P": 0}, an_offer(), True),
        ({"L-P": 31}, an_offer(), True),
        ({"L-P": 32}, an_offer(), False),
        ({"L-P": 0, "L-P-SPOT": 64}, an_offer(spot=True), False),
        ({"L-P": 0}, an_offer(spot=True), False),
        ({"L-P": 0}, an_offer(cloud="gcp"), False),
        ({}, an_offer(), False),
    ],
)
def test_an_offer_is_barred_if_one_machine_is_above_its_quota(
    told: dict[str, float], offer: Offer, is_barred: bool
) -> None:
    assert bool(barred(told, offer)) == is_barred


def test_why_is_said_with_the_numbers_and_the_quotas_code() -> None:
    assert barred({"L-P": 8}, an_offer()) == (
        "aws/us-east-1/p3.8xlarge has 32 vCPUs, and AWS lets this account have 8 of such on-demand machines "
        "in us-east-1 (quota L-P)"
    )


def test_each_region_is_asked_once_a_reading_and_the_last_answer_counts_while_there_is_none() -> None:
    asked: list[str] = []

    def ask(region: str) -> dict[str, float]:
        asked.append(region)
        if region == "us-west-2" or len(asked) > 2:
            raise ConnectionError("no route to host")
        return {"L-P": 0}

    quotas = AwsQuotas(ask, lambda kind, spot: CODES.get((kind, spot)))
    offers = [an_offer(), an_offer(spot=True), an_offer(region="us-west-2")]
    assert [bool(offer.barred) for offer in quotas.applied(offers)] == [True, False, False]
    assert sorted(asked) == ["us-east-1", "us-west-2"]
    assert [bool(offer.barred) for offer in quotas.applied(offers)] == [True, False, False]


def test_why_quotas_are_unknown_is_said_without_the_page_that_came() -> None:
    def ask(region: str) -> dict[str, float]:
        raise ConnectionError("error (500) of ListServiceQuotas: <!doctype html> <html>...</html>")

    with capture_logs() as said:
        AwsQuotas(ask, lambda kind, spot: None).applied([an_offer()])
    assert [line["error"] for line in said] == ["us-east-1: error (500) of ListServiceQuotas"]


def test_pages_of_aws_are_read_and_what_is_malformed_in_them_is_unknown() -> None:
    pages = [{"Quotas": [{"QuotaCode": "L-1", "Value": 8.0}, {"QuotaCode": "L-2"}]}, {}, {"Quotas": [{}]}]
    assert dict(module._values(pages)) == {"L-1": 8.0}


# --- GCP -------------------------------------------------------------------------------------------------


def a_gcp_offer(gpus: int = 1, gpu_type: str = "A100", *, spot: bool = False, kind: str = "a2") -> Offer:
    name = f"gcp/us-central1/{kind}-{gpus}g{'/spot' if spot else ''}"
    return Offer(name, Resources.of(gpus, 12, 85, gpu_type), None, "us-central1", spot, cloud="gcp")


@pytest.mark.parametrize(
    ("told", "offer", "is_barred"),
    [
        ({"NVIDIA_A100_GPUS": 0.0}, a_gcp_offer(), True),
        ({"NVIDIA_A100_GPUS": 7.0}, a_gcp_offer(8), True),
        ({"NVIDIA_A100_GPUS": 8.0}, a_gcp_offer(8), False),
        ({"NVIDIA_A100_80GB_GPUS": 0.0, "NVIDIA_A100_GPUS": 9.0}, a_gcp_offer(1, "A100-80GB"), True),
        ({"NVIDIA_A100_GPUS": 0.0}, a_gcp_offer(1, "H100"), False),
        ({"NVIDIA_A100_GPUS": 0.0}, a_gcp_offer(0, ""), False),
        ({"NVIDIA_A100_GPUS": 0.0, "PREEMPTIBLE_NVIDIA_A100_GPUS": 1.0}, a_gcp_offer(spot=True), False),
        ({"NVIDIA_A100_GPUS": 1.0, "PREEMPTIBLE_NVIDIA_A100_GPUS": 0.0}, a_gcp_offer(spot=True), False),
        ({"NVIDIA_A100_GPUS": 0.0, "PREEMPTIBLE_NVIDIA_A100_GPUS": 0.0}, a_gcp_offer(spot=True), True),
        ({"PREEMPTIBLE_NVIDIA_A100_GPUS": 1.0, "NVIDIA_A100_GPUS": 0.0}, a_gcp_offer(), True),
        ({"NVIDIA_H100_GPUS": 0.0}, a_gcp_offer(8, "H100", kind="a3-highgpu"), False),
        ({"PREEMPTIBLE_NVIDIA_H100_GPUS": 0.0}, a_gcp_offer(8, "H100", kind="a3-highgpu", spot=True), True),
        ({"PREEMPTIBLE_NVIDIA_H100_GPUS": 0.0}, a_gcp_offer(8, "H100", kind="a3-megagpu", spot=True), False),
        (
            {"PREEMPTIBLE_NVIDIA_H100_MEGA_GPUS": 7.0},
            a_gcp_offer(8, "H100", kind="a3-megagpu", spot=True),
            True,
        ),
        ({}, a_gcp_offer(), False),
    ],
)
def test_an_offer_of_gcp_is_barred_if_it_has_more_gpus_than_the_project_may_have(
    told: dict[str, float], offer: Offer, is_barred: bool
) -> None:
    (found,) = GcpQuotas(lambda _region: told).applied([offer])
    assert bool(found.barred) == is_barred


def test_each_cloud_is_asked_for_its_own_regions_and_says_which_quota_is_short() -> None:
    asked: list[str] = []

    def ask(told: dict[str, float]) -> Callable[[str], dict[str, float]]:
        return lambda region: (asked.append(region), told)[1]

    quotas = (AwsQuotas(ask({"L-P": 0}), lambda *_: "L-P"), GcpQuotas(ask({"NVIDIA_A100_GPUS": 0})))
    aws, gcp, other = within_quotas([an_offer(), a_gcp_offer(), an_offer(cloud="azure")], quotas)
    assert asked == ["us-east-1", "us-central1"]
    assert (bool(aws.barred), other.barred) == (True, "")
    assert gcp.barred == (
        "gcp/us-central1/a2-1g has 1 GPUs, and GCP lets this project have 0 of them in us-central1 "
        "(quota NVIDIA_A100_GPUS)"
    )


class FakeCompute:
    """GCP's client: each call returns it, the last one an answer."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.asked: dict[str, str] = {}

    def regions(self) -> FakeCompute:
        return self

    def get(self, **asked: str) -> FakeCompute:
        self.asked = asked
        return self

    def execute(self, num_retries: int) -> object:
        return self.answer


def test_a_cloud_that_is_out_of_reach_is_not_asked_region_by_region() -> None:
    asked = []

    def away(region: str) -> dict[str, float]:
        asked.append(region)
        raise TimeoutError("timed out")

    regions = [f"r{number:02}" for number in range(3 * AT_A_TIME)]
    GcpQuotas(away).applied([replace(a_gcp_offer(), region=region) for region in regions])
    assert sorted(asked) == regions[:AT_A_TIME]


def test_a_region_that_does_not_answer_keeps_nobody_from_asking_the_others() -> None:
    asked = []

    def partly(region: str) -> dict[str, float]:
        asked.append(region)
        if region == "r00":
            raise PermissionError("not enabled")
        return {}

    regions = [f"r{number:02}" for number in range(3 * AT_A_TIME)]
    GcpQuotas(partly).applied([replace(a_gcp_offer(), region=region) for region in regions])
    assert sorted(asked) == regions


def test_google_is_given_as_little_time_as_amazon(monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = object()
    monkeypatch.setattr("google.auth.default", lambda scopes: (credentials, "project"))
    http = timed_http()
    assert (http.credentials, http.http.timeout) == (credentials, READ_S)


def test_an_answer_of_gcp_is_read_and_what_is_malformed_in_it_is_unknown() -> None:
    quotas = [{"metric": "NVIDIA_T4_GPUS", "limit": 4.0, "usage": 1.0}, {"metric": "CPUS"}, {"limit": "x"}, 7]
    compute = FakeCompute({"name": "r", "quotas": quotas})
    assert gcp_quotas(compute, "p", "r") == {"NVIDIA_T4_GPUS": 4.0}
    assert compute.asked == {"project": "p", "region": "r"}
    assert gcp_quotas(FakeCompute({}), "p", "r") == {}
