"""The image of a task: pulled by the machine's engine, with the words and the pauses of a kubelet.

What the engine says is put behind Kubernetes' reason: ErrImagePull, then ImagePullBackOff while it pauses,
InvalidImageName, ErrImageNeverPull.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from starburst.clouds.sky.agent.containers.engine import (
    Engine,
    EngineSilentError,
    end_client,
    failure,
)
from starburst.clouds.sky.agent.containers.options import TaskRefusedError
from starburst.clouds.sky.agent.protocol import RegistryLogin
from starburst.clouds.sky.agent.task_dirs import REGISTRY
from starburst.runs.supervisor.files import open_private

#: Seconds of the first pause after a failed pull, which doubles, and of the longest; a kubelet's.
FIRST_PAUSE_S, LAST_PAUSE_S = 10.0, 300.0
#: Failed pulls until a task is refused if the registry says no; and seconds for everything else.
DEFINITE_TRIES, LIMIT_S = 3, 1800.0
#: Seconds between looks at a pull.
LOOK_S = 0.2

_INVALID = ("invalid reference format", "invalid image name")
_DEFINITE = (
    *("manifest unknown", "not found", "does not exist", "denied", "unauthorized", "no basic auth"),
    *("no matching manifest", "authentication required", "forbidden"),
)
_FULL = "no space left on device"
_LAYER = re.compile(r"^([0-9a-f]{12}): (.+)$")
_HERE = ("Pull complete", "Already exists")
_HUB = ("docker.io", "https://index.docker.io/v1/")

#: Waits so many seconds, or raises if the task is to end meanwhile.
Wait = Callable[[float], None]
#: Tells the scheduler why the task has not started yet.
Tell = Callable[[str], None]


class MachineShortError(Exception):
    """The machine has no room for the image; another one may have."""


@dataclass(frozen=True)
class ImagePull:
    """Has the image of one task on its machine. `path` is the task's directory."""

    engine: Engine
    image: str
    #: Kubernetes' imagePullPolicy.
    policy: str
    logins: Sequence[RegistryLogin]
    path: str
    tell: Tell
    wait: Wait

    def ensure(self) -> float | None:
        """Have the image on the machine, as the pull policy says; seconds of its pull, None if it was here.

        Raises:
            TaskRefusedError: it cannot be had; the message is Kubernetes' reason and the engine's words.
            MachineShortError: the machine has no room for it.
            EngineSilentError: the engine does not answer.
        """
        image = self.image
        here = self.engine.has_image(image)
        if here and self.policy != "Always":
            return None
        if self.policy == "Never":
            why = f'the image "{image}" is not on the machine, and imagePullPolicy is Never'
            raise TaskRefusedError(f"ErrImageNeverPull: {why}")
        give_up, pause_s, definite = time.monotonic() + LIMIT_S, FIRST_PAUSE_S, 0
        while True:
            began_at = time.monotonic()
            why = self.once()
            if not why:
                return None if here else time.monotonic() - began_at
            definite += any(phrase in why.lower() for phrase in _DEFINITE)
            back_off = f'ImagePullBackOff: Back-off pulling image "{image}": ErrImagePull: {why}'
            if definite >= DEFINITE_TRIES or time.monotonic() + pause_s >= give_up:
                raise TaskRefusedError(back_off)
            self.tell(f"{back_off}; pulled again after {pause_s:g} s")
            self.wait(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    def once(self) -> str:
        """Pull with one login after the other; "" if that went well, else what the engine said last.

        Raises:
            TaskRefusedError: the name is none.
            MachineShortError: the machine's disk is full.
            EngineSilentError: the engine does not answer.
        """
        why = ""
        for login in self.logins or (None,):
            folder = None if login is None else _log_in(self.path, login)
            try:
                why = self._pull(self.engine.pull(self.image, folder))
            finally:
                if folder is not None:
                    shutil.rmtree(folder, ignore_errors=True)
            if not why:
                return ""
        return why

    def _pull(self, argv: list[str]) -> str:
        """Run a pull, telling how many layers are here; "" if it went well, else why not.

        Raises:
            TaskRefusedError: the name is none.
            MachineShortError: the machine's disk is full.
        """
        self.tell(f'Pulling image "{self.image}"')
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )
        layers: dict[str, bool] = {}
        words: list[str] = []
        readers = [
            threading.Thread(target=_read_layers, args=(process.stdout, layers), daemon=True),
            threading.Thread(target=lambda: words.extend(process.stderr or ()), daemon=True),
        ]
        for reader in readers:
            reader.start()
        try:
            while process.poll() is None:
                if layers:
                    here, all_ = sum(list(layers.values())), len(layers)
                    self.tell(f'Pulling image "{self.image}": {here} of {all_} layers are here')
                self.wait(LOOK_S)
        finally:
            end_client(process)
            for reader in readers:
                reader.join()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        return "" if process.returncode == 0 else _why_not("".join(words), self.image)


def user_of(engine: Engine, image: str) -> str:
    """The user that an image names, "" for root.

    Raises:
        EngineError, EngineSilentError: the engine does not say.
    """
    return engine.ask("image", "inspect", "--format", "{{.Config.User}}", image).strip()


def is_short(said: str) -> bool:
    """Whether words of an engine tell that a disk of the machine is full."""
    return _FULL in said.lower()


def _why_not(words: str, image: str) -> str:
    error = failure(words)
    if isinstance(error, EngineSilentError):
        raise error
    said = str(error).lower()
    if any(phrase in said for phrase in _INVALID):
        raise TaskRefusedError(f'InvalidImageName: Failed to apply default image tag "{image}": {error}')
    if is_short(said):
        raise MachineShortError(f'Failed to pull image "{image}": {error}')
    return str(error)


def _read_layers(lines: Iterable[str], layers: dict[str, bool]) -> None:
    """Note which layers docker names, and which of them are here."""
    for line in lines:
        found = _LAYER.match(line)
        if found:
            layers[found[1]] = found[2].startswith(_HERE)


def _log_in(path: str, login: RegistryLogin) -> str:
    """A directory of the user's alone with a login, for one pull."""
    folder = os.path.join(path, REGISTRY)
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder, 0o700)
    told = base64.b64encode(f"{login['username']}:{login['password']}".encode()).decode()
    name = _HUB[1] if login["registry"] == _HUB[0] else login["registry"]
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8", opener=open_private) as file:
        json.dump({"auths": {name: {"auth": told}}}, file)
    return folder
