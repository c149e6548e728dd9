"""The section `bus` of starburst.yaml."""

from __future__ import annotations

import pytest

from starburst.app.config import parse_config
from starburst.app.errors import UserError


def test_by_default_nobody_outside_is_told_and_no_hint_is_listened_to() -> None:
    bus = parse_config({}, "starburst.yaml").bus
    assert (bus.kind, bus.accept) == ("in-process", [])


@pytest.mark.parametrize(
    ("bus", "says"),
    [
        ({"kind": "amqp"}, "bus.kind: \"amqp\": must be 'in-process' or 'mqtt'"),
        ({"ca": "/ca.pem"}, 'bus.ca: "/ca.pem": needs tls: true'),
        ({"tls": True, "cert": "/c.pem"}, 'bus.cert: "/c.pem": key and cert go together'),
        ({"password_file": "/p"}, 'bus.password_file: "/p": needs username'),
        ({"accept": ["cancel"]}, "bus.accept: needs kind: mqtt"),
        (
            {"kind": "mqtt", "accept": ["shutdown"]},
            "bus.accept[0]: \"shutdown\": must be 'submit'",
        ),
        ({"kind": "mqtt", "anybody": True}, "bus.anybody: true: needs accept: which hints are listened to"),
        ({"keep": "5s"}, 'bus.keep: "5s": must be at least 60s'),
        ({"port": 0}, "bus.port: 0: must be at least 1"),
        ({"hots": "x"}, "bus.hots: there is no such field; did you mean host?"),
    ],
)
def test_what_is_wrong_is_named_with_the_mend(bus: dict[str, object], says: str) -> None:
    with pytest.raises(UserError) as error:
        parse_config({"bus": bus}, "starburst.yaml")
    assert str(error.value).startswith(f"starburst.yaml: {says}")
