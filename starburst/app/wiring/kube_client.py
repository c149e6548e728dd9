"""The client of the config's Kubernetes API server, whose library is an optional dependency."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from starburst.app.config.sites import KubernetesConfig
from starburst.app.errors import UserError
from starburst.runs.fence import NO_FENCE, LeaderFence, NotCertainError

if TYPE_CHECKING:
    from starburst.kube.api import Api


async def connect(cluster: KubernetesConfig, fence: LeaderFence = NO_FENCE) -> Api:
    """A client of the config's API server; `fence` is asked before each write.

    Raises:
        CredentialsError: there is no usable kubeconfig.
    """
    from starburst.kube.api import Api  # noqa: PLC0415 - an optional dependency

    api = await Api.connect(None if cluster.kubeconfig is None else Path(cluster.kubeconfig), cluster.context)
    api.fence = partial(_refuse_unless_certain, fence)
    return api


def _refuse_unless_certain(fence: LeaderFence) -> None:
    from starburst.kube.errors import NotLeadingError  # noqa: PLC0415 - an optional dependency

    try:
        fence.check()
    except NotCertainError as error:
        raise NotLeadingError(f"not written: {error}") from None


def need_kubernetes() -> None:
    """Check the dependencies of `starburst.kube`; called before anything of it is imported.

    Raises:
        UserError: the extra is not installed.
    """
    if find_spec("kubernetes") is None:
        raise UserError(
            "cluster.kind: kubernetes: needs the extra: pip install 'starburst-hybrid[kubernetes]'"
        )
