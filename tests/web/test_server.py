"""The server beside the scheduler: its port, its end, and who on this machine it answers."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable

import httpx
import pytest

from starburst.app.config.http import PORT, HttpConfig
from starburst.app.errors import UserError
from starburst.web.context import AppContext
from starburst.web.serving import connections, listen, server
from starburst.web.serving.listen import listening, refuse_insecure_bind
from starburst.web.serving.peers import peer_uid
from starburst.web.serving.server import serving
from tests.web.conftest import Time


def test_a_port_that_is_taken_is_one_line() -> None:
    with listening(HttpConfig(port=0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError) as told, listening(HttpConfig(port=port)):
            pass
    assert str(told.value) == (
        f"http.port: {port}: cannot be used at 127.0.0.1 (address already in use); set http.port to "
        "another one, 0 for any, or http.enabled to false"
    )


def test_the_usual_port_is_left_for_another_if_somebody_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PORT == 8585
    with listening(HttpConfig(port=0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr(listen, "PORT", port)
    with listening(HttpConfig()) as first, listening(HttpConfig()) as second:
        assert first.getsockname()[1] == port != second.getsockname()[1]


def test_hosts_that_are_not_this_machine() -> None:
    with pytest.raises(
        UserError, match=r"http\.host: no\.such\.host\.invalid: is no address of this machine"
    ):
        listening(HttpConfig(host="no.such.host.invalid")).__enter__()
    with pytest.raises(UserError, match=r"http\.port: 0: cannot be used at 192\.0\.2\.1 \("):
        listening(HttpConfig(host="192.0.2.1", port=0)).__enter__()


def test_there_is_no_socket_if_it_is_not_enabled() -> None:
    with listening(HttpConfig(enabled=False)) as sock:
        assert sock is None


def test_others_are_not_let_near_it_without_a_token(
    app_context: AppContext, token: Callable[..., str]
) -> None:
    refuse_insecure_bind(app_context, HttpConfig())
    refuse_insecure_bind(app_context, HttpConfig(host="0.0.0.0", enabled=False))
    with pytest.raises(UserError) as told:
        refuse_insecure_bind(app_context, HttpConfig(host="0.0.0.0"))
    assert str(told.value) == (
        "http.host: 0.0.0.0: others reach this, and there is no token; make one with "
        "starburst token create NAME --role admin, or set http.host to 127.0.0.1"
    )
    token("viewer")
    refuse_insecure_bind(app_context, HttpConfig(host="0.0.0.0"))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_it_ends_at_once_though_somebody_watches(
    app_context: AppContext, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "DRAIN_S", 20.0)  # however busy this machine is
    settings = HttpConfig(host=host, port=0, streams=1)
    with listening(settings) as sock, httpx.Client() as client:
        with serving(app_context, settings, sock) as url:
            watch = client.send(client.build_request("GET", f"{url}/api/v1/watch"), stream=True)
            lines = watch.iter_lines()
            assert next(lines).startswith("id: ")
            assert httpx.get(f"{url}/api/v1/watch").status_code == 429
            assert httpx.get(f"{url}/api/v1/jobs").status_code == 200
            ending = time.monotonic()
        assert time.monotonic() - ending < server.DRAIN_S
        assert [line for line in lines if line] == []


def test_the_process_keeps_the_kind_of_event_loop_that_it_has(app_context: AppContext) -> None:
    """The scheduler's own loop is made in another thread, perhaps after the API has started."""
    asyncio.set_event_loop_policy(None)  # a library that another test imported may have set its own
    with listening(HttpConfig(port=0)) as sock:
        assert sock is not None
        with serving(app_context, HttpConfig(port=0), sock):
            loop = asyncio.new_event_loop()
            loop.close()
    assert type(loop).__module__.startswith("asyncio.")


def test_the_kernel_says_who_is_at_the_other_end() -> None:
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.create_server((host, 0), family=family) as listener:
            ours = socket.create_connection(listener.getsockname()[:2])
            theirs, _ = listener.accept()
            client, at = ours.getsockname()[:2], listener.getsockname()[:2]
            assert peer_uid(client, at) == os.getuid()
            ours.close()
            assert peer_uid(client, at) is None
            theirs.close()


def test_other_users_of_this_machine_are_kept_out_until_they_have_a_token(
    app_context: AppContext, token: Callable[..., str], wall: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = HttpConfig(port=0)
    with listening(settings) as sock, serving(app_context, settings, sock) as url:
        assert httpx.get(f"{url}/api/v1/jobs").status_code == 200
        for uid in (os.getuid() + 1, None):
            monkeypatch.setattr(connections, "peer_uid", lambda *_, uid=uid: uid)
            answer = httpx.get(f"{url}/api/v1/jobs")
            assert answer.status_code == 403
            assert "another user runs this Starburst" in answer.json()["error"]
            assert httpx.get(f"{url}/healthz").status_code == 200
        wall.now = time.time()
        headers = {"Authorization": f"Bearer {token('viewer')}"}
        assert httpx.get(f"{url}/api/v1/jobs", headers=headers).status_code == 200
        assert httpx.get(f"{url}/api/v1/jobs").status_code == 401
