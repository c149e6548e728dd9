"""The section `queues` of starburst.yaml."""

from __future__ import annotations

import pytest

from starburst.app.config import Config, parse_config
from starburst.app.errors import UserError
from starburst.core.model.settings import Settings
from starburst.policy.fair import Queue


def test_without_it_any_queue_will_do() -> None:
    assert Config().settings().queues == Settings().queues == ()


def test_queues_reach_the_core() -> None:
    written = [{"name": "a", "share": 3, "priority": -1, "budget_percent": 50}, {"name": "b"}]
    config = parse_config({"queues": written, "policy": {"order": "fair"}}, "test")
    assert config.settings().queues == (Queue("a", 3, -1, 50), Queue("b"))


@pytest.mark.parametrize(
    ("queues", "problem"),
    [
        ([{"name": "a"}, {"name": "a"}], "queues: there are two queues 'a'; keep one"),
        ([{"name": "A b"}], 'queues[0].name: "A b": must be lower-case letters, digits and dashes'),
        ([{"name": "a", "share": 0}], "queues[0].share: 0: must be more than 0"),
        ([{"name": "a", "priority": 101}], "queues[0].priority: 101: must be at most 100"),
        ([{"name": "a", "shares": 2}], "queues[0].shares: there is no such field; did you mean share?"),
        ([{"share": 2}], "queues[0].name: is missing; add it"),
        (
            [{"name": "a", "share": 2}],
            "queues: a: share 2 has no effect under policy.order: fifo; write policy.order: fair,",
        ),
        ([{"name": "a"}, {"name": "b", "priority": 1}], "queues: b: priority 1 has no effect under"),
        (
            [{"name": "a", "namespaces": ["x"]}],
            "queues: a: namespaces has no effect without cluster.kind: kubernetes; remove it",
        ),
        ([{"name": "a", "secrets": ["S!"]}], 'queues[0].secrets[0]: "S!": must be lower-case letters'),
    ],
)
def test_what_is_wrong_is_said_with_its_place(queues: list[dict[str, object]], problem: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_config({"queues": queues}, "c.yaml")
    assert problem in str(refused.value).replace("Value error, ", "")
