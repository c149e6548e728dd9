"""What a real API server would refuse hours later is refused at submission, in a line per cause."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from starburst.app.jobs.server_dry_run import server_dry_run
from starburst.domain.job import Submission
from starburst.kube.api import Api
from tests.kube.lab import Lab
from tests.kube.slips import slips
from tests.translator.manifests import GOOD_JOB, read_one
from translator.errors import ManifestErrors
from translator.manifests.tenancy import Tenancy


def test_every_slip_is_refused_at_submission(api_server: Lab) -> None:
    accepted: dict[str, Submission] = {"nothing": read_one(GOOD_JOB, native=True)}
    for what, manifest in slips():
        with suppress(ManifestErrors):
            accepted[what] = read_one(manifest, native=True)
    connect = partial(Api.connect, api_server.kubeconfig)
    answer = asyncio.run(server_dry_run(connect, Tenancy(), list(accepted.values()), limit_s=60.0))
    assert not answer.unasked
    told = dict(zip(accepted, answer.refusals, strict=True))
    assert told.pop("nothing") == ()
    assert [what for what, lines in told.items() if not lines] == []
    assert all("\n" not in line for lines in told.values() for line in lines)
