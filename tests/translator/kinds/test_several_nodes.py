"""A batch script over several nodes: its tasks meet, the first runs it, srun starts programs on all."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from starburst.domain.job import Submission
from starburst.runs.peers import is_free_here
from tests.translator.kinds.running import Elsewhere, read
from translator.kinds.gangs.connection import SECRET, TaskLink, connected, greeted

pytestmark = pytest.mark.processes

HEAD = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=2\n"


def a_port() -> int:
    """A MASTER_PORT that is free, as the one below it at which tasks meet; other workers take others."""
    first = 27_000 + os.getpid() % 2_500
    return next(port for port in range(first, 29_999) if is_free_here(port) and is_free_here(port - 10_000))


def run_all(item: Submission, where: Path, **more: str) -> list[tuple[int, str, str]]:
    """Run the tasks of a job, each in a directory of its own: exit code, output, errors by rank."""
    gang = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(a_port()), "STARBURST_JOB": item.job.id}
    gang |= {"STARBURST_WORLD_SIZE": str(len(item.job.tasks)), "WORLD_SIZE": "2", "PATH": os.environ["PATH"]}
    processes = []
    for rank in range(len(item.job.tasks)):
        home = where / str(rank)
        home.mkdir()
        env = {**gang, **dict(item.workload.env), "STARBURST_RANK": str(rank), "HOME": str(home)}
        env |= {"CUDA_VISIBLE_DEVICES": "4,5", "RANK": str(rank), **more}
        command = item.workload.command
        pipe = subprocess.PIPE
        task = subprocess.Popen(
            command, cwd=home, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )
        processes.append(task)
    try:
        outputs = [process.communicate(timeout=200) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *texts) for process, texts in zip(processes, outputs, strict=True)]


BODY = """
export LR=0.1
cd sub
srun -l --gpus-per-task=1 sh -c 'echo $SLURM_PROCID/$SLURM_NTASKS node $SLURM_NODEID local $SLURM_LOCALID \
gpu $CUDA_VISIBLE_DEVICES lr $LR rank ${RANK-none} $(cat data) rank $STARBURST_RANK'
srun --ntasks=2 sh -c 'exit $((SLURM_PROCID + 3))'; echo code $?
srun -K -n 2 sh -c '[ $SLURM_PROCID = 1 ] || exec sleep 600; exit 7' 2>/dev/null; echo killed $?
srun -N1 -n1 -r1 sh -c 'echo only on $STARBURST_RANK'
srun -n1 no-such-program; echo missing $?
mkdir made && cd made && srun -n4 pwd 2>&1 >/dev/null | grep -c 'there is no'; cd ..
srun -N3 true; echo refused $?
scontrol show hostnames "$SLURM_JOB_NODELIST" | wc -l
echo "$SLURM_NNODES nodes, $SLURM_TASKS_PER_NODE"
exit 5
"""


def test_srun_reaches_every_node_from_the_first(tmp_path: Path) -> None:
    (tmp_path / "here" / "sub").mkdir(parents=True)
    (tmp_path / "here" / "sub" / "data").write_text("data")
    found = read(HEAD + BODY, local=Elsewhere(str(tmp_path / "here")))
    (code, out, errors), (other, nothing, _) = run_all(found, tmp_path)
    lines = out.splitlines()
    assert sorted(lines[:4]) == [
        f"{task}: {task}/4 node {task // 2} local {task % 2} gpu {4 + task % 2} lr 0.1 rank none data "
        f"rank {task // 2}"
        for task in range(4)
    ], errors
    assert lines[4:] == [
        *("code 4", "killed 143", "only on 1", "missing 127", "2", "refused 1", "2", "2 nodes, 2(x2)"),
    ], errors
    assert (code, other, nothing) == (5, 0, "")
    assert "no-such-program: No such file or directory" in errors
    assert "srun: --nodes 3: the job has 2" in errors


def test_each_job_of_an_array_has_its_nodes_and_its_index(tmp_path: Path) -> None:
    body = "#SBATCH --array=1,5,9%2\nsrun -n2 sh -c 'echo $SLURM_NODEID of $SLURM_ARRAY_TASK_ID'\n"
    found = read("#!/bin/bash\n#SBATCH -N 2\n" + body)
    assert (len(found.job.tasks), found.job.array and found.job.array.size) == (2, 3)
    (code, out, errors), _ = run_all(found, tmp_path, STARBURST_ARRAY="a", STARBURST_ARRAY_INDEX="1")
    assert (code, sorted(out.splitlines())) == (0, ["0 of 5", "1 of 5"]), errors


@pytest.mark.parametrize("knows", [True, False])
def test_only_who_knows_the_secret_of_the_job_may_start_something(
    knows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found: list[tuple[TaskLink, dict[str, object]] | None] = []
        monkeypatch.setenv(SECRET, "of the job")
        thread = threading.Thread(target=lambda: found.append(greeted(server.accept()[0])))
        thread.start()
        if knows:
            connected("127.0.0.1", server.getsockname()[1], {"rank": 1}).close()
        else:
            with socket.create_connection(server.getsockname()) as stranger:
                stranger.sendall(b'{"proof": "guessed", "argv": ["true"]}\n')
                thread.join()
        thread.join()
    (known,) = found
    assert (known is not None) is knows
    if known is not None:
        assert known[1]["rank"] == 1
        known[0].close()
