"""A Ray of the job's own on a gang: by a stand-in, and really if STARBURST_RAY names a bin that has Ray."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from starburst.domain.job import Submission
from tests.translator.kinds.test_several_nodes import run_all
from translator.intake.texts import read_firsts
from translator.kinds.conversion import command_manifest
from translator.kinds.local_files import NO_FILES
from translator.kinds.overrides import Overrides
from translator.kinds.ray.launch import options

pytestmark = pytest.mark.processes

#: Does what of Ray's commands the launcher needs: nodes are files, a job is run on the spot.
STAND_IN = """#!/bin/sh
case "$1 $2" in
  "start --head")
    if [ -n "$SLOW" ] && [ ! -e "$SLOW" ]; then
      touch "$SLOW"
      exit 1
    fi
    name=head ;;
  "start --address"*) name=worker-$$; [ -e "$NODES/head" ] || exit 1 ;;
  "job list") exit "$NO_API" ;;
  "job submit")
    if [ -n "$LATE" ] && [ ! -e "$LATE" ]; then
      touch "$LATE"
      echo "RuntimeError: Request failed with status code 500: No available agent to submit job" >&2
      exit 1
    fi
    [ "$PYTHONUNBUFFERED" = 1 ] || exit 8  # else the program's words came with its end only
    while [ "$1" != -- ]; do shift; done; shift
    python3 -c 'import os, signal, sys
os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])' "$@" >"$NODES.log" &
    echo $! >"$NODES.job"
    [ -z "$STOPPED" ] || { sleep 1; kill 0; }
    wait $!
    code=$?
    while kill -0 "-$(cat "$NODES.job")" 2>/dev/null; do sleep .1; done
    cat "$NODES.log"  # it follows the log
    [ "$code" -eq 0 ] || exit 1
    exit 0 ;;
  "job stop") kill -- "-$(cat "$NODES.job")"; exit 0 ;;
  *) exit 9 ;;
esac
echo "$* pid $$" >"$NODES/$name"
[ "$name" = head ] || exec sleep 600
port=${*#*--port=}
exec python3 -c 'import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(600)' "${port%% *}"
"""
MODULE = """
import json
import os
def init(**options):
    if not os.path.exists(os.environ["NODES"] + "/head"):
        raise ConnectionError
def nodes():
    return [{"Alive": True} for _ in os.listdir(os.environ["NODES"])]
"""
REAL = """
import ray
ray.init(log_to_driver=False)
@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def where(_):
    import time
    time.sleep(1)
    return ray.get_runtime_context().get_node_id()
print("on", len(set(ray.get([where.remote(n) for n in range(4)]))), "nodes")
raise SystemExit(3)
"""


@dataclass(frozen=True)
class StandIn:
    """A directory with the stand-in, and one with a file for each node of its Ray."""

    programs: Path
    nodes: Path

    def environment(self, api: bool, late: bool = False) -> tuple[tuple[str, str], ...]:
        """Variables with which a task finds it; `late`: its first submission is refused."""
        path = f"{self.programs}:{os.environ['PATH']}"
        more = {"PYTHONPATH": str(self.programs), "NODES": str(self.nodes), "NO_API": "0" if api else "1"}
        more["LATE"] = str(self.programs / "came") if late else ""
        return tuple({"PATH": path, **more}.items())


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    found = StandIn(tmp_path / "programs", tmp_path / "nodes")
    for directory in (found.programs, found.nodes):
        directory.mkdir()
    (found.programs / "ray").write_text(STAND_IN)
    (found.programs / "ray").chmod(0o755)
    (found.programs / "ray.py").write_text(MODULE)
    return found


def job(*words: str, env: tuple[tuple[str, str], ...], nodes: int = 2) -> Submission:
    """What `starburst submit --ray` comes to."""
    overrides = Overrides(tasks=nodes, cpus="1", env=dict(env))
    manifest = command_manifest(words, "train", NO_FILES, overrides, ray=True)
    (item,) = read_firsts(json.dumps(manifest), "command", suffix=lambda: "a1b2c")
    return item


def test_the_program_runs_once_on_a_ray_of_all_tasks_which_ends_with_it(
    tmp_path: Path, stand_in: StandIn
) -> None:
    script = 'echo "at $RAY_ADDRESS"; cat "$NODES"/*; exit 5'
    ended = run_all(job("sh", "-c", script, env=stand_in.environment(api=True)), tmp_path)
    (code, out, errors), (other, nothing, _) = ended
    assert (code, other, nothing) == (5, 0, ""), errors
    address, *starts = out.splitlines()
    port = address.rpartition(":")[2]
    assert address == f"at 127.0.0.1:{port}"
    assert f"start --head --port={port}" in starts[0]
    assert f"start --address=127.0.0.1:{port}" in starts[1]
    assert all("--num-gpus=0 --num-cpus=1" in start for start in starts)
    # SkyPilot's Ray on a rented machine has the usual port of agents, without which nothing is submitted.
    assert all("--dashboard-agent-listen-port=0" in start for start in starts)


def test_a_head_that_ends_before_all_nodes_are_there_is_started_again(
    tmp_path: Path, stand_in: StandIn
) -> None:
    env = (*stand_in.environment(api=True), ("SLOW", str(stand_in.programs / "ended")))
    (code, out, errors), _ = run_all(job("echo", "run", env=env), tmp_path)
    assert (code, out) == (0, "run\n"), errors


def test_a_head_that_does_not_end_is_killed(tmp_path: Path, stand_in: StandIn) -> None:
    stubborn = STAND_IN.replace("port=${", "trap '' TERM; while :; do sleep 1; done; port=${", 1)
    (stand_in.programs / "ray").write_text(stubborn)
    env = (*stand_in.environment(api=True), ("STARBURST_RAY_END_S", "1"))
    (code, out, errors), _ = run_all(job("echo", "run", env=env), tmp_path)
    assert (code, out) == (0, "run\n"), errors


def test_a_stop_leaves_ray_to_the_program_until_it_has_saved(tmp_path: Path, stand_in: StandIn) -> None:
    """The SIGTERM of a site goes to all processes of a task's session; here the program sends it."""
    script = """
    trap 'sleep .5; for node in $(sed "s/.* pid //" "$NODES"/*); do kill -0 $node && echo up; done; exit' TERM
    kill 0
    while :; do sleep .1; done
    """
    (code, out, errors), _ = run_all(job("sh", "-c", script, env=stand_in.environment(api=True)), tmp_path)
    assert (code, out) == (0, "up\nup\n"), errors
    for node in stand_in.nodes.iterdir():
        assert not Path("/proc", node.read_text().split(" pid ")[1].strip()).exists()


def test_a_ray_that_does_not_start_fails_the_job_with_its_words(tmp_path: Path, stand_in: StandIn) -> None:
    (stand_in.programs / "ray").write_text("#!/bin/sh\necho no room for Ray >&2\nexit 1\n")
    ((code, _, errors),) = run_all(job("true", env=stand_in.environment(api=True), nodes=1), tmp_path)
    assert code == 1
    assert "starburst: Ray did not start:" in errors
    assert "no room for Ray" in errors


def test_an_image_without_ray_is_told_so(tmp_path: Path, stand_in: StandIn) -> None:
    (stand_in.programs / "ray").unlink()
    ((code, _, errors),) = run_all(job("true", env=stand_in.environment(api=True), nodes=1), tmp_path)
    assert code == 127
    assert "the image has no ray" in errors


def test_ray_counts_what_a_task_has() -> None:
    assert options(4, "7500m") == "--num-gpus=4 --num-cpus=7"
    assert options(0, "500m") == "--num-gpus=0 --num-cpus=1"
    assert options(2) == "--num-gpus=2"


@pytest.mark.skipif("STARBURST_RAY" not in os.environ, reason="STARBURST_RAY names no bin with a real Ray")
def test_tasks_of_a_real_ray_run_on_both_nodes(tmp_path: Path) -> None:
    path = (("PATH", f"{os.environ['STARBURST_RAY']}:{os.environ['PATH']}"),)
    (code, out, errors), (other, _, _) = run_all(job("python3", "-c", REAL, env=path), tmp_path)
    assert (code, other) == (3, 0), errors
    assert "on 2 nodes" in out
