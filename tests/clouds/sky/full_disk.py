"""A machine whose disk a neighbour keeps full, with the real agent; argv: a home for it; needs root.

It mounts a small disk for itself and leaves a dead-man switch, so it wants namespaces of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from starburst.runs.supervisor.lease import lease_left_s
from tests.clouds.sky.agent_machine import Machine, spec

GOES_ON, STOPPED, LATE = "a/1/0", "b/1/0", "c/1/0"
#: Writes until nothing fits any more.
SIZES = (1 << 20, 1 << 12, 1)


def fill(filler: Path) -> None:
    """Take every block that is free."""
    with filler.open("ab", buffering=0) as file:
        for size in SIZES:
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def begun(home: Path, *, apart: bool) -> Machine:
    """A machine with a small disk on which two tasks run."""
    machine = Machine(home)
    (home / "starburst").mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=40m,mode=755", "tmpfs", home / "starburst"], check=True
    )
    if not apart:
        machine.keeps_nobody_apart()
    machine.program("sudo", f'echo "$*" >>{home}/told')
    waits = "echo begun; until [ -e go ]; do sleep 0.05; done; exit 3"
    ends = "trap 'exit 4' TERM; echo begun; while :; do sleep 0.05; done"
    specs = {GOES_ON: spec("sh", "-c", waits), STOPPED: spec("sh", "-c", ends)}
    machine.exchange(lease_s=60, switch={"after_s": 1e6}, specs=specs, starts=[*specs], look={})
    for name in specs:
        log = home / "starburst/runs" / name / "log"
        machine.until_exists(log)
        while "begun" not in log.read_text():
            assert machine.runners(name), log.read_text()
            time.sleep(0.02)
    return machine


def renewed(machine: Machine, filler: Path) -> None:
    """Renewals go on and on, while the neighbour takes what becomes free."""
    for lease_s in (100, 200, 300, 400):
        fill(filler)
        answer = machine.answer(lease_s=lease_s, look={})
        assert answer["renewed"], answer
        assert answer["trouble"].startswith("its disk is full: "), answer  # others give blocks back, too
        lease = json.loads((machine.home / "starburst/lease.json").read_text())
        assert lease_s - 30 < lease_left_s(lease) <= lease_s
        assert not answer["lapsed"]


def ended(machine: Machine, name: str) -> dict[str, Any]:
    """How a task ended."""
    machine.wait(name)
    state = machine.exchange(look={name: 0}, of=name)
    assert state["over"], state
    found: dict[str, Any] = state["exit"]
    return found


def main(home: Path, how: str) -> None:
    machine = begun(home, apart=how == "apart")
    filler = home / "starburst/filler"
    fill(filler)
    renewed(machine, filler)
    late = machine.exchange(of=LATE, specs={LATE: spec("true")}, starts=[LATE], look={LATE: 0})
    assert late["trouble"].startswith("its disk is full"), late
    assert not late["began"], late
    assert machine.exchange(of=STOPPED, stops={STOPPED: 20.0}, look={STOPPED: 0})["trouble"] == ""
    stopped = ended(machine, STOPPED)
    assert (stopped["ended_by"], stopped["exit_code"]) == ("stop", 4), stopped
    fill(filler)
    (machine.dir / "work/go").touch()
    own = ended(machine, GOES_ON)
    assert (own["ended_by"], own["exit_code"]) == ("itself", 3), own
    retired = subprocess.run(
        machine.argv("retire"), input="{}", capture_output=True, text=True, check=True, env=machine.env()
    )
    assert json.loads(retired.stdout) == {"armed": True}
    machine.until_exists(home / "told")
    assert "shutdown" in (home / "told").read_text()
    filler.unlink()
    machine.exchange(specs={LATE: spec("true")}, starts=[LATE], look={})
    assert ended(machine, LATE)["exit_code"] == 0
    assert machine.answer(lease_s=60)["trouble"] == ""
    print("well")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
