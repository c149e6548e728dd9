"""The life of one container: its image, its start, its output, and how it ended.

The supervisor runs `contain` as the command of a task with an image, and ends it as any other; `contain`
hands a SIGTERM on by the engine, which knows the image's stop signal. Output goes from the engine's stream to
the task's log; the engine keeps none. Why a task ended, beyond its exit code, is left in `verdict.json`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from starburst.clouds.sky.agent.containers import prefetch
from starburst.clouds.sky.agent.containers.container_user import ContainerUser, container_user, make_own
from starburst.clouds.sky.agent.containers.egress import Egress
from starburst.clouds.sky.agent.containers.engine import (
    ACT_S,
    Engine,
    EngineError,
    EngineSilentError,
    NoEngineError,
    end_client,
    find_engine,
)
from starburst.clouds.sky.agent.containers.image import ImagePull, MachineShortError, is_short
from starburst.clouds.sky.agent.containers.images import note_image
from starburst.clouds.sky.agent.containers.options import TaskRefusedError, create_arguments
from starburst.clouds.sky.agent.containers.removal import CONTAINER, labelled, remove
from starburst.clouds.sky.agent.containers.variables import given, take_secrets
from starburst.clouds.sky.agent.containers.volume_files import write_files
from starburst.clouds.sky.agent.protocol import ContainerSpec
from starburst.clouds.sky.agent.task_dirs import WAITS, facts, is_free, rank_dir, task_name
from starburst.runs.supervisor.exits import LOSS, OUT_OF_MEMORY, REFUSAL, VERDICT, message_of
from starburst.runs.supervisor.files import FULL_DISK, read_json, retry_while_full, write_json, write_reserved
from starburst.runs.supervisor.files import remove as remove_file

#: Logins of registries, until the image is here.
LOGINS = "logins.json"
#: Seconds for a silent engine to come back; between attempts; between looks at a new container.
ENGINE_S, AGAIN_S, LOOK_S = 120.0, 1.0, 0.1
#: Seconds between looks at a client and at what listens, beside the signals that tell of a client's end.
IDLE_S = 15.0
#: Exit code of a task that was told to end before its container ran; as of a shell.
TERMINATED = 128 + signal.SIGTERM
#: Seconds that an engine may take to stop a container: the supervisor ends the grace.
UNTIL_KILLED_S = 86_400


class ToldToEndError(Exception):
    """The task was told to end before its container ran."""


class ContainerGoneError(Exception):
    """The container was taken away, or its engine died."""


@dataclass(frozen=True)
class ContainerState:
    """How a container stands, by its engine."""

    id: str
    #: created, running, exited, …
    status: str
    began: bool
    exit_code: int
    oom_killed: bool
    error: str


def contain(path: str) -> NoReturn:
    """Run the container of a task to its end, as the main function of this process."""
    spec: dict[str, Any] = {}
    # an error here would count as an exit code of the job's own
    retry_while_full(lambda: spec.update(read_json(os.path.join(path, "spec.json"))))
    sys.exit(ContainerLife(path, spec, Signals()).run())


class Signals:
    """Waits that a SIGTERM or the end of a child ends. Children have their signals as usual."""

    def __init__(self) -> None:
        self.told_to_end = False
        self._heard, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._told)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def wait(self, seconds: float) -> None:
        """Wait until a signal comes, but no longer than this."""
        if select.select([self._heard], [], [], seconds)[0]:
            os.read(self._heard, 4096)

    def _told(self, *_: object) -> None:
        self.told_to_end = True


class ContainerLife:
    """The container of one task. `run` is called once."""

    def __init__(self, path: str, spec: dict[str, Any], signals: Signals) -> None:
        self.path = path
        self.signals = signals
        self.box = cast("ContainerSpec", spec["docker"])
        self.known: dict[str, str] = spec["docker"]["here"]
        self.secrets: dict[str, str] = {}
        self.engine = Engine("docker", ("docker",))
        #: The engine is, or was when the container ended, dead: that did not end by itself.
        self.engine_died = False
        self.egress = Egress(self.engine)
        self._told = ""
        self._stopper: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """The exit code of the task."""
        try:
            self.secrets = take_secrets(self.path)
            return self._run()
        except ToldToEndError:
            return TERMINATED
        except TaskRefusedError as error:
            return self._verdict(LOSS if is_short(str(error)) else REFUSAL, str(error))
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise
            return self._verdict(LOSS, f"its machine is short of something: {error}")
        except (ContainerGoneError, MachineShortError, NoEngineError, EngineSilentError) as error:
            return self._verdict(LOSS, str(error))
        finally:
            remove_file(os.path.join(self.path, LOGINS))

    def _run(self) -> int:
        give_up = time.monotonic() + ENGINE_S
        while True:
            try:
                self.engine = find_engine()
                self._make()
                break
            except EngineSilentError as error:
                if time.monotonic() >= give_up:
                    raise
                self.tell(f"ContainerRuntimeNotReady: {error}")
                self.wait(AGAIN_S)
        state = self._follow()
        self._remove()
        if self.engine_died:  # an engine that stops ends its containers, which may save and exit with 0
            raise ContainerGoneError(f"{self.engine.name} died, and its container with it")
        if state.oom_killed and state.exit_code:
            what = "its memory limit" if "--memory" in self.box["options"] else "memory"
            return self._verdict("", f"{OUT_OF_MEMORY} {what}", state.exit_code)
        return state.exit_code

    # --- the start ---------------------------------------------------------------------------------------

    def _make(self) -> None:
        """Have the image here and the container made.

        Raises:
            TaskRefusedError: the image cannot be had, or no container can be made of it.
        """
        logins = (facts(os.path.join(self.path, LOGINS)) or {}).get("logins", [])
        image, policy = self.box["image"], self.box.get("pull", "IfNotPresent")
        prefetch.await_end(image, self.tell, self.wait)
        pull = ImagePull(self.engine, image, policy, logins, self.path, self.tell, self.wait)
        note_image(self.engine, image, pull.ensure())
        self._remove_orphans()
        try:
            user = container_user(self.engine, self.box)
            self._check_user(user)
            write_files(self.path)
            make_own(self.path, self.engine, user, self.known["@CHECKPOINTS@"])
            self.egress = Egress(self.engine)
            parent = self.egress.close()
            with given(self.path, self.box["env"], self.secrets) as (options, env):
                own = self.path, self.engine, self.box, self.known, options
                made = self.engine.ask(
                    "create", *create_arguments(*own, parent=parent), seconds=ACT_S, env=env
                )
        except EngineError as error:
            raise TaskRefusedError(f"CreateContainerError: {error}") from error
        write_json(os.path.join(self.path, CONTAINER), {"id": made.split()[-1] if made.split() else ""})

    def _check_user(self, user: ContainerUser) -> None:
        """Kubernetes' runAsNonRoot, which only the image can answer where the job names no user."""
        if self.box.get("non_root") and user.is_root:
            why = "container has runAsNonRoot and image will run as root"
            raise TaskRefusedError(f"CreateContainerConfigError: {why}; set runAsUser")

    def _remove_orphans(self) -> None:
        """Remove containers whose tasks are over: what ran them was killed."""
        try:
            for name, task in labelled(self.engine):
                if task == task_name(self.path) or (task.count("/") == 2 and is_free(rank_dir(task))):
                    remove(self.engine, name)
        except EngineError:  # it does not list them: the next task tries again
            return

    # --- the run -----------------------------------------------------------------------------------------

    def _follow(self) -> ContainerState:
        """Start the container and hand on its output until it has ended.

        Raises:
            TaskRefusedError: it cannot be started.
            ContainerGoneError: it is not there any more, or its engine does not come back.
        """
        client = self._attach("start", "--attach")
        while True:
            self._await(client)
            state = self._state_when_back()
            if not state.began:
                raise TaskRefusedError(f"RunContainerError: {state.error or 'the engine did not start it'}")
            if state.status not in ("running", "paused", "restarting", "removing"):
                self._has_begun()
                return state
            self.engine_died = False
            print("starburst: the engine was away; output of that time is not here", flush=True)
            client = self._attach("attach", "--no-stdin", "--sig-proxy=false")

    def _attach(self, *verb: str) -> subprocess.Popen[bytes]:
        """A client that writes the container's output to the log."""
        argv = self.engine.command(*verb, self.box["name"])
        return _started(argv, None)

    def _await(self, client: subprocess.Popen[bytes]) -> None:
        """Wait for the client's end; note the container's start, and hand a SIGTERM on."""
        while client.poll() is None:
            waiting = os.path.exists(os.path.join(self.path, WAITS))
            if waiting and self._state_now().began:
                self._has_begun()
                waiting = False
            if self.signals.told_to_end and not waiting:
                self._stop()
            self.signals.wait(LOOK_S if waiting else IDLE_S)
            if not waiting:
                self.egress.close_again()

    def _stop(self) -> None:
        if self._stopper is None:
            argv = self.engine.command("stop", "-t", str(UNTIL_KILLED_S), self.box["name"])
            self._stopper = _started(argv, subprocess.DEVNULL)

    def _state_now(self) -> ContainerState:
        """How the container stands; as if it had not begun while the engine does not say."""
        try:
            return inspect(self.engine, self.box["name"])
        except (EngineError, EngineSilentError):
            return ContainerState("", "created", False, 0, False, "")

    def _state_when_back(self) -> ContainerState:
        """How the container stands, once the engine answers."""
        give_up = time.monotonic() + ENGINE_S
        while True:
            try:
                return inspect(self.engine, self.box["name"])
            except EngineError as error:
                raise ContainerGoneError(f"its container was removed: {error}") from error
            except EngineSilentError as error:
                self.engine_died = True
                if time.monotonic() >= give_up:
                    raise ContainerGoneError(f"{self.engine.name} died: {error}") from error
                time.sleep(AGAIN_S)

    def _remove(self) -> None:
        if self._stopper is not None:
            end_client(self._stopper)
        try:
            remove(self.engine, self.box["name"])
        except EngineSilentError:  # what runs the task tries again, and so does every look at it
            return

    # --- what is told ------------------------------------------------------------------------------------

    def tell(self, why: str) -> None:
        """Note why the task has not started yet."""
        if why != self._told:
            self._told = why
            write_json(os.path.join(self.path, WAITS), {"why": message_of(why)})

    def _has_begun(self) -> None:
        remove_file(os.path.join(self.path, WAITS))

    def wait(self, seconds: float) -> None:
        """Wait.

        Raises:
            ToldToEndError: a SIGTERM came.
        """
        until = time.monotonic() + seconds
        while not self.signals.told_to_end and (left_s := until - time.monotonic()) > 0:
            self.signals.wait(left_s)
        if self.signals.told_to_end:
            raise ToldToEndError

    def _verdict(self, ended_by: str, message: str, code: int = 1) -> int:
        """Leave a message for the exit, and whose doing it was; "" is the command's own.

        Without it the exit code would count as the job's own: it is retried until it is written, or until
        what runs the task has killed this process.
        """
        said = {"ended_by": ended_by, "message": message_of(message)}
        retry_while_full(lambda: write_reserved(os.path.join(self.path, VERDICT), said))
        return code


def inspect(engine: Engine, name: str) -> ContainerState:
    """How a container stands.

    Raises:
        EngineError: there is none.
        EngineSilentError: the engine does not answer.
    """
    answer = engine.ask("container", "inspect", name)
    try:
        found = json.loads(answer)[0]
        state = found["State"]
        return ContainerState(
            id=str(found["Id"]),
            status=str(state["Status"]),
            began=not str(state["StartedAt"]).startswith("0001-"),
            exit_code=int(state["ExitCode"]) & 0xFF,
            oom_killed=bool(state["OOMKilled"]),
            error=str(state.get("Error") or ""),
        )
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise EngineSilentError(f"{engine.name} answers no state: {error}") from error


def _started(argv: list[str], output: int | None) -> subprocess.Popen[bytes]:
    """A client in a session of its own, to which no signal of the task's group comes."""
    return subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
    )
