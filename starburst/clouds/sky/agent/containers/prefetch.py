"""Pulls of images ahead of their tasks, in the background, while the rest of the machine is still set up.

One process per image holds the lock of its directory. A task that needs the image waits for it instead of
pulling the same layers beside it. A pull that fails is no failure of a task, which pulls again and tells why.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time

from starburst.clouds.sky.agent.containers.engine import EngineSilentError, NoEngineError, find_engine
from starburst.clouds.sky.agent.containers.image import (
    LOOK_S,
    ImagePull,
    MachineShortError,
    Tell,
    Wait,
)
from starburst.clouds.sky.agent.containers.images import note_image
from starburst.clouds.sky.agent.containers.options import TaskRefusedError
from starburst.clouds.sky.agent.protocol import ImageToPull, PullRequest, RegistryLogin
from starburst.clouds.sky.agent.task_dirs import REGISTRY, WAITS, base, facts, private_umask, take_lock
from starburst.runs.supervisor.files import remove, write_json

#: Seconds for one image, the start of the engine included; and between looks for an engine that starts.
LIMIT_S, AGAIN_S = 900.0, 5.0
#: Seconds before the second and the third try of a pull: the network of a machine that boots may come late.
PAUSES_S = (10.0, 30.0)
_SPEC, _TOLD = "image.json", 'Pulling image "{image}", begun while the machine came up'


class TooLongError(Exception):
    """The pull has had its time."""


def pull(request: PullRequest) -> dict[str, int]:
    """Begin to pull these images; one that is being pulled already goes on. How many were begun."""
    return {"begun": sum(_begin(wanted) for wanted in request["images"])}


def _begin(wanted: ImageToPull) -> bool:
    path = _directory(wanted["image"])
    os.makedirs(path, mode=0o700, exist_ok=True)
    lock = take_lock(path)
    if lock is None:
        return False
    try:
        with private_umask():
            write_json(os.path.join(path, _SPEC), dict(wanted))
        argv = [sys.executable, "-I", "-S", os.path.abspath(sys.argv[0]), "prefetch", path]
        quiet = subprocess.DEVNULL
        subprocess.Popen(argv, stdin=lock, stdout=quiet, stderr=quiet, start_new_session=True)
    finally:
        os.close(lock)
    return True


def prefetch(path: str) -> None:
    """Pull the image of a directory, once; its lock comes as standard input and is held to the end."""
    spec = facts(os.path.join(path, _SPEC)) or {}
    give_up = time.monotonic() + LIMIT_S

    def wait(seconds: float) -> None:
        if time.monotonic() >= give_up:
            raise TooLongError
        time.sleep(seconds)

    def tell(why: str) -> None:
        write_json(os.path.join(path, WAITS), {"why": why})

    try:
        _pull(str(spec["image"]), spec.get("logins", []), path, tell, wait)
    except (TaskRefusedError, MachineShortError, NoEngineError, EngineSilentError, TooLongError, OSError):
        return
    finally:
        _forget(path)


def _pull(image: str, logins: list[RegistryLogin], path: str, tell: Tell, wait: Wait) -> None:
    while True:
        try:
            engine = find_engine()
            break
        except EngineSilentError:  # its daemon may be starting
            wait(AGAIN_S)
    if engine.has_image(image):
        note_image(engine, image, None)
        return
    for pause_s in (*PAUSES_S, None):
        began_at = time.monotonic()
        if not ImagePull(engine, image, "IfNotPresent", logins, path, tell, wait).once():
            note_image(engine, image, time.monotonic() - began_at)
            return
        if pause_s is not None:
            wait(pause_s)


def await_end(image: str, tell: Tell, wait: Wait) -> None:
    """Wait while an image is pulled ahead, telling how far that is; `wait` may raise to end this."""
    path = _directory(image)
    while (lock := take_lock(path)) is None:
        told = (facts(os.path.join(path, WAITS)) or {}).get("why")
        tell(str(told or _TOLD.format(image=image)))
        wait(LOOK_S)
    if lock >= 0:
        _forget(path)  # what pulled it may have been killed
        os.close(lock)


def _forget(path: str) -> None:
    """Remove the logins of a pull, and what it told."""
    for name in (_SPEC, WAITS):
        remove(os.path.join(path, name))
    shutil.rmtree(os.path.join(path, REGISTRY), ignore_errors=True)


def _directory(image: str) -> str:
    return os.path.join(base(), "images", hashlib.sha256(image.encode()).hexdigest()[:16])
