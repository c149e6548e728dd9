"""`starburst submit --apply-rest`: applies what is no job in the files, as the user of the kubeconfig.

Starburst's own account does not: it may be allowed more than the user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starburst.app.errors import UserError
from starburst.app.reading.sources import ManifestText
from starburst.app.wiring.kube_client import need_kubernetes
from translator.intake.kinds import Companion
from translator.intake.texts import companions_in


def apply_rest(sources: Sequence[ManifestText]) -> list[str]:
    """Apply the companions of jobs in order; their names, for the user.

    Raises:
        UserError: the server refuses one, or cannot be reached; those before it were applied.
    """
    found = [(source.name, each) for source in sources for each in companions_in(source.text, source.name)]
    if found:
        need_kubernetes()
        asyncio.run(_apply(found))
    return [str(companion) for _, companion in found]


async def _apply(found: Sequence[tuple[str, Companion]]) -> None:
    from starburst.cli.jobs.server_side_apply import apply, current_namespace  # noqa: PLC0415
    from starburst.kube.api import Api  # noqa: PLC0415 - an optional dependency
    from starburst.kube.errors import ApiError, ApiUnreachableError, KubeCredentialsError  # noqa: PLC0415

    try:
        async with await Api.connect() as api:
            namespace = current_namespace()
            for source, companion in found:
                try:
                    await apply(api, companion.value, namespace)
                except ApiError as error:
                    why = f"the cluster refuses it: {error.message or error.reason}"
                    raise UserError(
                        f"{source}: {companion}: {why}; correct it, or leave out --apply-rest"
                    ) from None
    except (ApiUnreachableError, KubeCredentialsError) as error:
        raise UserError(f"--apply-rest: {error}") from None
