"""An MPIJob of several workers: mpirun reaches each of them by our program in place of ssh.

By a stand-in, and really if STARBURST_OPENMPI names a directory in which Debian's openmpi-bin,
openmpi-common, libopenmpi3, libpmix2, libhwloc15 and libevent are unpacked (4.1.4 was run).
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starburst.domain.job import Submission
from tests.translator.kinds.test_operators import problems, read
from tests.translator.kinds.test_several_nodes import run_all

pytestmark = pytest.mark.processes

#: Starts the rest of its command for each line of the hostfile, as mpirun starts its daemons.
STAND_IN = """#!/bin/sh
while read -r host slots; do
  "$OMPI_MCA_plm_rsh_agent" -x "$host" "echo $slots in" '$STARBURST_RANK with $CUDA_VISIBLE_DEVICES' &
done <"$OMPI_MCA_orte_default_hostfile"
wait
"$OMPI_MCA_plm_rsh_agent" someone@starburst-task-1 exit 7
"""
#: Each rank adds its number to a sum.
REDUCE = """
import ctypes, os
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
named = lambda name: ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_" + name)))
mpi.MPI_Init(None, None)
rank, found = ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(named("comm_world"), ctypes.byref(rank))
mine = ctypes.c_int(rank.value + 1)
of = (1, named("int"), named("op_sum"), named("comm_world"))
mpi.MPI_Allreduce(ctypes.byref(mine), ctypes.byref(found), *of)
print(f"rank {rank.value} in task {os.environ['STARBURST_RANK']}: sum {found.value}", flush=True)
mpi.MPI_Finalize()
"""


def mpi_job(command: list[str], workers: int = 3, **spec: Any) -> dict[str, Any]:
    launcher = {"name": "launcher", "image": "me/mpi", "command": command}
    limits = {"limits": {"nvidia.com/gpu": 2}}
    worker = {"name": "worker", "image": "me/mpi", "resources": limits}
    specs = {
        "Launcher": {"replicas": 1, "template": {"spec": {"containers": [launcher]}}},
        "Worker": {"replicas": workers, "template": {"spec": {"containers": [worker]}}},
    }
    metadata = {"name": "solve"}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": metadata,
        "spec": {"slotsPerWorker": 2, "mpiReplicaSpecs": specs, **spec},
    }


def with_variables(item: Submission, **more: str) -> Submission:
    return replace(item, workload=replace(item.workload, env=(*item.workload.env, *more.items())))


def test_its_launcher_starts_something_on_every_worker_and_ends_the_job(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "mpirun").write_text(STAND_IN)
    (programs / "mpirun").chmod(0o755)
    found = read(mpi_job(["mpirun", "-np", "6", "solve"]))
    assert [task.gpus for task in found.job.tasks] == [2, 2, 2]
    first, *others = run_all(with_variables(found, PATH=f"{programs}:{os.environ['PATH']}"), tmp_path)
    code, out, errors = first
    assert sorted(out.splitlines()) == [f"slots=2 in {rank} with 4,5" for rank in range(3)], errors
    assert (code, [other[:2] for other in others]) == (7, [(0, ""), (0, "")])


def test_the_hostfile_and_the_workers_of_the_operator_are_ours_in_words_and_variables(tmp_path: Path) -> None:
    told = 'cat /etc/mpi/hostfile; cut -c1-16 "$HOSTS"; echo solve-worker-1.solve:2, /solve-worker-1 $(OF)'
    document = mpi_job(["sh", "-c", told], workers=2)
    launcher = document["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    launcher["env"] = [{"name": "OF", "value": "x"}, {"name": "HOSTS", "value": "/etc/mpi/hostfile"}]
    (code, out, errors), _ = run_all(read(document), tmp_path)
    lines = [f"starburst-task-{rank} slots=2" for rank in (0, 1)]
    names = [line.partition(" ")[0] for line in lines]
    assert out.splitlines() == [*lines, *names, "starburst-task-1:2, /solve-worker-1 x"], errors
    assert code == 0
    as_worker = read(mpi_job(["mpirun", "-H", "solve-worker-0"], workers=1, runLauncherAsWorker=True))
    assert "mpirun -H starburst-task-1" in " ".join(as_worker.workload.command), "the launcher is the first"


@pytest.mark.parametrize("command", [["horovodrun", "-np", "4", "train"], ["sh", "-c", "a && ssh x; mpirun"]])
def test_a_launcher_that_reaches_workers_by_ssh_itself_is_refused(command: list[str]) -> None:
    (found,) = problems(mpi_job(command))
    assert "reaches the workers by ssh" in found
    assert not problems(mpi_job(["sh", "-c", "cp -r ~/.ssh x && pip install deepspeed && mpirun a"]))


@pytest.mark.skipif("STARBURST_OPENMPI" not in os.environ, reason="STARBURST_OPENMPI names no Open MPI")
def test_open_mpi_reduces_over_all_workers(tmp_path: Path) -> None:
    usr = Path(os.environ["STARBURST_OPENMPI"]) / "usr"
    library = usr / "lib" / "x86_64-linux-gnu"
    own = {
        "PATH": f"{usr / 'bin'}:{os.environ['PATH']}",
        "OPAL_PREFIX": str(usr),
        "LD_LIBRARY_PATH": f"{library}:{library / 'openmpi' / 'lib'}",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    found = read(mpi_job(["mpirun.openmpi", "-np", "3", "-N", "1", sys.executable, "-c", REDUCE]))
    (code, out, errors), *_ = run_all(with_variables(found, **own), tmp_path)
    lines = sorted(line for line in out.splitlines() if line.startswith("rank "))
    assert lines == [f"rank {rank} in task {rank}: sum 6" for rank in range(3)], errors
    assert code == 0


@pytest.mark.parametrize("name", ["Intel", "MPICH"])
def test_other_implementations_are_refused_by_name(name: str) -> None:
    (found,) = problems(mpi_job(["mpirun"], mpiImplementation=name))
    assert found.startswith(f'spec.mpiImplementation: "{name}": reaches several workers by ssh')


def test_a_launcher_that_is_a_worker_too_is_one_more_task() -> None:
    found = read(mpi_job(["mpirun", "solve"], workers=2, runLauncherAsWorker=True))
    assert len(found.job.tasks) == 3
    assert any("runLauncherAsWorker: the launcher is one more task" in note for note in found.notes)


def test_what_a_launcher_in_the_first_workers_pod_cannot_have_is_refused_or_noted() -> None:
    document = mpi_job(["mpirun"])
    launcher = document["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]
    launcher["nodeSelector"] = {"pool": "small"}
    path = "spec.mpiReplicaSpecs.Launcher.template.spec"
    assert f"{path}.nodeSelector: is not used: the launcher runs in the pod of the first worker" in (
        read(document).notes
    )
    launcher["containers"][0]["image"] = "me/other"
    assert [found.partition(": ")[0] for found in problems(document)] == [f"{path}.containers[0].image"]
    del launcher["containers"][0]["command"]
    assert f"{path}.containers[0].command" in [found.partition(": ")[0] for found in problems(document)]
