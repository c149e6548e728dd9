"""Stand-in for a training job: some work per step, a loss, and a checkpoint to resume from.

The demo's jobs run it as a program; it uses only the standard library. Wall seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

STEP_S = 0.1


def main() -> int:
    """Work for `--seconds` in total, over any number of runs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--checkpoint", action="store_true", help="save on SIGTERM and go on from there")
    parser.add_argument(
        "--witness", type=Path, required=True, help="file that every start and end is noted in"
    )
    args = parser.parse_args()
    state = Path(os.environ["STARBURST_CHECKPOINT_DIR"]) / f"rank-{os.environ['STARBURST_RANK']}.json"
    steps = max(1, round(args.seconds / STEP_S))
    step = int(json.loads(state.read_text())["step"]) if args.checkpoint and state.exists() else 0
    if step >= steps:
        print(f"step {step}/{steps}: was done already", flush=True)
        return 0

    stop: list[int] = []

    def on_sigterm(signum: int, frame: FrameType | None) -> None:
        stop.append(signum)

    if args.checkpoint:
        signal.signal(signal.SIGTERM, on_sigterm)
    if twin_lives(args.witness):
        note(args.witness, "twin")
    note(args.witness, "start")
    print(f"step {step}/{steps}: {'going on from the checkpoint' if step else 'starting'}", flush=True)
    due = time.monotonic()
    while step < steps and not stop:
        loss = work(step)
        step += 1
        if step % 10 == 0:
            print(f"step {step}/{steps}: loss {loss:.4f}", flush=True)
        due += STEP_S
        time.sleep(max(0.0, due - time.monotonic()))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # from here the outcome is fixed
    if stop and step < steps:
        state.write_text(json.dumps({"step": step}))
        print(f"step {step}/{steps}: saved a checkpoint on SIGTERM", flush=True)
        return 143
    if args.checkpoint:  # final checkpoint: a stop from here on loses no work
        state.write_text(json.dumps({"step": step}))
    note(args.witness, "end")
    print(f"step {steps}/{steps}: done", flush=True)
    return 0


def work(step: int) -> float:
    """A few hundred microseconds of arithmetic, and a decreasing loss."""
    return 2.0 * math.exp(-step / 50) + sum(math.sin(i * step) ** 2 for i in range(2000)) / 1e5


def twin_lives(witness: Path) -> bool:
    """Whether another run of this task is alive, which must never happen."""
    if not witness.exists():
        return False
    me = (os.environ["STARBURST_JOB"], os.environ["STARBURST_RANK"])
    lines = [json.loads(line) for line in witness.read_text().splitlines()]
    pids = {line["pid"] for line in lines if (line["STARBURST_JOB"], line["STARBURST_RANK"]) == me}
    return any(f"STARBURST_JOB={me[0]}".encode() in environment(pid) for pid in pids)


def environment(pid: int) -> bytes:
    """The environment of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def note(witness: Path, what: str) -> None:
    """Append a line to the witness file; appends of this size are atomic."""
    keys = ("STARBURST_JOB", "STARBURST_ATTEMPT", "STARBURST_RANK", "STARBURST_SITE")
    line = {"what": what, "at": time.time(), "pid": os.getpid(), **{key: os.environ[key] for key in keys}}
    with witness.open("a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
