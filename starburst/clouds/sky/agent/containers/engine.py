"""The container engine of a machine, docker or podman, asked by its command line.

Docker answers through a daemon: as root by `sudo -n` where the machine's user is not in its group. Podman has
no daemon; as root it is used where sudo needs no password, since a user's own podman may lack cgroups.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

#: Seconds for a call that only asks, and for one that makes, starts or removes a container.
ASK_S, ACT_S = 20.0, 120.0
#: Seconds for which one that let a call time out is not asked again: an exchange asks for each of its tasks.
HUNG_S = 25.0
#: Characters of the engine's words that a message holds.
MAX_WORDS = 600

#: What clients say when their daemon does not answer.
_SILENT = ("cannot connect to the docker daemon", "error during connect", "is the docker daemon running")
_SUDO = ("sudo", "-n")
#: When the last call of an engine timed out in this process, by what stands before a subcommand.
_hung_at: dict[tuple[str, ...], float] = {}


class EngineError(Exception):
    """The engine refused; the message is its own words."""


class EngineSilentError(Exception):
    """The engine does not answer; what it would say is unknown."""


class NoEngineError(Exception):
    """The machine has no engine."""


@dataclass(frozen=True)
class Engine:
    """One engine. `name` is docker or podman, `argv` what stands before a subcommand."""

    name: str
    argv: tuple[str, ...]

    @property
    def is_root(self) -> bool:
        """Whether containers are made by root, who may use every control group."""
        return self.name == "docker" or os.geteuid() == 0 or self.argv[0] == "sudo"

    def command(self, *args: str, keep: Collection[str] = ()) -> list[str]:
        """A command line; variables that it is to `keep` pass sudo, too."""
        argv = list(self.argv)
        if keep and argv[0] == "sudo":
            argv.insert(2, f"--preserve-env={','.join(keep)}")
        return [*argv, *args]

    def ask(self, *args: str, seconds: float = ASK_S, env: Mapping[str, str] = {}) -> str:
        """What the engine prints, with `env` in the environment of its client.

        Raises:
            EngineError: it refused.
            EngineSilentError: it did not answer, or had not `HUNG_S` ago.
        """
        if time.monotonic() < _hung_at.get(self.argv, -math.inf) + HUNG_S:
            raise EngineSilentError(f"{self.name} does not answer: its last call timed out")
        try:
            done = subprocess.run(
                self.command(*args, keep=sorted(env)),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
                env={**os.environ, **env},
                start_new_session=True,  # a signal to the task's group is not for it
            )
        except (subprocess.TimeoutExpired, OSError) as error:
            if isinstance(error, subprocess.TimeoutExpired):
                _hung_at[self.argv] = time.monotonic()
            raise EngineSilentError(f"{self.name} does not answer: {error}"[:MAX_WORDS]) from error
        if done.returncode:
            raise failure(done.stderr)
        return done.stdout

    def has_image(self, image: str) -> bool:
        """Whether the machine has an image.

        Raises:
            EngineSilentError: it did not answer.
        """
        try:
            self.ask("image", "inspect", "--format", "{{.Id}}", image)
        except EngineError:
            return False
        return True

    def pull(self, image: str, logins: str | None) -> list[str]:
        """The command line that pulls an image; `logins` is a directory with a config.json, or None."""
        if self.name == "docker":
            config = () if logins is None else ("--config", logins)
            return self.command(*config, "pull", image)
        authfile = () if logins is None else ("--authfile", os.path.join(logins, "config.json"))
        return self.command("pull", *authfile, full_name(image))

    def gpus(self, indexes: str) -> list[str]:
        """The options that give a container these GPUs, such as 0,2; every other one is hidden from it.

        An image of NVIDIA's asks for all GPUs by a variable of its own, which some engines follow.
        """
        if not indexes:
            return ["-e", "NVIDIA_VISIBLE_DEVICES=void"]
        if self.name == "docker":
            return ["--gpus", f'"device={indexes}"']  # read as CSV by the client: quotes keep the commas
        devices = [part for index in indexes.split(",") for part in ("--device", f"nvidia.com/gpu={index}")]
        return [*devices, "-e", f"NVIDIA_VISIBLE_DEVICES={indexes}"]


def find_engine(seconds: float = ASK_S) -> Engine:
    """The engine of this machine, which has so many seconds to answer.

    Raises:
        NoEngineError: there is none.
        EngineSilentError: there is one that does not answer.
    """
    silent = ""
    for program in ("docker", "podman"):
        if shutil.which(program) is None:
            continue
        for prefix in _prefixes(program):
            name = _maker(program)
            # What podman warns of would stand in the output of tasks.
            quiet = ("--log-level=error",) if name == "podman" else ()
            engine = Engine(name, (*prefix, program, *quiet))
            try:
                engine.ask("version", seconds=seconds)
                return engine
            except (EngineError, EngineSilentError) as error:
                silent = silent or str(error)
    if silent:
        raise EngineSilentError(silent)
    raise NoEngineError("the machine has no container engine, neither docker nor podman")


def failure(words: str) -> EngineError | EngineSilentError:
    """What an engine's client says on stderr, as an error."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    told = next((line for line in lines if "rror" in line), lines[-1] if lines else "no reason given")
    told = "".join(char for char in told if char.isprintable())[:MAX_WORDS]
    is_silent = any(phrase in words.lower() for phrase in _SILENT)
    return EngineSilentError(told) if is_silent else EngineError(told)


def end_client(client: subprocess.Popen[Any]) -> None:
    """SIGKILL a client that leads a session of its own, and all of that session, and reap it."""
    if client.poll() is None:
        kill(-client.pid)
    client.wait()


def kill(pid: int) -> None:
    """SIGKILL a process, or a group by its negative number; by sudo if it is root's."""
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:
        argv = ["sudo", "-n", "kill", "-9", "--", str(pid)]
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(argv, stderr=subprocess.DEVNULL, timeout=ASK_S, check=False)
    except ProcessLookupError:
        return


def full_name(image: str) -> str:
    """An image's name with its registry, as Kubernetes completes it; podman completes none by itself."""
    host, slash, _ = image.partition("/")
    if slash and (set(host) & {".", ":"} or host == "localhost"):
        return image
    return f"docker.io/{image}" if slash else f"docker.io/library/{image}"


def _maker(program: str) -> str:
    """The engine behind a program: podman may go by docker's name."""
    try:
        done = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASK_S,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError):
        return program
    return "podman" if "podman" in (done.stdout + done.stderr).lower() else program


def _prefixes(program: str) -> list[tuple[str, ...]]:
    """What to put before a program, in the order of trial."""
    if os.geteuid() == 0 or shutil.which("sudo") is None:
        return [()]
    return [(), _SUDO] if program == "docker" else [_SUDO, ()]
