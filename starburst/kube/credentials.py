"""Address and credentials of the API server: from a kubeconfig, or from the account of our own pod."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import Process
from contextlib import suppress
from pathlib import Path
from traceback import walk_tb
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml
from kubernetes.aio import config as library
from kubernetes.aio.client import Configuration

from starburst.aio import answer_within
from starburst.kube.errors import KubeCredentialsError

#: Wall seconds in which an exec plugin or a login service has to give credentials; all calls wait for them.
ANSWER_S = 30.0

#: What the library raises for wrong values in a kubeconfig, and for a file that is no kubeconfig.
_WRONG = (library.ConfigException, yaml.YAMLError, OSError, ValueError)
_ELSE = (KeyError, TypeError, AttributeError)


async def load(kubeconfig: Path | None, context: str | None) -> Configuration:
    """As `_found`, with the proxy of the environment, unless the kubeconfig names one.

    The proxy is looked up here once. The library's session would look for it, and for a ~/.netrc, in a
    thread at each call, which takes longer than the rest of a call.

    Raises:
        CredentialsError: there is none, or it cannot be used; one line.
    """
    configuration = await _found(kubeconfig, context)
    configuration.proxy = configuration.proxy or _proxy_for(configuration.host)
    configuration.client_session_kwargs = {"trust_env": False}
    return configuration


def _proxy_for(url: str) -> str | None:
    """The proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY give for a server."""
    server = urlsplit(url)
    if not server.hostname or proxy_bypass(server.netloc.rpartition("@")[2]):
        return None
    return getproxies().get(server.scheme)


async def _found(kubeconfig: Path | None, context: str | None) -> Configuration:
    """That kubeconfig, else KUBECONFIG or ~/.kube/config, else the pod's own account.

    Exec plugins run here. The library reads a rotated in-cluster token every minute; what plugins and files
    give is read once, so callers load anew when the server takes it no more (401).

    Raises:
        CredentialsError: there is none, or it cannot be used; one line.
    """
    paths = str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG") or "~/.kube/config"
    if any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path):
        return await _from_file(paths, context)
    configuration = Configuration()
    if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        try:
            library.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except library.ConfigException as error:
            raise KubeCredentialsError(f"this pod's service account: {error}") from None
        return configuration
    raise KubeCredentialsError(
        f"{paths}: there is no such kubeconfig; set KUBECONFIG, or cluster.kubeconfig in the config"
    )


async def _from_file(paths: str, context: str | None) -> Configuration:
    configuration = Configuration()
    try:
        with answer_within(ANSWER_S):
            loader = await _loaded(paths, context, configuration)
        user = loader._user or {}
        plugin = user["exec"]["command"] if "exec" in user else ""
    except TimeoutError as error:  # also an OSError
        raise KubeCredentialsError(
            f"{paths}: its exec plugin or login service gave no credentials: {error}"
        ) from None
    except _WRONG as error:
        raise KubeCredentialsError(f"{paths}: {' '.join(str(error).split())}") from None
    except _ELSE as error:
        raise KubeCredentialsError(f"{paths}: it is no kubeconfig ({error!r})") from None
    if plugin and "BearerToken" not in configuration.api_key and not configuration.cert_file:
        # The library logs what went wrong and goes on without credentials.
        raise KubeCredentialsError(
            f"{paths}: the exec plugin {plugin} gave no credentials; run it to see why"
        )
    return configuration


async def _loaded(paths: str, context: str | None, configuration: Configuration) -> Any:
    """The library's loader, which has run exec plugins; a plugin ends when nobody waits for it any more."""
    try:
        return await library.load_kube_config(paths, context, configuration)  # type: ignore[no-untyped-call]
    except asyncio.CancelledError as error:
        _end_plugin(error)
        raise


def _end_plugin(cancelled: asyncio.CancelledError) -> None:
    """End the plugin that is waited for: the library has its process in a local variable only."""
    for frame, _ in walk_tb(cancelled.__traceback__):
        for value in frame.f_locals.values():
            if isinstance(value, Process) and value.returncode is None:
                with suppress(ProcessLookupError):
                    value.kill()
