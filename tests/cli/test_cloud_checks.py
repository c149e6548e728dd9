"""`starburst doctor` about a cloud of SkyPilot's, and `up`, which refuses without what it must have of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from starburst.aio import in_thread
from starburst.app.config.sites import SkyConfig
from starburst.app.doctor import cloud_checks as module
from starburst.app.doctor.cloud_checks import cloud_checks
from starburst.app.doctor.doctor import DoctorCheck
from starburst.clouds.sky.access.ports import (
    CloudAccess,
    LaunchSpec,
    SkyCredentialsError,
    SkyError,
    SkyUnreachableError,
)
from starburst.clouds.sky.access.sdk import reasons_of
from starburst.clouds.sky.machines.naming import Naming
from starburst.clouds.sky.quotas import AwsQuotas
from tests.cli.conftest import Cli
from tests.clouds.sky import fake_line
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.fake_line import Line

ADDRESS = "http://127.0.0.1:46580"
HEADER = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,SpotPrice,Region\n"
ROWS = (
    "p3.2xlarge,V100,1,8,61,3.06,0.918,us-east-1\n"
    "p3.8xlarge,V100,4,32,244,12.00,,us-east-1\n"
    "c7i.xlarge,,,4,8,0.1785,,us-west-2\n"
    "g5.xlarge,A10G,1,4,16,,,us-west-2\n"
)
FULL = CloudAccess(frozenset({"compute", "storage"}), {})
EXTRA = "cloud.kind: skypilot: needs the extra: pip install 'starburst-hybrid[sky]'"
Change = Callable[[FakeSky], Any]


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """SkyPilot is there, as far as anybody asks before importing it."""
    monkeypatch.setattr("starburst.app.wiring.sky.find_spec", lambda _: object())
    monkeypatch.setattr(module, "version", lambda _: "0.14.1")
    monkeypatch.setattr(fake_line, "CALL_S", 0.0)
    monkeypatch.setattr(module, "AwsQuotas", lambda: AwsQuotas(lambda _region: {}))
    # Set and unset, for the monkeypatch to put it back whatever a check makes of it.
    monkeypatch.setenv(module.ENDPOINT, "")
    monkeypatch.delenv(module.ENDPOINT)


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    file = tmp_path / "prices.csv"
    file.write_text(HEADER + ROWS)
    return file


def diagnose(prices: Path, *changes: Change, api: type[Line] = Line, **config: Any) -> list[DoctorCheck]:
    """What is found at a cloud in good order after these changes."""
    sky = FakeSky(prices.parent, access={"aws": FULL})
    for change in changes:
        change(sky)
    whole = config.pop("whole", True)
    loaded = SkyConfig(**{"kind": "skypilot", "prices": str(prices), "regions": ["us-east-1"], **config})
    return asyncio.run(cloud_checks(loaded, api(sky), whole=whole))


def of(checks: list[DoctorCheck], name: str) -> list[tuple[str, str]]:
    """Status and line of the checks of one name."""
    return [
        (check.status.value, check.line.removeprefix(f"{name}: ")) for check in checks if check.check == name
    ]


# --- all is well ------------------------------------------------------------------------------------------


def test_a_cloud_in_good_order_is_found_to_be_so(prices: Path) -> None:
    checks = diagnose(prices)
    assert [(check.status.value, check.line) for check in checks] == [
        ("ok", "skypilot: 0.14.1"),
        ("ok", f"api-server: {ADDRESS}, SkyPilot 0.14.1"),
        ("ok", "credentials: aws: SkyPilot may use compute and storage"),
        ("ok", f"machines: none now; {UNKNOWABLE}"),
        (
            "ok",
            f"offers: 2 from {prices}: 2 types in 1 region, the cheapest GPU $3.00 an hour "
            "(aws/us-east-1/p3.8xlarge)",
        ),
        ("ok", "programs: ssh, tar"),
    ]


UNKNOWABLE = "whether the account may rent more is seen at the first launch only"


def test_machines_are_counted_with_whose_they_are(prices: Path) -> None:
    def rent(sky: FakeSky) -> None:
        for name in (Naming("starburst", "x").cluster("i-1"), "somebodys"):
            sky.clusters_known[name] = LaunchSpec(name, "aws/us-east-1", "p3.2xlarge", False, (), 5)

    assert of(diagnose(prices, rent), "machines") == [("ok", f"2 now, 1 of them Starburst's; {UNKNOWABLE}")]


def test_nothing_is_rented_to_find_out(prices: Path) -> None:
    skies: list[FakeSky] = []
    diagnose(prices, skies.append)
    assert set(skies[0].calls) == {"health", "check", "status"}


# --- SkyPilot itself --------------------------------------------------------------------------------------


def test_without_the_extra_one_line_says_what_to_install(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("starburst.app.wiring.sky.find_spec", lambda _: None)
    config = tmp_path / "sky.yaml"
    config.write_text("cloud: {kind: skypilot}")
    told = cli("doctor", "--config", config)
    assert told.code == 1
    assert told.out.splitlines()[-2:] == [f"✗ extra: {EXTRA}", "✓ programs: ssh, tar"]
    told = cli("up", "--config", config)
    assert (told.code, told.err) == (2, f"error: extra: {EXTRA}\n")


@pytest.mark.parametrize(
    ("version", "status", "line"),
    [
        ("0.9.3", "fail", "0.9.3; Starburst needs 0.14 or newer; pip install 'skypilot>=0.14.1'"),
        ("0.14.7", "ok", "0.14.7"),
        ("0.15.0", "warn", "0.15.0; Starburst was tried with 0.14 only"),
        ("1.0.0.dev20260101", "warn", "1.0.0.dev20260101; Starburst was tried with 0.14 only"),
    ],
)
def test_the_version_that_is_installed(
    prices: Path, monkeypatch: pytest.MonkeyPatch, version: str, status: str, line: str
) -> None:
    monkeypatch.setattr(module, "version", lambda _: version)
    checks = diagnose(prices)
    assert of(checks, "skypilot") == [(status, line)]
    assert (of(checks, "api-server") == []) == (status == "fail"), "what is too old is not used"


def test_programs_that_are_missing_come_with_their_packages(
    prices: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(prices.parent))
    told = "no ssh and no tar on PATH to reach machines with; install openssh-client and tar"
    assert of(diagnose(prices), "programs") == [("fail", told)]


# --- the API server ---------------------------------------------------------------------------------------


def down(sky: FakeSky) -> None:
    sky.server_up = False


def test_a_server_that_is_down_hides_the_clouds_but_not_the_rest(prices: Path) -> None:
    checks = diagnose(prices, down)
    assert [(check.check, check.status.value) for check in checks] == [
        ("skypilot", "ok"),
        ("api-server", "fail"),
        ("offers", "ok"),
        ("programs", "ok"),
    ]
    why = f"{ADDRESS} does not answer (the API server is down)"
    assert of(checks, "api-server") == [("fail", f"{why}; sky api start")]


class Elsewhere(Line):
    """An API server of somebody else's machine."""

    async def address(self) -> str:
        return "https://sky.example.org"


@pytest.mark.parametrize(
    ("api", "endpoint", "said_by"),
    [
        (Line, "", "cloud.api_server"),
        (Line, ADDRESS, module.ENDPOINT),
        (Elsewhere, "", "cloud.api_server"),
        (Elsewhere, "", "api_server.endpoint in ~/.sky/config.yaml"),
    ],
)
def test_the_mend_names_what_says_where_the_server_is(
    prices: Path, monkeypatch: pytest.MonkeyPatch, api: type[Line], endpoint: str, said_by: str
) -> None:
    if endpoint:
        monkeypatch.setenv(module.ENDPOINT, endpoint)
    config = {"api_server": "http://some.where"} if said_by == "cloud.api_server" else {}
    ((status, line),) = of(diagnose(prices, down, api=api, **config), "api-server")
    here = f"start it (sky api start), or correct {said_by}"
    there = f"check that the server runs, {said_by}, and the network between"
    assert (status, line.partition("; ")[2]) == ("fail", here if api is Line else there)


def raising(error: SkyError) -> type[Line]:
    class Raising(Line):
        async def health(self) -> str:
            raise error

    return Raising


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            SkyUnreachableError(
                "HTTPConnectionPool(host='127.0.0.1', port=9): Max retries exceeded with url: /api/health "
                "(Caused by NewConnectionError('<urllib3.connection.HTTPConnection object at 0x7f>: "
                "Failed to establish a new connection: [Errno 111] Connection refused'))"
            ),
            f"{ADDRESS} does not answer (Connection refused); sky api start",
        ),
        (SkyUnreachableError("x" * 1000), f"{ADDRESS} does not answer; sky api start"),
        (SkyCredentialsError("401"), f"{ADDRESS} wants to know who you are; sky api login -e {ADDRESS}"),
        (SkyError("your SkyPilot is too old for it"), f"{ADDRESS}: your SkyPilot is too old for it"),
    ],
)
def test_why_a_server_is_of_no_use_is_one_short_line(prices: Path, error: SkyError, line: str) -> None:
    assert of(diagnose(prices, api=raising(error)), "api-server") == [("fail", line)]


@pytest.mark.parametrize("slow", ["health", "check", "clusters"])
def test_a_call_that_hangs_takes_a_bounded_time_and_is_not_waited_for_afterwards(
    prices: Path, monkeypatch: pytest.MonkeyPatch, slow: str
) -> None:
    monkeypatch.setattr(module, "HEALTH_S", 0.1)
    monkeypatch.setattr(module, "ASK_S", 0.1)
    never = threading.Event()

    async def hang(*_args: Any, **_more: Any) -> None:
        await in_thread(never.wait)

    monkeypatch.setattr(Line, slow, hang)
    since = time.monotonic()
    checks = diagnose(prices)
    assert time.monotonic() - since < 60
    never.set()
    name = {"health": "api-server", "check": "credentials", "clusters": "machines"}[slow]
    ((status, line),) = of(checks, name)
    assert (status, "answer" in line) == ("fail", True)
    (check,) = [one for one in checks if one.check == name]
    assert check.may_pass, "up waits for it where jobs run or machines are rented"
    assert "cloud.clouds" not in line, "slowness is no error in the config"


# --- credentials and the bucket ---------------------------------------------------------------------------


def refused(reason: str, **more: str) -> Change:
    def change(sky: FakeSky) -> None:
        sky.access["aws"] = CloudAccess(frozenset(), {"compute": reason, "storage": reason, **more})

    return change


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        (
            "AWS credentials are not set",
            "aws is not enabled (AWS credentials are not set); "
            "where the API server runs: aws configure, then sky check aws",
        ),
        (
            "You are not authorized to call DescribeAvailabilityZones",
            "aws is not enabled (You are not authorized to call DescribeAvailabilityZones); "
            "where the API server runs: correct it, then sky check aws",
        ),
        (
            "AWS is not included in allowed_clouds in ~/.sky/config.yaml",
            "aws is not enabled (AWS is not included in allowed_clouds in ~/.sky/config.yaml); "
            "add it there, then sky check aws",
        ),
    ],
)
def test_a_cloud_that_skypilot_may_not_use_is_told_with_skypilots_reason(
    prices: Path, reason: str, line: str
) -> None:
    assert of(diagnose(prices, refused(reason), bucket="s3://mine"), "credentials") == [("fail", line)]


def test_each_cloud_has_a_line_of_its_own(prices: Path) -> None:
    found = of(diagnose(prices, clouds=["aws", "gcp"]), "credentials")
    assert [status for status, _ in found] == ["ok", "fail"]
    assert found[1][1].startswith("gcp is not enabled (SkyPilot gives no reason); ")


def test_a_bucket_needs_the_storage_of_its_cloud_whether_or_not_machines_are_rented_there(
    prices: Path,
) -> None:
    def compute_only(sky: FakeSky) -> None:
        sky.access["aws"] = CloudAccess(frozenset({"compute"}), {"storage": "Failed to list buckets"})

    def gcp(sky: FakeSky) -> None:
        sky.access["gcp"] = FULL

    known_later = "whether machines may write there is seen at the first launch only"
    assert of(diagnose(prices, bucket="s3://mine"), "bucket") == [("ok", f"s3://mine; {known_later}")]
    assert of(diagnose(prices, gcp, bucket="gs://mine"), "bucket") == [("ok", f"gs://mine; {known_later}")]
    ((status, line),) = of(diagnose(prices, compute_only, bucket="s3://mine"), "bucket")
    assert (status, line.partition("; ")[0]) == (
        "fail",
        "s3://mine: no storage of aws for us (Failed to list buckets)",
    )


def test_buckets_that_stand_in_for_volumes_need_the_storage_of_their_clouds(prices: Path) -> None:
    volumes = {"pvc/b": "gs://b", "pvc/a": "s3://a/x", "pvc/again": "s3://a/x", "pvc/own": {"volume": "v"}}
    found = [
        (status, line.partition("; ")[0]) for status, line in of(diagnose(prices, volumes=volumes), "volumes")
    ]
    no_storage = "gs://b: no storage of gcp for us (SkyPilot gives no reason)"
    assert found == [("fail", no_storage), ("ok", "s3://a/x")]
    assert of(diagnose(prices, volumes={"pvc/c": "r2://c"}), "volumes") == [
        ("warn", "r2://c: whether SkyPilot may use it is seen at the first launch only")
    ]


def test_spot_machines_without_a_bucket_lose_what_is_saved_on_them_which_is_said_but_no_refusal(
    prices: Path,
) -> None:
    ((status, line),) = of(diagnose(prices, spot="also"), "bucket")
    assert (status, line.endswith("; set cloud.bucket")) == ("warn", True)
    assert of(diagnose(prices, spot="also", whole=False), "bucket") == []


LOG = (
    "Checking credentials to enable infra for SkyPilot.\n"
    "\x1b[32m\x1b[22m  AWS: enabled [compute]\x1b[0m\x1b[0m\n"
    "    Hint [compute]: \x1b[33mAWS SSO is set.\x1b[0m\n"
    "    Reason [storage]: Failed to list buckets for the account me. It is likely due to something.\n"
    "    Details: [botocore.exceptions.ClientError] An error occurred (AccessDenied)\n"
    "\x1b[2m  GCP: disabled \x1b[0m\x1b[0m\n"
    "    Reason [compute, storage]: GCP credentials are not set. Run the following commands:\n"
    "      $ gcloud init\n"
    "\x1b[2m  OCI: disabled \x1b[0m\x1b[0m\n"
    "    Reason [compute]: Traceback (most recent call last):\n"
    '  File "oci.py", line 1, in check\n'
    "ValueError: no region\n"
    "\n"
    "\x1b[32m🎉 Enabled infra 🎉\x1b[0m\n"
    "  \x1b[32mAWS [compute]\x1b[0m\n"
)


def test_skypilots_reasons_are_read_from_what_its_check_says() -> None:
    assert reasons_of(LOG) == {
        "aws": {"storage": "Failed to list buckets for the account me: An error occurred (AccessDenied)"},
        "gcp": dict.fromkeys(("compute", "storage"), "GCP credentials are not set"),
        "oci": {"compute": "ValueError: no region"},
    }
    assert reasons_of("") == {}
