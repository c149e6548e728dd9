"""A machine with the agent: a home directory of its own, in which real processes run."""

from __future__ import annotations

import base64
import io
import json
import marshal
import os
import shutil
import subprocess
import sys
import time
import zipfile
import zlib
from contextlib import suppress
from functools import cache
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from typing import Any

from starburst.clouds.sky.access.agent_archive import agent_archive
from starburst.runs.supervisor.lease import boot_id

NAME = "a/1/0"
#: Seconds for what is about to happen, on a machine that is busy with other tests.
PATIENCE_S = 100


def let_accounts_reach(home: Path) -> None:
    """Open what is above a home, as it is on a machine; pytest's directories are closed to other accounts."""
    for above in home.parents:
        if not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o001)


@cache
def compiled_archive() -> bytes:
    """The agent, its modules also compiled: else each of its many processes here compiles them all anew."""
    made = io.BytesIO(agent_archive())
    with zipfile.ZipFile(made, "a") as archive:
        for name in archive.namelist():
            source = archive.read(name)
            code = marshal.dumps(compile(source, name, "exec", dont_inherit=True))
            unchecked = MAGIC_NUMBER + (1).to_bytes(4, "little") + source_hash(source)  # see PEP 552
            archive.writestr(f"{name}c", unchecked + code)
    return made.getvalue()


def _command(process: Path) -> bytes:
    """The command line of a process in /proc. It is empty for the moment in which a program is exchanged for
    another, when who started it goes on already; what has ended and what is the kernel's has no program.
    """
    while not (words := (process / "cmdline").read_bytes()) and (process / "exe").exists():
        time.sleep(0.001)
    return words


class Machine:
    """A home directory with the agent in it, as `ssh.py` puts it there."""

    def __init__(self, home: Path, name: str = NAME) -> None:
        self.home, self.name = home, name
        self.agent = home / "agent.pyz"
        home.mkdir(parents=True)
        let_accounts_reach(home)
        self.agent.write_bytes(compiled_archive())
        self.program("iptables-restore", "exit 0")  # this host's own table is left alone
        self.program("ip6tables-restore", "exit 0")
        self.program("iptables", "exit 0")
        self.program("ip6tables", "exit 0")
        self.program("crontab", "exit 1")  # nor does this host's cron or systemd start a switch
        if (sudo := shutil.which("sudo")) is not None:
            self.program("sudo", f'case "$*" in "-n sh -c "*) exit 1;; esac\nexec {sudo} "$@"\n')
        self.path = f"{home / 'bin'}:{os.environ['PATH']}"
        self.dir = home / "starburst" / "runs" / name

    def argv(self, *args: str) -> list[str]:
        return [sys.executable, "-I", str(self.agent), *args]

    def exchange(self, of: str = "", **ask: Any) -> dict[str, Any]:
        """What is answered about one task: this machine's own unless it is named."""
        found: dict[str, Any] = self.answer(**ask)["ranks"].get(of or self.name, {})
        return found

    def answer(self, **ask: Any) -> dict[str, Any]:
        """A whole answer."""
        ask.setdefault("look", {self.name: 0})
        done = subprocess.run(
            self.argv("exchange"),
            input=json.dumps(ask),
            capture_output=True,
            text=True,
            check=True,
            env=self.env(),
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def start(self, *names: str) -> None:
        self.exchange(starts=[*names] or [self.name], look={})

    def finish(self, *names: str) -> None:
        """Start tasks, and wait until they are over and their runners have cleared up."""
        self.start(*names)
        for name in names or (self.name,):
            self.wait(name)

    def wait(self, name: str = "") -> None:
        end = time.monotonic() + PATIENCE_S
        while self.runners(name):
            assert time.monotonic() < end
            time.sleep(0.02)

    def runners(self, name: str = "") -> list[int]:
        """The processes that run a task."""
        words = f"run\0{self.home}/starburst/runs/{name or self.name}\0".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # gone meanwhile
                if words in _command(process):
                    found.append(int(process.name))
        return found

    def keeps_nobody_apart(self, why: str = "it has no sudo") -> None:
        """What was found out in this boot."""
        (self.home / "starburst").mkdir(exist_ok=True)
        found = {"boot": boot_id(), "tasks": why, "network": ""}
        (self.home / "starburst" / "separation.json").write_text(json.dumps(found))

    def has_gpus(self, count: int) -> None:
        lines = "".join(f"echo 'GPU {index}: NVIDIA V100 (UUID: x)'\n" for index in range(count))
        self.program("nvidia-smi", lines)

    def program(self, name: str, script: str) -> None:
        (self.home / "bin").mkdir(exist_ok=True)
        (self.home / "bin" / name).write_text(f"#!/bin/sh\n{script}")
        (self.home / "bin" / name).chmod(0o755)

    def env(self) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": self.path}

    def until(self, what: str) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE_S
        while not (state := self.exchange())[what]:
            assert time.monotonic() < end, state
            time.sleep(0.02)
        return state

    def until_exists(self, path: Path) -> None:
        end = time.monotonic() + PATIENCE_S
        while not path.exists():
            assert time.monotonic() < end
            time.sleep(0.02)

    def until_it_says(self, word: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while word not in text(self.exchange()):
            assert time.monotonic() < end
            time.sleep(0.02)


def spec(*command: str, gpus: int = 0, cpus: float = 0, docker: Any = None, **env: str) -> dict[str, Any]:
    return {
        "command": list(command),
        "cwd": None,
        "env": env,
        "gpus": gpus,
        "cpus": cpus,
        "checkpoints": "~/starburst/checkpoints/a",
        "docker": docker,
        "grace_s": 5.0,
        "time_limit_s": None,
    }


def text(state: dict[str, Any]) -> str:
    return zlib.decompress(base64.b64decode(state["log"])).decode()
