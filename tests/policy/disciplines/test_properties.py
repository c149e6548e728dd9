"""What holds for every history of arrivals, sizes and service times."""

from __future__ import annotations

import pytest
from hypothesis import given

from starburst.policy.disciplines.configurations import LARGE
from starburst.policy.disciplines.discipline import Discipline
from starburst.policy.disciplines.partition import Partition
from starburst.policy.disciplines.vqs import VirtualQueues
from starburst.policy.disciplines.vqs_bf import VirtualQueuesBestFit
from tests.policy.disciplines import definitions as by_definition
from tests.policy.disciplines.drive import DISCIPLINES, LEVELS, History, histories, slots

WORK_CONSERVING = ("bf-j", "bf-s", "bf-j/s", "vqs-bf")


def plain(name: str, history: History) -> Discipline:
    args = history.servers, history.capacity
    match name:
        case "fifo-ff":
            return by_definition.Fifo(*args)
        case "bf-j":
            return by_definition.Jobs(*args)
        case "bf-s":
            return by_definition.Servers(*args)
        case "bf-j/s":
            return by_definition.Both(*args)
        case "vqs":
            return by_definition.Virtual(*args, LEVELS)
        case _:
            return by_definition.VirtualBestFit(*args, LEVELS)


@pytest.mark.parametrize("name", [name for name in DISCIPLINES if "stalling" not in name])
@given(history=histories())
def test_every_discipline_starts_what_its_definition_starts_where_and_when(
    name: str, history: History
) -> None:
    real = slots(history, DISCIPLINES[name](history.servers, history.capacity))
    for account, expected in zip(real, slots(history, plain(name, history)), strict=True):
        assert sorted(account.starts) == sorted(expected.starts)


@pytest.mark.parametrize("name", DISCIPLINES)
@given(history=histories())
def test_no_server_holds_more_than_its_capacity_and_every_job_runs_to_its_end(
    name: str, history: History
) -> None:
    discipline = DISCIPLINES[name](history.servers, history.capacity)
    account = None
    for account in slots(history, discipline):
        assert min(map(account.free, range(history.servers))) >= 0
        assert len(discipline) == len(account.waiting)
    assert account is None or account.done == len(history.jobs)


@pytest.mark.parametrize("name", WORK_CONSERVING)
@given(history=histories())
def test_nothing_that_waits_fits_any_server_at_the_end_of_a_slot(name: str, history: History) -> None:
    for account in slots(history, DISCIPLINES[name](history.servers, history.capacity)):
        most = max(map(account.free, range(history.servers)))
        assert all(size > most for size in account.waiting.values())


@pytest.mark.parametrize("stall", [0.0, 0.5])
@given(history=histories())
def test_vqs_stays_within_the_configuration_a_server_took_when_it_was_empty(
    stall: float, history: History
) -> None:
    discipline = VirtualQueues(history.servers, history.capacity, levels=LEVELS, stall=stall)
    types = Partition(history.capacity, LEVELS)
    before = [None] * history.servers
    for account in slots(history, discipline):
        starting = [server for _, server in account.starts]
        for server, running in enumerate(account.running):
            chosen = discipline.configuration(server)
            if not running:
                assert chosen is None
                continue
            assert chosen is not None
            kinds = [types.kind(size) for size in running.values()]
            others = sum(size for size in running.values() if types.kind(size) != LARGE)
            assert set(kinds) <= ({LARGE, chosen.kind} if chosen.large else {chosen.kind})
            assert kinds.count(LARGE) <= chosen.large
            assert 3 * others <= (1 if chosen.large else 3) * history.capacity
            # Only a server all of whose jobs are new can have a new configuration.
            if starting.count(server) < len(running):
                assert chosen == before[server]
        before = [discipline.configuration(server) for server in range(history.servers)]


@given(history=histories())
def test_vqs_bf_keeps_its_configuration_until_the_server_is_empty(history: History) -> None:
    discipline = VirtualQueuesBestFit(history.servers, history.capacity, levels=LEVELS)
    before = [discipline.configuration(server) for server in range(history.servers)]
    for account in slots(history, discipline):
        starting = [server for _, server in account.starts]
        for server, running in enumerate(account.running):
            if starting.count(server) < len(running):
                assert discipline.configuration(server) == before[server]
        before = [discipline.configuration(server) for server in range(history.servers)]
