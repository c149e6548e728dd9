"""Runs the `run` of a task as SkyPilot does, to see what a command is really given."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

from tests.translator.manifests import job
from translator.tasks.skypilot import to_skypilot

#: A shell and its arguments; SkyPilot 0.14.1 runs a script by the second (sky/skylet/log_lib.py).
SHELLS = {"sh": ("sh",), "bash": ("bash", "--norc", "-i")}
PATH = "/usr/local/bin:/usr/bin:/bin"


def task_of(command: list[str], **container: Any) -> dict[str, Any]:
    """The task of a good Job with one container changed; it must not be refused."""
    manifest = job("CONTAINER/command", command)
    manifest["spec"]["template"]["spec"]["containers"][0] |= container
    return accepted(manifest)


def accepted(manifest: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The task of a manifest that is not refused."""
    found = to_skypilot(manifest, **options)
    assert not found.refused()
    return found.task


def run(
    task: dict[str, Any], directory: Path, shell: str = "sh", **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a task's script in a directory, with its envs and secrets exported first."""
    exports = {**task.get("envs", {}), **task.get("secrets", {})}
    lines = [f"export {name}={shlex.quote(value)}" for name, value in exports.items()]
    script = directory / "script"
    script.write_bytes(os.fsencode("\n".join([*lines, task["run"]])))
    return subprocess.run(
        [*SHELLS[shell], script],
        cwd=directory,
        env={"PATH": PATH, "HOME": str(directory), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )


def words(output: bytes) -> list[str]:
    """Texts that each end in a NUL."""
    return [os.fsdecode(word) for word in output.split(b"\0")[:-1]]
