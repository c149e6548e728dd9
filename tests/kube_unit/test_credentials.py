"""Credentials: where they come from, and what happens when they run out."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import Process
from pathlib import Path

import pytest
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import incluster_config
from structlog.testing import capture_logs

from starburst.kube import credentials
from starburst.kube.api import Api
from starburst.kube.errors import ApiError, KubeCredentialsError
from starburst.kube.resources import NODES, PODS
from starburst.kube.transport import Transport
from tests.app.virtual import START, run, wall
from tests.kube_unit.samples import a_pod
from tests.kube_unit.server import FakeServer

CREDENTIAL = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}


def plugin(command: str, *args: str) -> dict[str, object]:
    return {"exec": {"apiVersion": CREDENTIAL["apiVersion"], "command": command, "args": [*args]}}


def test_a_token_that_ran_out_is_read_anew_once_and_the_call_repeated(tmp_path: Path) -> None:
    async def main() -> None:
        async with FakeServer() as server:
            token = tmp_path / "token"
            token.write_text("old")
            server.tokens = {"old"}
            config = server.kubeconfig(tmp_path / "config", {"tokenFile": str(token)})
            async with await Api.connect(config) as api:
                await api.create(PODS, "ns", a_pod())
                server.tokens = {"new"}
                with pytest.raises(ApiError) as refused:
                    await api.get(PODS, "ns", "p")
                assert (refused.value.status, len(server.asked)) == (401, 3)
                token.write_text("new")
                server.asked.clear()
                renew, renewals = api._transport.renew, []
                assert renew is not None

                async def counted() -> ApiClient:
                    renewals.append(await renew())
                    return renewals[-1]

                api._transport.renew = counted
                calls = [
                    api.patch(PODS, "ns", "p", {"metadata": {"labels": {f"l{i}": ""}}}) for i in range(5)
                ]
                await asyncio.gather(*calls)
                assert len(server.get(PODS, "ns", "p")["metadata"]["labels"]) == 5
                assert len(renewals) == 1
                assert len(server.asked) <= 10

    asyncio.run(main())


def test_a_watch_goes_on_while_credentials_are_renewed(tmp_path: Path) -> None:
    async def main() -> None:
        async with FakeServer() as server:
            token = tmp_path / "token"
            token.write_text("old")
            server.tokens = {"old"}
            config = server.kubeconfig(tmp_path / "config", {"tokenFile": str(token)})
            async with await Api.connect(config) as api:
                watch = api.watch(PODS, "0")
                server.add(PODS, a_pod("a"))
                assert (await anext(watch))["object"]["metadata"]["name"] == "a"
                pool = api._transport.client.rest_client.pool_manager
                assert pool is not None
                token.write_text("new")
                server.tokens = {"new"}
                assert len(await api.list(PODS)) == 1
                server.add(PODS, a_pod("b"))
                assert (await anext(watch))["object"]["metadata"]["name"] == "b"
                assert not pool.closed
                await watch.aclose()
                assert pool.closed

    asyncio.run(main())


def test_an_exec_plugin_is_run_again_when_its_token_ran_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with FakeServer() as server:
            told = tmp_path / "credential"
            config = server.kubeconfig(tmp_path / "config", plugin("cat", str(told)))
            for token in ("one", "two"):
                told.write_text(json.dumps({**CREDENTIAL, "status": {"token": token}}))
                server.tokens = {token}
                if token == "one":
                    api = await Api.connect(config)
                assert await api.list(PODS) == []
            told.write_text("{}")
            server.tokens = {"three"}
            with pytest.raises(ApiError, match="401"):
                await api.list(PODS)
            await api.close()

    asyncio.run(main())


class HangingPlugin(Process):
    """An exec plugin that never says anything."""

    returncode = None

    def __init__(self) -> None:
        self.ended = False
        self.stdout = asyncio.StreamReader()  # nothing is ever fed to it

    def kill(self) -> None:
        self.ended = True


def test_a_plugin_that_hangs_is_waited_for_so_long_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = FakeServer().kubeconfig(tmp_path / "config", plugin("hangs"), {"server": "https://kube.invalid"})
    began: list[HangingPlugin] = []

    async def begin(*_args: str, **_more: object) -> HangingPlugin:
        began.append(HangingPlugin())
        return began[-1]

    async def main() -> None:
        with pytest.raises(KubeCredentialsError) as error:
            await Api.connect(config)
        assert str(error.value) == (
            f"{config}: its exec plugin or login service gave no credentials: no answer within 30 s"
        )
        assert wall() == START + credentials.ANSWER_S
        assert [each.ended for each in began] == [True]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", begin)
    run(main())


def test_calls_that_wait_for_a_renewal_that_fails_do_not_each_try_it_again() -> None:
    async def main() -> None:
        tries: list[float] = []

        async def renew() -> ApiClient:
            tries.append(wall())
            await asyncio.sleep(credentials.ANSWER_S)
            raise KubeCredentialsError("no answer within 30 s")

        client = ApiClient(Configuration(host="https://kube.invalid"))
        transport = Transport(client, renew)
        with capture_logs() as logs:
            answers = await asyncio.gather(*(transport._renewed(client) for _ in range(5)))
        assert (answers, tries, wall()) == ([False] * 5, [START], START + credentials.ANSWER_S)
        assert [line["event"] for line in logs] == ["credentials-not-renewed"]
        assert not await transport._renewed(client)
        assert len(tries) == 2, "a later call tries again"
        await transport.close()

    run(main())


def test_a_rotated_in_cluster_token_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    ca.write_text("a certificate")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(ca))

    async def main() -> None:
        for text in ("old", "new"):
            token.write_text(text)
            found = await credentials.load(None, None)
            assert found.host == "https://10.0.0.1:443"
            assert found.ssl_ca_cert == str(ca)
            assert await found.get_api_key_with_prefix("BearerToken") == f"bearer {text}"
        token.unlink()
        with pytest.raises(KubeCredentialsError, match="service account"):
            await Api.connect()

    asyncio.run(main())


def test_a_proxy_of_the_kubeconfig_is_used(tmp_path: Path) -> None:
    async def main() -> None:
        async with FakeServer() as proxy:
            proxy.add(NODES, {"metadata": {"name": "n"}})
            config = proxy.kubeconfig(
                tmp_path / "config", cluster={"server": "http://kube.invalid:1234", "proxy-url": proxy.url}
            )
            async with await Api.connect(config) as api:
                assert len(await api.list(NODES)) == 1
            assert proxy.asked[0].headers["Host"] == "kube.invalid:1234"

    asyncio.run(main())


def test_a_kubeconfig_may_say_how_servers_are_to_be_trusted(tmp_path: Path) -> None:
    cluster = {"server": "https://kube.invalid", "insecure-skip-tls-verify": True, "tls-server-name": "kube"}
    config = FakeServer().kubeconfig(tmp_path / "config", {"token": "t"}, cluster)

    async def main() -> None:
        async with await Api.connect(config) as api:
            found = api._transport.client.configuration
            assert (found.verify_ssl, found.tls_server_name, found.api_key) == (
                False,
                "kube",
                {"BearerToken": "Bearer t"},
            )

    asyncio.run(main())


def test_the_kubeconfig_of_the_environment_is_read_when_connecting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with FakeServer() as server:
            there = server.kubeconfig(tmp_path / "there")
            monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'absent'}:{there}")
            async with await Api.connect() as api:
                assert api.host == server.url

    asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "user", "told"),
    [
        (None, None, "there is no such kubeconfig; set KUBECONFIG"),
        ("", None, "it is no kubeconfig"),
        ("[", None, "while parsing"),
        ("{}", None, "current-context"),
        ("words", None, "it is no kubeconfig"),
        ('{"current-context": "x"}', None, "x"),
        (None, {"client-certificate": "/absent", "client-key": "/absent"}, "/absent"),
        (None, plugin("false"), "the exec plugin false gave no credentials; run it to see why"),
        (None, plugin("/absent/plugin"), "the exec plugin /absent/plugin gave no credentials"),
        (None, {"tokenFile": "/absent/token"}, "/absent/token"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_named_in_one_line(
    tmp_path: Path, text: str | None, user: dict[str, object] | None, told: str
) -> None:
    config = tmp_path / "config"
    if text is not None:
        config.write_text(text)
    if user is not None:
        FakeServer().kubeconfig(config, user, {"server": "https://kube.invalid"})

    async def main() -> None:
        with pytest.raises(KubeCredentialsError) as error:
            await Api.connect(config)
        line = str(error.value)
        assert line.startswith(str(config))
        assert told in line
        assert "\n" not in line

    asyncio.run(main())


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({}, None),
        ({"HTTP_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ({"HTTPS_PROXY": "http://proxy:3128"}, None),
        ({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "10.0.0.0/8,localhost,127.0.0.1"}, None),
    ],
)
def test_the_proxy_of_the_environment_is_used_and_no_netrc_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], proxy: str | None
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))

    async def main() -> None:
        async with FakeServer() as server:
            found = await credentials.load(server.kubeconfig(tmp_path / "config", {}), None)
            assert found.proxy == proxy
            if proxy is None:
                async with await Api.connect(server.kubeconfig(tmp_path / "config", {})) as api:
                    await api.list(PODS)
                assert "Authorization" not in server.asked[-1].headers

    asyncio.run(main())
