"""What goes into the store comes out the same, to the type."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from hashlib import blake2b
from math import inf
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starburst.core.model.actions import Action, LaunchInstance, Slot
from starburst.core.model.events import CancelRequested, Event, InstanceReady, JobSubmitted, SiteSynced, Tick
from starburst.core.model.jobs import JobRecord
from starburst.core.model.phases import OverBudget, Wait
from starburst.core.parts.instance_record import InstanceRecord
from starburst.core.views.snapshot import Facts
from starburst.domain.cloud import Offer, OfferRules
from starburst.domain.constraints import Rules
from starburst.domain.job import Job, Member, Phase, Site, Submission, Workload
from starburst.domain.money import Money
from starburst.domain.node import Node
from starburst.domain.resources import Resources
from starburst.store import codec
from starburst.store.errors import StoreError

st.register_type_strategy(int, st.integers(-(2**53), 2**53))
st.register_type_strategy(float, st.floats(allow_nan=False))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (JobRecord, st.builds(JobRecord)),
        (InstanceRecord, st.builds(InstanceRecord)),
        (Node, st.builds(Node)),
        (Offer, st.builds(Offer)),
        (Facts, st.builds(Facts)),
        (Submission, st.builds(Submission)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_record_comes_back_equal(kind: type, values: st.SearchStrategy[object]) -> None:
    @settings(max_examples=25)  # an example has dozens of fields
    @given(values)
    def check(value: object) -> None:
        back = codec.decode(kind, codec.encode(value))
        assert back == value
        assert repr(back) == repr(value)  # tuples, enums, money and floats, not what merely equals them
        assert codec.decode(kind, codec.encode_brief(value)) == value

    check()


def test_a_value_is_the_same_text_in_any_process() -> None:
    """The order of a set is that of its hashes, and of how it came to be."""
    names = [f"i-{number:06d}" for number in range(200)]
    grown = frozenset(names)
    shrunk = frozenset({*names, *map(str, range(5000))} - set(map(str, range(5000))))
    assert [*grown] != [*shrunk]
    one, other = (
        SiteSynced(Site.CLOUD, frozenset((i, 1) for i in known), known) for known in (grown, shrunk)
    )
    assert codec.encode(one) == codec.encode(other)
    assert codec.decode(SiteSynced, codec.encode(one)) == one
    sets = {
        kind for kind in get_args(Event | Action) if any("set[" in str(field.type) for field in fields(kind))
    }
    assert sets == {SiteSynced}


def test_a_brief_record_has_no_field_that_has_its_default() -> None:
    record = JobRecord(Job("a", "train", (Resources.of(1, 1),)), 7, 0.0, order_key=-inf)
    assert json.loads(codec.encode_brief(record)) == {
        "job": {"id": "a", "name": "train", "tasks": [{"gpus": 1, "cpu_milli": 1000}]},
        "seq": 7,
        "submitted_at": 0.0,
        "order_key": "-Infinity",
    }


def test_infinity_comes_back_from_brief_records_too() -> None:
    obstacle = OverBudget("daily", inf, inf, "too dear")
    record = JobRecord(Job("a", "train", (), max_wait_s=inf), 1, 0.0, not_before=inf, obstacle=obstacle)
    assert codec.decode(JobRecord, codec.encode_brief(record)) == record


def test_the_defaults_that_stored_records_leave_out_are_these() -> None:
    """Another default changes the meaning of stored jobs: it needs a migration that writes the old one."""
    kinds = (Job, JobRecord, Workload, Resources, Rules, OfferRules, Member, Slot, Submission, Wait)
    told = [
        f"{kind.__name__}.{f.name}={f.default!r}"
        for kind in kinds
        for f in fields(kind)
        if f.default is not MISSING
    ]
    assert blake2b("\n".join(told).encode(), digest_size=8).hexdigest() == "d3cf9876651b0772"


@given(st.one_of(st.builds(kind) for kind in get_args(Event)))
def test_every_event_comes_back_equal(event: Event) -> None:
    assert codec.event(type(event).__name__, codec.encode(event)) == event


@given(st.one_of(st.builds(kind) for kind in get_args(Action)))
def test_every_action_comes_back_equal(action: Action) -> None:
    assert codec.action(type(action).__name__, codec.encode(action)) == action


@settings(max_examples=25)
@given(st.one_of(st.builds(JobRecord), st.builds(Submission), *(st.builds(kind) for kind in get_args(Event))))
def test_the_text_is_strict_json(value: object) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    json.loads(codec.encode(value), parse_constant=refuse)


def test_an_infinite_deadline_survives() -> None:
    record = JobRecord(Job("a", "a", (Resources.of(1),)), 1, 0.0)
    assert codec.decode(JobRecord, codec.encode(record)).deadline == float("inf")


def test_types_survive_that_json_does_not_have() -> None:
    record = JobRecord(Job("a", "a", (Resources.of(1),)), 1, 0.0, phase=Phase.RUNNING, site=Site.CLOUD)
    back = codec.decode(JobRecord, codec.encode(record))
    assert (back.phase, back.site, type(back.job.tasks)) == (Phase.RUNNING, Site.CLOUD, tuple)
    assert codec.decode(Facts, codec.encode(Facts(settled=Money(7)))).settled == Money(7)


@pytest.mark.parametrize(
    ("thing", "subject"),
    [
        (JobSubmitted(Job("a", "a", (Resources.of(1),))), "a"),
        (CancelRequested("a"), "a"),
        (InstanceReady("i-1", 0.0), "i-1"),
        (SiteSynced(Site.CLOUD, frozenset()), "cloud"),
        (Tick(), ""),
        (LaunchInstance("i-1", "small"), "i-1"),
    ],
)
def test_a_log_line_says_whom_it_is_about(thing: Event | Action, subject: str) -> None:
    assert codec.subject(thing) == subject


def test_a_record_of_another_version_is_named() -> None:
    with pytest.raises(StoreError, match=r"holds a Node that this version cannot read: capacity.gpus: .*'x'"):
        codec.decode(Node, '{"name": "n", "capacity": {"gpus": "x"}}')


def test_an_event_of_another_version_is_named() -> None:
    with pytest.raises(StoreError, match="holds an event 'Eclipse', which this version does not know"):
        codec.event("Eclipse", "{}")
