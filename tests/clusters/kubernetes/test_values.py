"""Reading ConfigMaps and Secrets for jobs that leave, from a fake API server."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from starburst.clusters.kubernetes.config_data import CONFIG_MAPS, SECRETS, ClusterValues
from starburst.kube.api import Api
from starburst.kube.errors import KubeCredentialsError
from tests.kube_unit.server import FakeServer
from translator.manifests.references import CONFIG_MAP, SECRET, Reference
from translator.tasks.runtime_values import NotNowError, ReferencedData, TaskHost, UnresolvedError, evaluate

LOGIN, LIMITS = Reference(SECRET, "team", "login"), Reference(CONFIG_MAP, "team", "limits")


def manifest(namespace: str | None = None, **container: Any) -> str:
    sources = {"envFrom": [{"secretRef": {"name": "login"}}, {"configMapRef": {"name": "limits"}}]}
    spec = {"restartPolicy": "Never", "containers": [{"command": ["x"], **(container or sources)}]}
    metadata = {"name": "train"} | ({"namespace": namespace} if namespace else {})
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def play(act: Callable[[FakeServer, ClusterValues], Any]) -> Any:
    async def main() -> Any:
        async with FakeServer() as server:

            async def connect() -> Api:
                return server.api(sleep=lambda _s: asyncio.sleep(0))

            for key, value in (("password", b"s3cret"), ("raw", b"\xff\x00")):
                data = {key: base64.b64encode(value).decode()}
                if key == "password":
                    server.add(SECRETS, {"metadata": {"namespace": "team", "name": "login"}, "data": data})
                else:
                    server.change(SECRETS, "team", "login", {"data": data})
            server.add(CONFIG_MAPS, {"metadata": {"namespace": "team", "name": "limits"}, "data": {"a": "1"}})
            return await act(server, ClusterValues(connect, "team"))

    return asyncio.run(main())


def test_all_that_a_manifest_names_is_read_and_decoded() -> None:
    async def act(server: FakeServer, values: ClusterValues) -> ReferencedData:
        return await values(manifest())

    found: ReferencedData = play(act)
    assert found.namespace == "team"
    assert found.data[LIMITS] == {"a": "1"}
    login = found.data[LOGIN]
    assert login is not None
    assert login["password"] == "s3cret"
    assert login["raw"].encode(errors="surrogateescape") == b"\xff\x00", "no text, and whole all the same"
    assert json.loads(json.dumps(login)) == login
    assert evaluate(json.loads(manifest()), found, TaskHost(0, "", "")).plain == {"a": "1"}


def test_what_is_not_there_is_none_and_the_manifests_namespace_comes_first() -> None:
    async def act(server: FakeServer, values: ClusterValues) -> ReferencedData:
        return await values(manifest("other"))

    found: ReferencedData = play(act)
    assert found.namespace == "other"
    assert set(found.data.values()) == {None}


def test_values_that_no_cluster_has_ask_no_server() -> None:
    async def act(server: FakeServer, values: ClusterValues) -> int:
        field = {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
        await values(manifest(env=[field]))
        return len(server.asked)

    assert play(act) == 0


@pytest.mark.parametrize(
    ("fault", "error", "why"),
    [
        ({"of": "/secrets/", "status": 403}, UnresolvedError, "let its account get secrets there"),
        ({"of": "/configmaps/", "status": 403}, UnresolvedError, "let its account get configmaps there"),
        ({"of": "/secrets/", "status": 503, "times": 9}, NotNowError, "503"),
        ({"of": "/secrets/", "times": 9}, NotNowError, "secrets/login"),
    ],
)
def test_no_is_no_and_silence_is_not(fault: dict[str, Any], error: type[Exception], why: str) -> None:
    async def act(server: FakeServer, values: ClusterValues) -> None:
        server.fail(**fault)
        with pytest.raises(error, match=why):
            await values(manifest())

    play(act)


def test_without_credentials_it_is_tried_again() -> None:
    async def connect() -> Api:
        raise KubeCredentialsError("there is no kubeconfig")

    with pytest.raises(NotNowError, match="no kubeconfig"):
        asyncio.run(ClusterValues(connect, "team")(manifest()))


def test_binary_data_of_a_config_map_is_in_its_files_and_in_no_variable() -> None:
    async def act(server: FakeServer, values: ClusterValues) -> ReferencedData:
        binary = {"blob": base64.b64encode(b"\x00\xff\n").decode()}
        server.change(CONFIG_MAPS, "team", "limits", {"binaryData": binary})
        return await values(text)

    env = [{"configMapRef": {"name": "limits"}}]
    parsed = json.loads(manifest(envFrom=env, volumeMounts=[{"name": "v", "mountPath": "/etc/v"}]))
    parsed["spec"]["volumes"] = [{"name": "v", "configMap": {"name": "limits"}}]
    text = json.dumps(parsed)
    found = evaluate(parsed, play(act), TaskHost(0, "10.0.0.1", "host"))
    assert found.plain == {"a": "1"}
    files = {file.path: content.encode(errors="surrogateescape") for file, content in found.files}
    assert files == {"a": b"1", "blob": b"\x00\xff\n"}
