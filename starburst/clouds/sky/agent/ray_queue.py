"""The job queue of a machine's Ray, asked from the machine itself by Ray's job API."""

from __future__ import annotations

import http.client
import json
import os
import sys
import urllib.error
import urllib.request
from typing import Any

from starburst.clouds.sky.agent.protocol import SubmitAnswer, SubmitRequest
from starburst.clouds.sky.agent.task_dirs import facts, rank_dir

#: The port of SkyPilot's Ray for jobs, on its machine only, unless ~/.sky/ray_port.json has another.
RAY_PORT = 8266
#: Seconds for a call; bytes of an answer.
CALL_S, MAX_ANSWER = 10.0, 1 << 20


def submit(request: SubmitRequest) -> SubmitAnswer:
    """Put tasks into Ray's queue, each once; after a call without an answer no further task is tried."""
    states: dict[str, str] = {}
    refused: dict[str, str] = {}
    for name, task in request["tasks"].items():
        try:
            states[name] = submit_one(name, task["dir"], task["gpus"])
        except urllib.error.HTTPError as error:
            refused[name] = f"Ray's job API answers {error.code}"
        except (OSError, ValueError, http.client.HTTPException) as error:
            refused[name] = f"Ray's job API: {getattr(error, 'reason', error)}"
            break  # the next call would wait as long for the same
    return {"states": states, "refused": refused}


def submit_one(name: str, directory: str, gpus: int) -> str:
    """Ray's status of a submission, which is made now if there was none.

    Raises:
        OSError, ValueError, http.client.HTTPException: Ray did not answer, or refused it (HTTPError).
    """
    known = ray(name)
    if known is not None:
        return str(known.get("status"))
    agent = os.path.abspath(sys.argv[0])
    job: dict[str, Any] = {
        "entrypoint": f"exec /usr/bin/env python3 {agent} run {rank_dir(directory)}",
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
    """Ask Ray for a submission, or with a `body` make one; None if there is none."""
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
