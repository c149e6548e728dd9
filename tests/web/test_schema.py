"""Schemathesis reads the OpenAPI description and asks what it can think of: no answer is a 500."""

from __future__ import annotations

import schemathesis
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode

from starburst.app.config.http import HttpConfig
from starburst.web.app import make_app
from starburst.web.context import AppContext
from tests.web.conftest import HERE, Time

EXAMPLES = 5


def test_no_request_that_the_description_allows_or_forbids_is_a_500(
    app_context: AppContext, clock: Time
) -> None:
    app = make_app(app_context, HttpConfig(requests_per_second=1e6), clock=clock)
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers={"Host": "localhost"})
    routes = [result.ok() for result in schema.get_all_operations()]
    labels = {route.label for route in routes}
    assert {"POST /api/v1/jobs", "GET /api/v1/watch", "GET /api/v1/jobs/{job}/logs"} < labels
    asked = dict.fromkeys(labels, 0)

    for route in routes:
        strategies = [route.as_strategy(generation_mode=mode) for mode in GenerationMode]

        @settings(max_examples=EXAMPLES, phases=[Phase.explicit, Phase.generate], database=None)
        @given(case=st.one_of(strategies), job=st.sampled_from(["", "wait", "done-11111"]))
        def ask(case: Case, job: str) -> None:
            if job and "job" in case.path_parameters:
                case.path_parameters["job"] = job
            if case.path.endswith("/watch") or case.query.get("follow"):
                return  # these go on
            answer = case.call(base_url=HERE)
            asked[case.operation.label] += 1
            assert answer.status_code in (200, 201, 204, 400, 403, 404, 405, 410), answer.text
            if answer.status_code >= 400:
                assert list(answer.json()) == ["error"]

        ask()
    assert min(count for label, count in asked.items() if not label.endswith("/watch")) >= 2
