"""What containers cannot connect to: metadata of their machine, and what listens on it (`firewall.py`)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from starburst.clouds.sky.agent import firewall
from starburst.clouds.sky.agent.containers.engine import Engine, EngineError
from starburst.clouds.sky.agent.containers.group import ContainerGroup, NoGroupError, container_group, make
from starburst.clouds.sky.agent.separation import RootRefusedError, ask_root
from starburst.clouds.sky.agent.task_dirs import base, facts
from starburst.runs.supervisor.files import write_json
from starburst.runs.supervisor.lease import boot_id


class Egress:
    """What the container of one task can reach."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._group: ContainerGroup | None = None
        self._closed: frozenset[int] = frozenset()

    def close(self) -> str:
        """Close it; the group in which the container is to be made, "" where that is not possible.

        Why it is not possible is noted for the next exchange.

        Raises:
            EngineSilentError: the engine does not answer.
        """
        why = self._try_close()
        if why != why_open():
            write_json(_path(), {"boot": boot_id(), "why": why})
        return "" if self._group is None or why else self._group.parent

    def close_again(self) -> None:
        """Close what has begun to listen since."""
        if self._group is not None and not firewall.listening() <= self._closed:
            self._ask(self._group)

    def _try_close(self) -> str:
        if not self._engine.is_root:
            return f"{self._engine.name} runs as the machine's user"
        try:
            self._group = container_group(self._engine)
        except (NoGroupError, EngineError, ValueError) as error:
            return f"containers: {error}"
        return self._ask(self._group)

    def _ask(self, group: ContainerGroup) -> str:
        self._closed = firewall.listening()
        request = {"parent": group.parent, "directory": str(group.directory), "match": list(group.match)}
        try:
            return str(ask_root("close", request)["why"])
        except (OSError, RootRefusedError) as error:
            return f"containers: {error}"


def why_open() -> str:
    """Why containers can connect to what listens on this machine; "" if they cannot, or none was made."""
    found = facts(_path()) or {}
    return str(found.get("why", "")) if found.get("boot") == boot_id() else ""


def close(request: dict[str, Any]) -> dict[str, str]:
    """As root: make the group of containers and set the rules; why that is not possible, or ""."""
    group = ContainerGroup(request["parent"], Path(request["directory"]), tuple(request["match"]))
    try:
        make(group)
    except (OSError, subprocess.SubprocessError) as error:
        return {"why": f"the control group of containers cannot be made: {error}"}
    return {"why": firewall.close(group)}


def _path() -> str:
    return os.path.join(base(), "containers.json")
