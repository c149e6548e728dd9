"""What this machine has of the images that tasks asked for, and how long their pulls took.

The scheduler takes a machine that has a job's image for nearer than one that has to pull it.
"""

from __future__ import annotations

import os

from starburst.clouds.sky.agent.containers.engine import Engine, EngineSilentError
from starburst.clouds.sky.agent.task_dirs import base, facts, machine_lock
from starburst.runs.supervisor.files import write_json

#: Images that are remembered at most, the ones used last.
MOST = 16


def known_images() -> dict[str, float | None]:
    """Images by their names in tasks, with the seconds of the pull; None for one that was here before.

    Another process may have removed one since: this is where an image probably is, not a promise.
    """
    found = (facts(_path()) or {}).get("images")
    if not isinstance(found, dict):
        return {}
    return {str(name): float(s) if isinstance(s, (int, float)) else None for name, s in found.items()}


def note_image(engine: Engine, image: str, seconds: float | None) -> None:
    """Note that a task's image is here, and drop others that the engine has no more.

    Nothing is looked at again for an image that was not pulled and is known to be here.
    """
    with machine_lock("images"):
        known = known_images()
        if seconds is None and image in known:
            return
        before = known.pop(image, None)
        try:
            known = {name: took_s for name, took_s in known.items() if engine.has_image(name)}
        except EngineSilentError:  # then the task finds that out for itself
            return
        known[image] = before if seconds is None else seconds
        write_json(_path(), {"images": dict(list(known.items())[-MOST:])})


def _path() -> str:
    return os.path.join(base(), "images.json")
