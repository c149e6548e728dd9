"""The way to a machine, with a stand-in for ssh that stays on this one (4 s in all)."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from starburst.clouds.sky.access import ssh
from starburst.clouds.sky.access.agent_archive import agent_archive, agent_path
from starburst.clouds.sky.access.ports import Access, LocalError, SkyError, SkyUnreachableError
from starburst.clouds.sky.access.programs import communicate, pipe, within
from starburst.clouds.sky.access.ssh import SshTransport

pytestmark = pytest.mark.processes

T = TypeVar("T")
ACCESS = Access("10.0.0.1", "ubuntu", "the key\n", proxy_command="tunnel %h %p")

SSH = """#!/bin/bash
printf '%s\\n' "$*" | head -1 >>"$SEEN"
[ ! -e "$SEEN.down" ] || { echo "no route to host" >&2; exit 255; }
for part in "$@"; do
  case "$part" in
    UserKnownHostsFile=*) known="${part#*=}" ;;
    StrictHostKeyChecking=*) check="${part#*=}" ;;
    HostKeyAlias=*) alias="${part#*=}" ;;
  esac
done
key="$alias $(cat "$SEEN.key" 2>/dev/null || echo its-key)"
if [ "$check" = accept-new ] && [ ! -s "$known" ]; then
  echo "$key" >>"$known"
elif [ "$(cat "$known")" != "$key" ]; then
  echo "Host key verification failed." >&2; exit 255
fi
HOME=$MACHINE exec bash -c "${@: -1}"
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home directory of a machine."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ssh").write_text(SSH)
    (tmp_path / "bin" / "ssh").chmod(0o755)
    home = tmp_path / "machine"
    home.mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("MACHINE", str(home))
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    return home


@pytest.fixture
def contact(tmp_path: Path) -> Iterator[SshTransport]:
    made = SshTransport(tmp_path / "ours")
    yield made
    made.close()


def run(call: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(call)


def test_the_agent_is_put_there_when_it_is_missing_and_then_answers(
    contact: SshTransport, machine: Path
) -> None:
    for _ in range(2):
        assert run(contact.call("c", ACCESS, "exchange", {"lease_s": 100}))["ranks"] == {}
    agent = machine / agent_path().removeprefix("~/")
    assert agent.read_bytes() == agent_archive()
    assert (machine / "starburst" / "lease.json").is_file()


def test_a_login_beside_a_task_brings_the_agent_and_quotes_what_is_typed(
    contact: SshTransport, machine: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    argv = run(contact.enter("c", ACCESS, "a/1/0", ["echo", "$HOME; it's"]))
    assert argv[-1].endswith(shlex.quote("enter a/1/0 echo '$HOME; it'\"'\"'s'")[-30:])
    assert subprocess.run(argv, check=False).returncode == 125
    assert capfd.readouterr().err == "error: it does not run now\n"
    assert (machine / agent_path().removeprefix("~/")).read_bytes() == agent_archive()


def test_the_key_is_in_a_file_of_ours_alone_and_never_on_the_command_line(
    contact: SshTransport, machine: Path, tmp_path: Path
) -> None:
    run(contact.call("c", ACCESS, "exchange", {}))
    (key,) = (tmp_path / "ours" / "keys").iterdir()
    assert key.read_text() == ACCESS.private_key
    assert key.stat().st_mode & 0o077 == 0
    said = (tmp_path / "seen").read_text()
    assert f"IdentityFile={key}" in said
    assert "ProxyCommand=tunnel %h %p" in said
    assert "the key" not in said
    assert "the key" not in repr(ACCESS)


def test_a_machine_that_cannot_be_reached_is_told_from_an_agent_that_fails(
    contact: SshTransport, machine: Path, tmp_path: Path
) -> None:
    with pytest.raises(SkyError, match=r"c: the agent failed: .*KeyError") as failed:
        run(contact.call("c", ACCESS, "nonsense", {}))
    assert type(failed.value) is SkyError
    (tmp_path / "seen.down").touch()
    for call in (
        contact.call("c", ACCESS, "exchange", {}),
        contact.send("c", ACCESS, tmp_path, "~/x"),
        contact.fetch("c", ACCESS, "~/x", tmp_path / "y"),
    ):
        with pytest.raises(SkyUnreachableError, match="c: no route to host"):
            run(call)


def test_a_call_that_gets_no_answer_is_given_up(
    contact: SshTransport, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(contact.call("c", ACCESS, "exchange", {}))
    monkeypatch.setattr(ssh, "CALL_S", 0.2)
    monkeypatch.setattr(contact, "_agent", "~/sleeps")
    (machine / "sleeps").write_text("import time; time.sleep(60)")
    with pytest.raises(SkyUnreachableError, match=r"c: no answer within 0\.2 s"):
        run(contact.call("c", ACCESS, "exchange", {}))


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_ssh_has_the_umask_that_this_process_was_started_with_and_what_unpacks_here_has_not(
    loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    says, keeps = ["sh", "-c", "umask"], ["tee", str(tmp_path / "copy")]
    before = os.umask(0o077)  # as `starburst up` sets it for its own files
    try:
        with closing(loop()) as runs:
            _, out, _ = runs.run_until_complete(within(20, communicate(says, b""), "c"))
            runs.run_until_complete(within(20, pipe(says, keeps), "c"))
    finally:
        os.umask(before)
    assert int(out, 8) == before
    assert int((tmp_path / "copy").read_text(), 8) == 0o077


def test_a_program_that_is_not_there_is_told_by_its_name() -> None:
    with pytest.raises(LocalError, match=r"c: .*No such file or directory: 'no-such-program'"):
        run(within(20, communicate(["no-such-program"], b""), "c"))


def test_a_child_that_a_program_leaves_behind_holds_nobody_up() -> None:
    """As ssh's own master process of a shared connection, which may keep the output open for minutes."""
    leaves = ["bash", "-c", "cat; sleep 60 & echo $!; echo oh >&2; exit 3"]
    code, out, err = run(within(20, communicate(leaves, b"given "), "c"))
    given, pid = out.split()
    os.kill(int(pid), signal.SIGKILL)
    assert (code, given, err) == (3, b"given", b"oh\n")


def test_what_is_given_up_has_ended_before_anybody_goes_on() -> None:
    ended = []

    async def cleans_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("so has its program")

    async def main() -> None:
        with pytest.raises(SkyUnreachableError):
            await within(0, cleans_up(), "c")
        assert ended

    run(main())


def test_a_directory_goes_there_and_comes_back_whole(
    contact: SshTransport, machine: Path, tmp_path: Path
) -> None:
    here = tmp_path / "checkpoints" / "job"
    (here / "deep").mkdir(parents=True)
    (here / "deep" / "step").write_text("1")
    run(contact.send("c", ACCESS, here, "~/starburst/checkpoints/job"))
    there = machine / "starburst" / "checkpoints" / "job"
    (there / "deep" / "step").write_text("2")
    (there / "more").write_text("3")
    (here / "stale").write_text("0")
    run(contact.fetch("c", ACCESS, "~/starburst/checkpoints/job", here))
    assert {path.name: path.read_text() for path in here.rglob("*") if path.is_file()} == {
        "step": "2",
        "more": "3",
    }
    run(contact.send("c", ACCESS, here, "~/starburst/checkpoints/job"))
    assert [path.name for path in there.parent.iterdir()] == ["job"]
    assert [path.name for path in here.parent.iterdir()] == ["job"]


def test_what_the_machine_does_not_have_leaves_ours_as_it_was(
    contact: SshTransport, machine: Path, tmp_path: Path
) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "step").write_text("1")
    run(contact.fetch("c", ACCESS, "~/nothing", tmp_path / "kept"))
    assert (tmp_path / "kept" / "step").read_text() == "1"


def test_a_directory_that_cannot_be_read_whole_is_not_sent_for_whole(
    contact: SshTransport, machine: Path, tmp_path: Path
) -> None:
    """tar takes a pack that breaks off between two files for the end of it."""
    fails = "*-cf*) /bin/tar $* | head -c 512; echo 'tar: step: Cannot read' >&2; exit 2"
    (tmp_path / "bin" / "tar").write_text(f'#!/bin/sh\ncase $* in {fails};; esac\nexec /bin/tar "$@"\n')
    (tmp_path / "bin" / "tar").chmod(0o755)
    (tmp_path / "job").mkdir()
    with pytest.raises(LocalError, match="job cannot be packed: tar: step: Cannot read"):
        run(contact.send("c", ACCESS, tmp_path / "job", "~/starburst/checkpoints/job"))


def test_a_file_that_its_job_closed_to_itself_can_be_sent_again(
    contact: SshTransport, machine: Path, tmp_path: Path
) -> None:
    there = machine / "job"
    there.mkdir()
    (there / "step").write_text("1")
    (there / "step").chmod(0o000)
    run(contact.fetch("c", ACCESS, "~/job", tmp_path / "job"))
    assert (tmp_path / "job" / "step").stat().st_mode & 0o400
