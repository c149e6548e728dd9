"""Where it listens, where pods report to, and where the store is: addresses, and nothing that is none."""

from __future__ import annotations

import pytest

from starburst.app.config import parse_config
from starburst.app.errors import UserError


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("http://starburst.starburst-system.svc:8585", "http://starburst.starburst-system.svc:8585"),
        ("https://burst.example.org/below/", "https://burst.example.org/below"),
        ("http://[fd00::1]:8585/", "http://[fd00::1]:8585"),
    ],
)
def test_an_address_is_kept_without_its_last_slash(written: str, meant: str) -> None:
    assert parse_config({"http": {"report_url": written}}, "test").http.report_url == meant


@pytest.mark.parametrize(
    "written",
    [
        "",
        "starburst:8585",
        "mqtt://broker/topic",
        "http://",
        "http://h:x",
        "http://h:0",
        "http://h:99999",
        "http://[",
        "http://user:password@h",
        "http://h/?a=b",
        "http://h/#a",
        "http://hö",
        "http://h/a b",
    ],
)
def test_what_is_no_address_is_one_line(written: str) -> None:
    with pytest.raises(UserError) as told:
        parse_config({"http": {"report_url": written}}, "test")
    (line,) = str(told.value).splitlines()
    assert line.startswith("test: http.report_url: ")
    assert line.endswith("must be an address such as http://starburst.example.org:8585, and no more")


def test_it_needs_somebody_who_listens() -> None:
    with pytest.raises(UserError, match=r"test: http\.report_url: .*needs enabled: true"):
        parse_config({"http": {"enabled": False, "report_url": "http://h"}}, "test")


@pytest.mark.parametrize("written", ["a b", "a/c", "http://h", "me@h", "h\n"])
def test_where_it_listens_is_a_host(written: str) -> None:
    with pytest.raises(UserError, match=r"test: http\.host: .*must be a host name or an address"):
        parse_config({"http": {"host": written}}, "test")


@pytest.mark.parametrize("port", ["0", "65536", "99999999"])
def test_the_port_of_a_database_is_one(port: str) -> None:
    parse_config({"store": {"url": "postgresql://me@db:5433/burst"}}, "test")
    with pytest.raises(UserError, match=r"test: store\.url: .*its port must be a number from 1 to 65535"):
        parse_config({"store": {"url": f"postgresql://me@db:{port}/burst"}}, "test")
