"""A task with an image, run in this process on a machine with a stand-in for its engine."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from starburst.clouds.sky.agent.containers.life import ContainerLife
from starburst.clouds.sky.runs.docker import container
from starburst.domain.job import Workload
from starburst.domain.resources import Resources
from tests.clouds.sky.fake_engine import FakeEngine


class Told:
    """Signals of a process that is told to end after so many waits; never, if None."""

    def __init__(self, after: int | None = None) -> None:
        self.after = after
        self.waits: list[float] = []

    @property
    def told_to_end(self) -> bool:
        return self.after is not None and len(self.waits) >= self.after

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        time.sleep(0.01)


class ContainerTask:
    """A task's directory on a machine with an engine; its container is me/train's."""

    def __init__(self, home: Path, program: str = "docker") -> None:
        self.home = home
        self.engine = FakeEngine(home / "bin", program)
        self.engine.runs("echo hello")
        self.dir = home / "starburst/runs/a/1/0"
        self.dir.mkdir(parents=True)
        self.checkpoints = home / "starburst/checkpoints/a"
        self.checkpoints.mkdir(parents=True)
        self.manifest: dict[str, Any] = {}
        self.resources = Resources()
        self.gpus = ""

    def run(self, told: Any = None, *, name: str = "me/train:2", **more: Any) -> int:
        """The exit code of its command."""
        spec = {"securityContext": self.manifest.pop("pod", {}), "containers": [self.manifest]}
        pod = {"kind": "Pod", "metadata": {}, "spec": spec}
        workload = Workload(("train",), image=name, manifest=json.dumps(pod))
        box: dict[str, Any] = {**container("sb-a-1-0", workload, self.resources, {})}
        here = {"@DIR@": str(self.dir), "@GPUS@": self.gpus, "@REPORT@": "/r"}
        here["@CHECKPOINTS@"] = str(self.checkpoints)
        box.update(here=here, **more)
        return ContainerLife(str(self.dir), {"docker": box}, told or Told()).run()

    @property
    def verdict(self) -> tuple[str, str]:
        said = json.loads((self.dir / "verdict.json").read_text())
        return said["ended_by"], said["message"]
