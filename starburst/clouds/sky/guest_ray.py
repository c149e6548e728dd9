"""The job queue of a machine's Ray, asked from the machine itself; part of the agent (`guest.py`)."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from starburst.clouds.sky.guest_tasks import rank_dir
    from starburst.runs.shim import read_json
else:  # on a machine, where all files of the agent lie side by side
    from guest_tasks import rank_dir
    from shim import read_json

#: SkyPilot's Ray listens for jobs here, on its machine only, unless ~/.sky/ray_port.json has another port.
RAY_PORT = 8266
CALL_S = 10.0


def submit(ask: dict[str, Any]) -> dict[str, Any]:
    """Put tasks into Ray's queue, each once: {name: {"dir", "gpus"}} → {name: Ray's status}."""
    return {name: submit_one(name, **what) for name, what in ask["tasks"].items()}


def submit_one(name: str, dir: str, gpus: int) -> str:
    """The status of a submission, made now if there was none."""
    known = ray(name)
    if known is not None:
        return str(known["status"])
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
    ports = read_json(os.path.expanduser("~/.sky/ray_port.json")) or {}
    url = f"http://127.0.0.1:{ports.get('ray_dashboard_port', RAY_PORT)}/api/jobs/{name}"
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=CALL_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if body is None and error.code == 404:
            return None
        raise
