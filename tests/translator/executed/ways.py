"""Runs manifests: as a kubelet would, and by each way in which they leave. Commands are really executed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starburst.clouds.sky.agent.containers.engine import Engine
from starburst.clouds.sky.agent.containers.options import create_arguments
from starburst.clouds.sky.agent.containers.variables import given
from starburst.clouds.sky.agent.containers.volume_files import write_files
from starburst.clouds.sky.agent.task_dirs import FILES
from starburst.clouds.sky.runs.runtime_values import manifest_to_keep
from starburst.clouds.sky.runs.spec import filled, spec_of
from starburst.clouds.sky.runs.storage import volumes_of
from starburst.core.model.actions import Slot
from starburst.runs.ports import Run
from starburst.runs.supervisor.files import write_json
from tests.translator.executed.docker import created
from tests.translator.executed.kubelet import Image, Objects, Process, process_of
from tests.translator.executed.shapes import OBJECTS
from tests.translator.skypilot.running import PATH
from tests.translator.skypilot.running import run as run_script
from translator.carried import Carried
from translator.fidelity import FidelityLevel
from translator.intake.rules import IntakeRules
from translator.intake.texts import read_firsts
from translator.manifests.references import Reference
from translator.tasks.runtime_values import ReferencedData, TaskHost, evaluate
from translator.tasks.skypilot import to_skypilot

ADDRESS = "10.1.2.3"
#: Notes its arguments, variables and directory beside itself.
PROBE = """#!/bin/sh
cat /proc/$$/cmdline >"$0.argv"; cat /proc/$$/environ >"$0.env"; readlink /proc/$$/cwd >"$0.cwd"
"""
RULES = IntakeRules(native=True, carries=Carried({}))


@dataclass(frozen=True)
class Seen:
    """What came of a command; the last three are what the probe was given, if it ran."""

    stdout: bytes
    exit_code: int
    argv: list[str] | None
    env: dict[str, str] | None
    cwd: str | None

    def variables(self, names: frozenset[str]) -> dict[str, str] | None:
        """Those of these names."""
        return None if self.env is None else {name: self.env[name] for name in names if name in self.env}


class Place:
    """A directory in which a case runs; each run begins with an empty one."""

    def __init__(self, directory: Path) -> None:
        self.dir = directory

    @property
    def image(self) -> Image:
        """The image of all cases."""
        env = {"PATH": PATH, "IMAGE": "yes", "HOME": str(self.dir)}
        return Image((f"{self.dir}/probe", "--entry"), ("--default",), env, f"{self.dir}/image")

    def prepare(self) -> None:
        """The probe, and nothing else."""
        self.dir.mkdir(parents=True)
        self.dir.chmod(0o777)
        (self.dir / "probe").write_text(PROBE)
        (self.dir / "probe").chmod(0o755)

    def start(self, process: Process) -> Seen:
        """Run a process of a container, with its directories and files."""
        Path(process.cwd).mkdir(parents=True, exist_ok=True)
        for directory in process.empty:
            Path(directory).mkdir(parents=True, exist_ok=True)
        for path, text in process.files.items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text)
        ids: dict[str, Any] = {}
        if os.geteuid() == 0:
            ids = {"user": process.user, "group": process.group, "extra_groups": process.groups or None}
        done = subprocess.run(
            process.argv,
            cwd=process.cwd,
            env=process.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
            **ids,
        )
        return self.seen(done.stdout, done.returncode)

    def seen(self, stdout: bytes, code: int) -> Seen:
        """What a run left behind; a death by signal has the exit code that Kubernetes reports."""
        code = 128 - code if code < 0 else code
        if not (self.dir / "probe.argv").exists():
            return Seen(stdout, code, None, None, None)
        argv, env = (_words(self.dir / f"probe.{name}") for name in ("argv", "env"))
        cwd = (self.dir / "probe.cwd").read_text()
        return Seen(stdout, code, argv[2:], dict(word.split("=", 1) for word in env), cwd)


def expected(manifest: Mapping[str, Any], place: Place, objects: Objects = OBJECTS) -> Process:
    """The process that a kubelet would start."""
    return process_of(manifest, objects, place.image, ADDRESS)


def translated(manifest: dict[str, Any], place: Place, shell: str = "bash") -> Seen | None:
    """By `starburst translate` and SkyPilot's shell; None if it says that the job would not be the same."""
    found = to_skypilot(manifest, resolve=_data().get)
    changed = any(
        "securityContext" in line.field and line.verdict is not FidelityLevel.KEPT for line in found.report
    )
    if found.refused() or changed:
        return None
    done = run_script(found.task, place.dir, shell)
    return place.seen(done.stdout, done.returncode)


def in_container(manifest: dict[str, Any], place: Place) -> Process | None:
    """By Starburst on a rented machine, up to its container engine; None if the job stays."""
    (item,) = read_firsts(_text(manifest), "case", suffix=lambda: "a1b2c", taking=RULES)
    if item.job.stays:
        return None
    slots = tuple(Slot(rank, "i-1", task) for rank, task in enumerate(item.job.tasks))
    run = Run(item.job, 1, slots, item.workload)
    spec: Any = spec_of(run, slots[0], volumes_of(item.workload, {}), bucket=False, peers={})
    secrets: dict[str, str] = {}
    if manifest_to_keep(item.workload, _never_asked) is not None:
        values = evaluate(manifest, ReferencedData("lab", _data()), TaskHost(0, ADDRESS, "vm"))
        spec = filled(spec, values)
        secrets = spec["secrets"]
    box, task = spec["docker"], place.dir / "task"
    task.mkdir()
    (task / "env").write_text(box["env_file"])
    write_json(str(task / FILES), {"files": spec.get("files", [])})
    write_files(str(task))
    known = {"@DIR@": str(task), "@GPUS@": "", "@CHECKPOINTS@": "/c", "@REPORT@": "/r"}
    with given(str(task), box["env"], secrets) as (options, client):
        own = str(task), Engine("docker", ("docker",)), box, known, options
        return created(create_arguments(*own, parent=""), client, place.image)


async def _never_asked(_: str) -> ReferencedData:
    raise AssertionError("the cluster's data are at hand")


def _data() -> dict[Reference, Mapping[str, str]]:
    found = {}
    for key, data in OBJECTS.items():
        kind, _, name = key.partition("/")
        found[Reference(kind, "lab", name)] = data
    return found


def _text(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest)


def _words(path: Path) -> list[str]:
    return [os.fsdecode(word) for word in path.read_bytes().split(b"\0")[:-1]]
