"""Rented machines and the jobs on them as attackers: what they answer, leave in files, and hold back (15 s).

Time is virtual where the machine is a stand-in; agents are real processes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.access.answers import ANSWER_BYTES, AnswerError, decoded, parse_exchange, visible
from starburst.clouds.sky.agent.protocol import LOG_BYTES
from starburst.clouds.sky.machines import fitness
from starburst.core.model.events import (
    InstanceGone,
    InstanceReachable,
    InstanceUnfit,
    InstanceUnreachable,
    RunEnd,
    RunEnded,
    RunStarted,
)
from tests.app.virtual import wall
from tests.clouds.sky.fake import FakeSky
from tests.clouds.sky.fake_vm import Vm
from tests.clouds.sky.life import Life, of, play, ready, run_of

A, B = "a/1/0", "b/1/0"
EVIL: tuple[Any, ...] = (
    {"evil": 1},
    [1],
    "x" * 100_000,
    {"exit_code": "0", "signal": None, "ended_by": "itself", "message": "", "started_at": 0, "ended_at": 0},
    {"exit_code": 0, "signal": None, "ended_by": "me", "message": "", "started_at": 0, "ended_at": 0},
    {
        "exit_code": 0,
        "signal": None,
        "ended_by": "itself",
        "message": "\x1b]0;owned\x07",
        "started_at": 0,
        "ended_at": 1e300,
    },
)

Forge = Callable[[Vm, dict[str, Any]], Any]


def tampering(name: str, **changes: Any) -> Forge:
    """Machines tell other things of this task."""

    def forge(_vm: Vm, answer: dict[str, Any]) -> Any:
        if name in answer["ranks"]:
            answer["ranks"][name] |= changes
        return answer

    return forge


async def two_jobs(life: Life, work_s: float = 20) -> None:
    await ready(life)
    await life.cloud.start(run_of("a", work_s, 0, 1))
    await life.cloud.start(run_of("b", work_s, 0, 1))
    for job in "ab":
        await life.heard(RunStarted, lambda event, job=job: event.job_id == job)  # type: ignore[misc]


# --- what a machine answers -------------------------------------------------------------------------------


@pytest.mark.parametrize("evil", EVIL)
def test_an_exit_that_is_none_is_a_killed_supervisor_of_that_run_alone_also_after_a_restart(
    tmp_path: Path, evil: Any
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await two_jobs(life)
        sky.forge = tampering(A, over=True, exit=evil)
        lost = await life.heard(RunEnded, of("a"))
        assert (lost.end, lost.message) == (RunEnd.LOST, "its supervisor was killed")
        assert (await life.heard(RunEnded, of("b"))).exit_code == 0
        async with Life(sky, life.home) as second:
            assert (await second.heard(RunEnded, of("a"))).end is RunEnd.LOST

    play(tmp_path, story)


@pytest.mark.parametrize(
    "wrong",
    [
        {"over": "yes"},
        {"began": None},
        {"log": "no base64!"},
        {"log": base64.b64encode(zlib.compress(bytes(LOG_BYTES + 1))).decode()},
        {"log": base64.b64encode(zlib.compress(b"cut short" * 99)[:-4]).decode()},
        {"more": 1},
        {"report": 7},
        {"extra": 1},
    ],
)
def test_what_is_wrong_with_one_task_hides_nothing_of_the_others(tmp_path: Path, wrong: Any) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await two_jobs(life)
        sky.forge = tampering(A, **wrong)
        assert (await life.heard(RunEnded, of("b"))).exit_code == 0
        assert "a/1/0: its machine answered" in (await life.heard(InstanceUnreachable)).why
        assert not [end for end in life.of(RunEnded) if end.job_id == "a"], "unknown is not dead"
        sky.forge = None
        assert (await life.heard(RunEnded, of("a"))).exit_code == 0

    play(tmp_path, story)


@pytest.mark.parametrize(
    "answer",
    [
        [],
        None,
        {},
        {"booted_at": "now"},
        {"booted_at": float("nan")},
        {"host": "x\n-o ProxyCommand=evil"},
        {"address": "$(reboot)"},
        {"address": "::1%\n\x1b]0;x"},
        {"lapsed": 0},
        {"ranks": []},
        {"ranks": {A: None, B: 3}},
    ],
)
def test_a_machine_that_answers_nonsense_is_unreachable_and_no_other_is(tmp_path: Path, answer: Any) -> None:
    def forge(vm: Vm, truth: dict[str, Any]) -> Any:
        if vm.cluster.endswith("-i-2"):
            return truth
        return {**truth, **answer} if isinstance(answer, dict) and answer else answer

    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await ready(life, "i-2")
        for job, where in (("a", "i-1"), ("b", "i-2")):
            await life.cloud.start(run_of(job, 30, 0, 1, where))
        await life.heard(RunStarted, lambda event: event.job_id == "a")
        sky.forge = forge
        unreachable = await life.heard(InstanceUnreachable)
        assert unreachable.instance_id == "i-1"
        assert "its machine answered" in unreachable.why
        assert (await life.heard(RunEnded, of("b"))).exit_code == 0
        await life.cloud.terminate("i-1")  # as the core does it after the grace
        assert (await life.heard(InstanceGone)).instance_id == "i-1"
        assert (await life.heard(RunEnded, of("a"))).end is RunEnd.LOST

    play(tmp_path, story)


def test_the_lease_of_a_machine_whose_exchanges_fail_is_not_renewed_so_that_its_keeper_ends_it(
    tmp_path: Path,
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("a", 500))
        await life.heard(RunStarted)
        sky.forge = lambda _vm, _answer: {"half": "an answer"}
        await life.heard(InstanceUnreachable)
        until = sky.vms[0].lease_until
        for _ in range(10):
            await life.cloud.renew(["i-1"])
            await asyncio.sleep(10)
        assert sky.vms[0].lease_until == until
        sky.forge = None
        await life.heard(InstanceReachable, lambda _event: True)
        await asyncio.sleep(30)
        assert sky.vms[0].lease_until > until, "who answers again is kept again"

    play(tmp_path, story)


def test_an_answer_is_bounded_and_its_words_do_nothing_to_a_terminal() -> None:
    with pytest.raises(AnswerError, match="more than 16 MiB"):
        decoded(b" " * (ANSWER_BYTES + 1))
    with pytest.raises(AnswerError, match=r"no JSON: \\x1b\[2J"):
        decoded(b"\x1b[2J")
    with pytest.raises(AnswerError, match="no JSON"):
        decoded(b"[" * 1_000_000)
    assert visible("\x1b]0;owned\x07\r\n\u202eevil") == r"\x1b]0;owned\x07\r\n\u202eevil"
    assert len(visible("x" * 10_000)) < 310
    with pytest.raises(AnswerError) as told:
        parse_exchange({"\x1b[31m": 1})
    assert str(told.value).isprintable()


def test_what_a_machine_says_of_a_refusal_is_shown_without_control_characters(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        sky.vms[0].refuses = "No space\x1b]0;owned\x07 left"
        await life.cloud.start(run_of("a", 500))
        unfit = await life.heard(InstanceUnfit)
        assert unfit.why == r"No space\x1b]0;owned\x07 left"

    play(tmp_path, story)


# --- a machine that takes no work -------------------------------------------------------------------------


def test_a_machine_that_starts_nothing_is_unfit_and_its_runs_are_free_to_start_elsewhere(
    tmp_path: Path,
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("runs", 400))
        await life.heard(RunStarted)
        sky.vms[0].refuses = "No space left"
        at = wall()
        await life.cloud.start(run_of("starts", 10))
        unfit = await life.heard(InstanceUnfit)
        assert (unfit.instance_id, unfit.why) == ("i-1", "No space left")
        assert wall() - at < fitness.UNFIT_S + 30
        end = await life.heard(RunEnded, of("starts"))
        assert (end.end, end.message) == (RunEnd.NOT_STARTED, "i-1 takes no work: No space left")
        assert sky.vms[0].tasks["starts/1/0"].begun == 0, "nothing of it can begin there any more"
        assert (await life.heard(RunEnded, of("runs"))).exit_code == 0
        await life.cloud.start(run_of("late", 10))
        assert (await life.heard(RunEnded, of("late"))).end is RunEnd.NOT_STARTED
        assert len(life.of(InstanceUnfit)) == 1

    play(tmp_path, story)


def test_a_machine_that_starts_nothing_for_a_minute_costs_no_machine(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        sky.vms[0].refuses = "No space left"
        await life.cloud.start(run_of("a", 10))
        await asyncio.sleep(60)
        sky.vms[0].refuses = ""
        assert (await life.heard(RunEnded)).exit_code == 0
        assert not life.of(InstanceUnfit)

    play(tmp_path, story)


def test_a_machine_that_is_cut_off_is_not_unfit_for_that(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        sky.vms[0].refuses = "No space left"
        await life.cloud.start(run_of("a", 10))
        await asyncio.sleep(60)
        sky.vms[0].plugged = False
        await asyncio.sleep(fitness.UNFIT_S)
        sky.vms[0].plugged, sky.vms[0].refuses = "No space left", False
        assert (await life.heard(RunEnded)).exit_code == 0
        assert not life.of(InstanceUnfit)

    play(tmp_path, story)


# --- notes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["no JSON", '{"ranks": 3}', "[]", '{"key": "run/a/1", "ranks": [{}]}', ""])
def test_a_note_that_cannot_be_read_is_the_loss_of_its_run_alone(tmp_path: Path, damage: str) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await two_jobs(life, 60)
        life._watch.cancel()
        (life.home / "notes" / "run%2Fa%2F1.json").write_text(damage)
        async with Life(sky, life.home) as second:
            lost = await second.heard(RunEnded, of("a"))
            assert (lost.end, lost.message) == (RunEnd.LOST, "its note cannot be read")
            assert (await second.heard(RunEnded, of("b"))).exit_code == 0

    play(tmp_path, story)


def test_a_run_whose_note_tells_only_where_it_is_ends_there_before_it_counts_as_lost(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await two_jobs(life, 300)
        life._watch.cancel()
        note = life.home / "notes" / "run%2Fa%2F1.json"
        note.write_text(json.dumps({**json.loads(note.read_text()), "stop": "never", "attempt": "one"}))
        async with Life(sky, life.home) as second:
            assert (await second.heard(RunEnded, of("a"))).end is RunEnd.LOST
            assert sky.vms[0].tasks[A].exit is not None, "no second copy can live beside it"

    play(tmp_path, story)
