"""The job queue of a machine's Ray, asked from the machine itself; part of the agent (`guest.py`)."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from starburst.clouds.sky.guest_tasks import facts, rank_dir
else:  # on a machine, where all files of the agent lie side by side
    from guest_tasks import facts, rank_dir

#: SkyPilot's Ray listens for jobs here, on its machine only, unless ~/.sky/ray_port.json has another port.
RAY_PORT = 8266
CALL_S = 10.0
MAX_ANSWER = 1 << 20


def submit(ask: dict[str, Any]) -> dict[str, Any]:
    """Put tasks into Ray's queue, each once: {name: {"dir", "gpus"}} → {name: Ray's status}, and refusals."""
    states: dict[str, str] = {}
    refused: dict[str, str] = {}
    for name, what in ask["tasks"].items():
        try:
            states[name] = submit_one(name, **what)
        except urllib.error.HTTPError as error:
            refused[name] = f"Ray's job API answers {error.code}"
        except (OSError, ValueError, http.client.HTTPException) as error:
            refused[name] = f"Ray's job API: {getattr(error, 'reason', error)}"
            break  # the next would have to wait as long for the same
    return {"states": states, "refused": refused}


def submit_one(name: str, dir: str, gpus: int) -> str:
    """The status of a submission, made now if there was none."""
    known = ray(name)
    if known is not None:
        return str(known.get("status"))
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guest.py")
    job: dict[str, Any] = {
        "entrypoint": f"exec /usr/bin/env python3 {program} run {rank_dir(dir)}",
        "submission_id": name,
    }
    if gpus:
        job["entrypoint_num_gpus"] = gpus
    try:
        ray("", job)
    except urllib.error.HTTPError:
        if ray(name) is None:  # not because another one was faster
            raise
    return "PENDING"


def ray(name: str, body: dict[str, Any] | None = None) -> Any:
    """Ask Ray for a submission, or make one; None if there is none."""
    data = None if body is None else json.dumps(body).encode()
    ports = facts(os.path.expanduser("~/.sky/ray_port.json")) or {}
    url = f"http://127.0.0.1:{ports.get('ray_dashboard_port', RAY_PORT)}/api/jobs/{name}"
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=CALL_S) as answer:
            return json.loads(answer.read(MAX_ANSWER))
    except urllib.error.HTTPError as error:
        if body is None and error.code == 404:
            return None
        raise
