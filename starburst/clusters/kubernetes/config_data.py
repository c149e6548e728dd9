"""ConfigMaps and Secrets of the cluster, read when a job that refers to them starts in a cloud."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from starburst.kube.api import Api
from starburst.kube.errors import ApiError, ApiUnreachableError, KubeCredentialsError
from starburst.kube.resources import CONFIG_MAPS, SECRETS
from translator.manifests.references import SECRET, Reference
from translator.tasks.runtime_values import NotNowError, ReferencedData, UnresolvedError, references


class ClusterValues:
    """Reads what one manifest refers to; `namespace` is the default of manifests."""

    def __init__(self, connect: Callable[[], Awaitable[Api]], namespace: str) -> None:
        self._connect = connect
        self._namespace = namespace

    async def __call__(self, manifest: str) -> ReferencedData:
        """All that a manifest, as JSON, refers to.

        Raises:
            NotNowError: the server does not answer, or has no time.
            UnresolvedError: we may not read it.
        """
        parsed = json.loads(manifest)
        namespace = parsed["metadata"].get("namespace") or self._namespace
        found = await self._objects(references(parsed, namespace))
        binary = {each: _decoded(one.get("binaryData")) for each, one in found.items() if one is not None}
        return ReferencedData(namespace, _data(found), {each: data for each, data in binary.items() if data})

    async def read(self, wanted: Collection[Reference]) -> dict[Reference, Mapping[str, str] | None]:
        """The data of each, without `binaryData`; None is not there. Raises as above."""
        return _data(await self._objects(wanted))

    async def _objects(self, wanted: Collection[Reference]) -> dict[Reference, Mapping[str, Any] | None]:
        if not wanted:
            return {}
        try:
            async with await self._connect() as api:
                return {each: await _object(api, each) for each in wanted}
        except (ApiUnreachableError, KubeCredentialsError) as error:
            raise NotNowError(str(error)) from None


def _data(found: Mapping[Reference, Mapping[str, Any] | None]) -> dict[Reference, Mapping[str, str] | None]:
    return {each: None if one is None else _values(each, one) for each, one in found.items()}


def _values(of: Reference, found: Mapping[str, Any]) -> Mapping[str, str]:
    plain: Mapping[str, str] = found.get("data") or {}
    return _decoded(plain) if of.kind == SECRET else plain


def _decoded(data: Mapping[str, str] | None) -> dict[str, str]:
    """Values in base64; bytes that are no text become surrogates, as Python has them in variables."""
    return {
        key: base64.b64decode(text).decode(errors="surrogateescape") for key, text in (data or {}).items()
    }


async def _object(api: Api, wanted: Reference) -> Mapping[str, Any] | None:
    secret = wanted.kind == SECRET
    try:
        found = await api.find(SECRETS if secret else CONFIG_MAPS, wanted.namespace, wanted.name)
    except ApiError as error:
        if error.status != 403:
            raise NotNowError(f"{wanted}: {error}") from None
        raise UnresolvedError(
            f"Starburst may not read {wanted} in namespace {wanted.namespace}; let its account get "
            f"{'secrets' if secret else 'configmaps'} there"
        ) from None
    return found
