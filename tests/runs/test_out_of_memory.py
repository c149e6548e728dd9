"""A task whose control group ran out of memory says so; its group is a stand-in, with a kernel's words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from starburst.clouds.sky.access.agent_archive import agent_archive
from starburst.runs.supervisor.exits import load_exit

KILLED, LIVED = "low 0\noom 1\noom_kill 1\n", "low 0\noom 3\noom_kill 0\n"


@pytest.mark.parametrize(
    ("events", "command", "message"),
    [
        (KILLED, "kill -9 $$", "OOMKilled: a process ran out of memory"),
        (LIVED, "kill -9 $$", ""),
        (KILLED, "exit 0", ""),
        ("", "exit 3", ""),
    ],
)
def test_a_failed_command_whose_group_had_a_kill_for_memory_says_so(
    tmp_path: Path, events: str, command: str, message: str
) -> None:
    rank, agent, group = tmp_path / "rank", tmp_path / "agent.pyz", tmp_path / "group"
    agent.write_bytes(agent_archive())
    for made in (rank, group):
        made.mkdir()
    (group / "memory.events").write_text(events)
    spec = {
        "command": ["sh", "-c", command],
        "cwd": str(rank),
        "env": {"PATH": os.defpath},
        "grace_s": 1.0,
        "time_limit_s": 60.0,
        "lease": None,
        "cgroup": str(group),
    }
    (rank / "spec.json").write_text(json.dumps(spec))
    argv = [sys.executable, "-I", "-S", str(agent), "supervise", str(rank)]
    subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True)
    ended = load_exit(rank / "exit.json")
    assert ended is not None
    assert ended.message == message
