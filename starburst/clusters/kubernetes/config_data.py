"""ConfigMaps and Secrets of the cluster, read when a job that refers to them starts in a cloud."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Collection, Mapping

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
        return ReferencedData(namespace, await self.read(references(parsed, namespace)))

    async def read(self, wanted: Collection[Reference]) -> dict[Reference, Mapping[str, str] | None]:
        """The data of each; None is not there. Raises as above."""
        if not wanted:
            return {}
        try:
            async with await self._connect() as api:
                return {each: await _data(api, each) for each in wanted}
        except (ApiUnreachableError, KubeCredentialsError) as error:
            raise NotNowError(str(error)) from None


async def _data(api: Api, wanted: Reference) -> Mapping[str, str] | None:
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
    if found is None:
        return None
    data: dict[str, str] = found.get("data") or {}
    if not secret:
        return data
    # Bytes that are no text go through a variable as they are: so does Python have them there.
    return {key: base64.b64decode(text).decode(errors="surrogateescape") for key, text in data.items()}
