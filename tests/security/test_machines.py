"""Rented machines and the jobs on them as attackers: what they answer, leave in files, and hold back (15 s).

Time is virtual where the machine is a stand-in; agents are real processes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from starburst.clouds.sky.access.answers import ANSWER_BYTES, AnswerError, decoded, tended, visible
from starburst.clouds.sky.access.ports import SkyError
from starburst.clouds.sky.agent import task_control
from starburst.clouds.sky.agent.protocol import LOG_BYTES
from starburst.clouds.sky.machines import fitness
from starburst.clouds.sky.runs import checkpoints, endings
from starburst.clouds.sky.runs.docker import container
from starburst.clouds.sky.runs.logs import Logs
from starburst.core.model.events import (
    InstanceGone,
    InstanceReachable,
    InstanceUnfit,
    InstanceUnreachable,
    RunEnd,
    RunEnded,
    RunStarted,
)
from starburst.domain.images import is_image
from starburst.domain.job import Workload
from starburst.domain.resources import Resources
from starburst.runs.attempt_dir import log_path
from tests.app.virtual import wall
from tests.clouds.sky.fake import FakeSky, Line, Vm
from tests.clouds.sky.life import Life, of, play, ready, run_of
from tests.clouds.sky.test_agent import Machine, spec
from tests.translator.manifests import errors
from tests.translator.manifests import job as translated

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
        tended({"\x1b[31m": 1})
    assert str(told.value).isprintable()


def test_what_a_machine_says_of_a_refusal_is_shown_without_control_characters(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("a", 500))
        sky.forge = tampering(A, known=False, trouble="No space\x1b]0;owned\x07 left")
        unfit = await life.heard(InstanceUnfit)
        assert unfit.why == r"No space\x1b]0;owned\x07 left"

    play(tmp_path, story)


# --- a machine that takes no work -------------------------------------------------------------------------


def test_a_machine_whose_queue_takes_nothing_is_unfit_and_its_runs_are_free_to_start_elsewhere(
    tmp_path: Path,
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("runs", 400))
        await life.heard(RunStarted)
        sky.vms[0].queue_down = True
        at = wall()
        await life.cloud.start(run_of("starts", 10))
        unfit = await life.heard(InstanceUnfit)
        assert (unfit.instance_id, unfit.why) == ("i-1", "Connection refused")
        assert wall() - at < fitness.UNFIT_S + 30
        end = await life.heard(RunEnded, of("starts"))
        assert (end.end, end.message) == (RunEnd.NOT_STARTED, "i-1 takes no work: Connection refused")
        assert sky.vms[0].tasks["starts/1/0"].begun == 0, "nothing of it can begin there any more"
        assert (await life.heard(RunEnded, of("runs"))).exit_code == 0
        await life.cloud.start(run_of("late", 10))
        assert (await life.heard(RunEnded, of("late"))).end is RunEnd.NOT_STARTED
        assert len(life.of(InstanceUnfit)) == 1

    play(tmp_path, story)


def test_a_queue_that_is_away_for_a_minute_costs_no_machine(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        sky.vms[0].queue_down = True
        await life.cloud.start(run_of("a", 10))
        await asyncio.sleep(60)
        sky.vms[0].queue_down = False
        assert (await life.heard(RunEnded)).exit_code == 0
        assert not life.of(InstanceUnfit)

    play(tmp_path, story)


def test_a_machine_that_is_cut_off_is_not_unfit_for_that(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        sky.vms[0].queue_down = True
        await life.cloud.start(run_of("a", 10))
        await asyncio.sleep(60)
        sky.vms[0].plugged = False
        await asyncio.sleep(fitness.UNFIT_S)
        sky.vms[0].plugged, sky.vms[0].queue_down = True, False
        assert (await life.heard(RunEnded)).exit_code == 0
        assert not life.of(InstanceUnfit)

    play(tmp_path, story)


# --- what is held back ------------------------------------------------------------------------------------


class Withheld(Line):
    """A machine that gives no checkpoints; `takes_s` is how long it takes about it."""

    takes_s = 0.0

    async def fetch(self, *_what: Any) -> None:
        self.sky.calls["fetch"] += 1
        await asyncio.sleep(self.takes_s)
        raise SkyError("tar: step: Cannot open: Permission denied")


@pytest.fixture
def withheld(monkeypatch: pytest.MonkeyPatch) -> type[Withheld]:
    monkeypatch.setattr("tests.clouds.sky.life.Line", Withheld)
    monkeypatch.setattr(Withheld, "takes_s", 0.0)
    return Withheld


def kept(life: Life) -> Path:
    """A checkpoint of before."""
    step = life.home / "checkpoints" / "a" / "step"
    step.parent.mkdir(parents=True)
    step.write_text("1")
    return step


def test_checkpoints_that_a_machine_does_not_give_are_lost_after_some_tries_and_the_end_is_known(
    tmp_path: Path, withheld: type[Withheld]
) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        step = kept(life)
        await ready(life)
        await life.cloud.start(run_of("a", 20, 3, checkpoint=True))
        end = await life.heard(RunEnded)
        assert (end.end, end.exit_code) == (RunEnd.EXITED, 3)
        assert "checkpoint lost: tar: step: Cannot open: Permission denied" in end.message
        assert sky.calls["fetch"] == checkpoints.TRIES
        assert step.read_text() == "1"
        assert "checkpoint lost" in log_path(life.home / "runs", "a", 1).read_text()
        await life.cloud.terminate("i-1")
        await life.heard(InstanceGone)
        assert not sky.alive()

    play(tmp_path, story)


def test_a_stop_outranks_checkpoints_that_take_for_ever(tmp_path: Path, withheld: type[Withheld]) -> None:
    withheld.takes_s = 1e6

    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        await life.cloud.start(run_of("a", 20, checkpoint=True))
        while not sky.calls["fetch"]:
            await asyncio.sleep(1)
        at = wall()
        await life.cloud.stop("a", 1, 30.0)
        end = await life.heard(RunEnded)
        assert (end.end, end.exit_code) == (RunEnd.EXITED, 0)
        assert wall() - at < 35

    play(tmp_path, story)


def test_a_run_that_was_stopped_has_minutes_and_a_second_stop_leaves_it_none(
    tmp_path: Path, withheld: type[Withheld]
) -> None:
    withheld.takes_s = 1e6

    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        for job in "ab":
            await life.cloud.start(run_of(job, 5000, checkpoint=True))
            await life.heard(RunStarted, lambda event, job=job: event.job_id == job)  # type: ignore[misc]
            await life.cloud.stop(job, 1, 5.0)
        at = wall()
        await asyncio.sleep(60)
        assert not life.of(RunEnded)
        await life.cloud.stop("b", 1, 0.0)
        await life.heard(RunEnded, of("b"))
        assert wall() - at < 70
        assert (await life.heard(RunEnded, of("a"))).end is RunEnd.STOPPED
        assert wall() - at < checkpoints.STOPPED_S + 20

    play(tmp_path, story)


def test_a_machine_that_says_for_ever_that_there_is_more_output_holds_no_run(tmp_path: Path) -> None:
    line = base64.b64encode(zlib.compress(b"x")).decode()

    async def story(life: Life, sky: FakeSky) -> None:
        await two_jobs(life)
        sky.forge = tampering(A, more=True)
        assert (await life.heard(RunEnded, of("a"))).exit_code == 0, "none came: there is no more"
        sky.forge = tampering(B, more=True, log=line)
        at = wall()
        await life.cloud.stop("b", 1, 5.0)
        await life.heard(RunEnded, of("b"))
        assert wall() - at < endings.DRAIN_S + 30

    play(tmp_path, story)


def test_a_machine_that_never_ends_what_it_is_told_to_end_is_unreachable(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await two_jobs(life, 5000)
        sky.forge = tampering(A, over=False, exit=None)
        at = wall()
        await life.cloud.stop("a", 1, 5.0)
        assert "does not end, though it was told to" in (await life.heard(InstanceUnreachable)).why
        assert wall() - at < endings.OVERDUE_S + 60
        await life.cloud.terminate("i-1")
        assert (await life.heard(RunEnded, of("a"))).end is RunEnd.STOPPED

    play(tmp_path, story)


def test_a_job_that_removes_its_own_directory_is_lost_and_is_not_started_there_again(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await two_jobs(life)
        sky.forge = tampering(A, known=False, began=False, started=False, over=False)
        end = await life.heard(RunEnded, of("a"))
        assert (end.end, end.message) == (RunEnd.LOST, "its files are gone from its machine")
        assert sky.vms[0].tasks[A].begun == 1
        assert (await life.heard(RunEnded, of("b"))).exit_code == 0

    play(tmp_path, story)


def test_a_log_without_end_fills_no_disk(tmp_path: Path) -> None:
    logs, path = Logs(tmp_path, most=1000), tmp_path / "log"
    while (seen := logs.seen(path)) is not None:
        logs.write(path, seen, b"x" * 300)
    logs.write(path, 1200, b"y" * 300)
    assert path.read_text() == "x" * 1000 + "\nstarburst: the log ends here, at 1000 bytes\n"


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


# --- a job's files on its machine: the real agent ---------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "home")


def all_of(machine: Machine, **ask: Any) -> dict[str, Any]:
    """A whole answer, of two tasks."""
    ask.setdefault("look", {A: 0, B: 0})
    argv = [sys.executable, "-I", str(machine.agent), "tend"]
    done = subprocess.run(
        argv, input=json.dumps(ask), capture_output=True, text=True, check=True, env=machine.env(), timeout=20
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


HOSTILE = {
    "exit.json is half a fact": "printf '{' >../exit.json",
    "exit.json is another's": "printf '{\"evil\":1}' >../exit.json",
    "exit.json is a directory": "mkdir ../exit.json",
    "exit.json is a pipe": "mkfifo ../exit.json",
    "exit.json is a link": "ln -s /dev/zero ../exit.json",
    "the log is a pipe": "rm ../log; mkfifo ../log",
    "the log is a device": "rm ../log; ln -s /dev/zero ../log",
    "the lock is a directory": "rm ../lock; mkdir ../lock",
    "spec.json is nonsense": "printf x >../spec.json",
    "stop.json is nonsense": "printf '[' >../stop.json",
    "cpus.json is nonsense": 'printf \'{"cpus":"all"}\' >../cpus.json',
}


@pytest.mark.processes
@pytest.mark.parametrize("trick", HOSTILE)
def test_what_a_job_does_to_its_files_hides_neither_its_end_nor_its_neighbours(
    machine: Machine, trick: str
) -> None:
    shell = f"{HOSTILE[trick]}; kill -9 $PPID"
    specs = {A: spec("sh", "-c", shell), B: spec("sh", "-c", "echo fine")}
    all_of(machine, lease_s=100, specs=specs, look={})
    for name in (A, B):
        machine.run(name).wait(20)
    for _ in range(100):  # what is left of the job is ended first
        answer = tended(all_of(machine), (A, B))
        if answer.tasks[A].over:
            break
    assert not answer.broken
    assert (answer.tasks[A].over, answer.tasks[A].exit) == (True, None)
    neighbour = answer.tasks[B].exit
    assert neighbour is not None
    assert (neighbour.exit_code, answer.tasks[B].log) == (0, b"fine\n")


@pytest.mark.processes
def test_nothing_lives_of_a_job_that_removed_its_directory_once_it_counts_as_over(machine: Machine) -> None:
    started = "until [ -e ~/starburst/runs/a/1/0/started.json ]; do sleep 0.05; done"
    shell = f"{started}; echo $$ >~/pid; rm -rf ~/starburst/runs/a; exec sleep 60"
    all_of(machine, lease_s=100, specs={A: {**spec("sh", "-c", shell), "cwd": "/"}}, look={})
    process = machine.run()
    while not (machine.home / "pid").exists() or (machine.home / "starburst" / "runs" / "a").exists():
        assert process.poll() is None
        time.sleep(0.02)
    for _ in range(100):
        state = all_of(machine, stops={A: 0.0}, look={A: 0})["ranks"][A]
        if state["over"]:
            break
    assert state["over"]
    pid = int((machine.home / "pid").read_text())
    stat = Path(f"/proc/{pid}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
    process.kill()
    process.wait(20)


@pytest.mark.processes
def test_the_lease_is_renewed_last_and_one_that_nobody_can_read_has_passed(machine: Machine) -> None:
    assert not all_of(machine, lease_s=100, look={})["lapsed"]
    (machine.home / "starburst" / "lease.json").write_text('{"until": "never"}')
    assert all_of(machine, lease_s=100, look={})["lapsed"]


@pytest.mark.processes
def test_a_stop_that_a_job_wrote_itself_gives_it_no_longer_grace(machine: Machine) -> None:
    shell = (
        "trap '' TERM; printf '{\"grace_s\": 1e9}' >../stop.json; touch ../ready; while :; do sleep 0.1; done"
    )
    machine.tend(lease_s=100, specs={A: spec("sh", "-c", shell)})
    process = machine.run()
    while not (machine.dir / "ready").exists():
        time.sleep(0.02)
    machine.tend(stops={A: 0.1})
    process.wait(20)
    assert machine.tend()["exit"]["signal"] == signal.SIGKILL


@pytest.mark.parametrize("pid", [-1, 0, 1, True, "1", 10**30])
def test_a_job_cannot_have_the_agent_signal_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pid: Any
) -> None:
    signalled: list[int] = []

    def kill(number: int, _signal: int) -> None:
        if not -(2**31) < number < 2**31:
            raise OverflowError
        signalled.append(number)

    monkeypatch.setattr(task_control.os, "kill", kill)
    (tmp_path / "started.json").write_text(json.dumps({"shim": pid}))
    task_control.tell(str(tmp_path), 1.0)
    assert signalled == []


@pytest.mark.processes
def test_output_is_bounded_however_many_tasks_there_are(machine: Machine) -> None:
    size = LOG_BYTES
    specs = {name: spec("sh", "-c", f"head -c {size} /dev/urandom") for name in (A, B)}
    all_of(machine, lease_s=100, specs=specs, look={})
    for name in (A, B):
        machine.run(name).wait(20)
    answer = all_of(machine)
    assert len(json.dumps(answer)) < ANSWER_BYTES / 2
    parts = tended(answer, (A, B)).tasks
    assert [(len(part.log), part.more) for part in parts.values()] == [(size // 2, True)] * 2


# --- words of a job that could be options -----------------------------------------------------------------


@pytest.mark.parametrize(
    "image",
    [
        "--volume=/:/host",
        "-v=/:/host",
        "",
        "busybox --privileged",
        "busybox\n--privileged",
        "Busybox",
        "a//b",
        "../b",
        "b:" + "x" * 129,
        "x" * 600,
    ],
)
def test_what_is_no_name_of_an_image_is_refused(image: str) -> None:
    assert not is_image(image)


@pytest.mark.parametrize(
    "image",
    [
        "busybox",
        "me/train:2",
        "localhost:5000/local/busybox:entry",
        "nvcr.io/nvidia/pytorch:24.05-py3",
        "[::1]:5000/a_b/c__d-e.f",
        "ghcr.io/Org.example/x".lower(),
        "busybox@sha256:" + "0" * 64,
        "registry.example.com:5000/a/b:v1.2_3@sha256:" + "f" * 64,
    ],
)
def test_names_of_images_are_taken(image: str) -> None:
    assert is_image(image)


def test_no_word_of_a_job_stands_where_an_option_could() -> None:
    workload = Workload(("--privileged", "--pid=host"), image="busybox", working_dir="--rm")
    rest = container("n", workload, Resources(), {}).rest
    assert rest == ["--workdir=--rm", "--entrypoint=--privileged", "--", "busybox", "--pid=host"]


def test_a_manifest_with_such_an_image_is_refused_at_submission() -> None:
    told = errors(translated("CONTAINER/image", "--volume=/:/host"))
    assert "is no name of an image: write it as registry/repository:tag" in str(told)


def test_a_run_of_such_an_image_is_refused_before_any_machine_hears_of_it(tmp_path: Path) -> None:
    async def story(life: Life, sky: FakeSky) -> None:
        await ready(life)
        made = run_of("a", 10)
        workload = Workload(made.workload.command, image="--volume=/:/host")
        await life.cloud.start(type(made)(made.job, 1, made.slots, workload))
        end = await life.heard(RunEnded)
        assert end.end is RunEnd.REFUSED
        assert "is no name of an image" in end.message
        assert not sky.vms[0].tasks

    play(tmp_path, story)
