"""The client of the config's Kubernetes API server, whose library is an optional dependency."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from starburst.app.config.sites import KubernetesConfig
from starburst.app.errors import UserError

if TYPE_CHECKING:
    from starburst.kube.api import Api


async def connect(cluster: KubernetesConfig) -> Api:
    """A client of the config's API server.

    Raises:
        CredentialsError: there is no usable kubeconfig.
    """
    from starburst.kube.api import Api  # noqa: PLC0415 - an optional dependency

    return await Api.connect(
        None if cluster.kubeconfig is None else Path(cluster.kubeconfig), cluster.context
    )


def need_kubernetes() -> None:
    """Check the dependencies of `starburst.kube`; called before anything of it is imported.

    Raises:
        UserError: the extra is not installed.
    """
    if find_spec("kubernetes") is None:
        raise UserError(
            "cluster.kind: kubernetes: needs the extra: pip install 'starburst-hybrid[kubernetes]'"
        )
