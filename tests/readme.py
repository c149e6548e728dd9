"""Runs the README's console blocks as a newcomer would: `python -m tests.readme DIRECTORY`.

The directory is scratch; `starburst` and `python` are those of PATH. `starburst up` stays in the background.
A command below which the README shows an `error:` must fail with that line; every other one must succeed.
Sections in ELSEWHERE need make, a cluster or a cloud, and are run by what is named there.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUN = ("Use it", "What would it have cost?")
ELSEWHERE = {"": ".ci/run", "Point it at your cluster and your cloud": "tests/kube, tests/hybrid"}
#: The one file that the README's reader has and the repository has not.
TRAIN = "for epoch in range(3): print('epoch', epoch)\n"
LIMIT_S, READY_S = 300, 120


def blocks() -> dict[str, list[str]]:
    """The console blocks of each section of the README, by its heading."""
    sections = re.split(r"^## (.*)$", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    texts = dict(zip(["", *sections[1::2]], sections[::2], strict=True))
    found = {name: re.findall(r"```console\n(.*?)```", text, re.DOTALL) for name, text in texts.items()}
    return {name: each for name, each in found.items() if each}


def steps(block: str) -> list[tuple[str, str]]:
    """Each command of a block, with what the README shows below it."""
    joined = block.replace("\\\n", " ")
    return re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", joined, re.MULTILINE)


def fault(command: str, shown: str, where: Path) -> str:
    """Run a command; what is wrong with how it ended, or nothing."""
    done = subprocess.run(
        ["bash", "-c", command], cwd=where, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    printed = done.stdout + done.stderr
    if shown.startswith("error:"):
        line = shown.splitlines()[0]
        return (
            ""
            if done.returncode and line in printed
            else f"exit code {done.returncode}, not {line}\n{printed}"
        )
    return f"exit code {done.returncode}\n{printed}" if done.returncode else ""


def start(command: str, where: Path) -> subprocess.Popen[bytes]:
    """`starburst up`, ready for work."""
    log = where / "up.log"
    with log.open("wb") as out:
        process = subprocess.Popen(["bash", "-c", f"exec {command}"], cwd=where, stderr=out)
    give_up = time.monotonic() + READY_S
    while b'"synced"' not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > give_up:
            raise SystemExit(f"$ {command}\n{log.read_text()}")
        time.sleep(0.1)
    return process


def main(scratch: Path) -> int:
    """Run all blocks; exit code 1 if one went wrong."""
    shutil.copytree(ROOT / "configs", scratch / "configs")
    (scratch / "train.py").write_text(TRAIN)
    os.environ["STARBURST_HOME"] = str(scratch / "home")
    where, background, wrong, count = scratch, list[subprocess.Popen[bytes]](), 0, 0
    for command, shown in (step for name in RUN for block in blocks()[name] for step in steps(block)):
        if command.startswith("pip install"):  # whoever calls this has done that
            continue
        if command.startswith("cd "):
            where = scratch / command[3:]
        elif command.startswith("starburst up"):
            background.append(start(command, where))
        else:
            count += 1
            problem = fault(command, shown, where)
            wrong += bool(problem)
            print(f"{'✗' if problem else '✓'} {command}" + (f"\n{problem}" if problem else ""), flush=True)
    fault("starburst cancel --all --yes; sleep 5", "", scratch)
    for process in background:
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT_S)
    print(f"{count - wrong} of {count} commands of the README do what it says")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
