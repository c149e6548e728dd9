"""Batch scripts of Slurm: what they ask for, what of them is not kept, and what they find when they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from starburst.domain.array import members
from starburst.domain.resources import Resources
from tests.translator.kinds.running import Elsewhere, problems, read, run
from translator.intake.texts import read_manifests
from translator.kinds.gpu_request import GpuRequest
from translator.kinds.overrides import Overrides
from translator.kinds.sbatch import values

BODY = "\necho started\n"


def script(*options: str, body: str = BODY, shebang: str = "#!/bin/bash") -> str:
    return "\n".join([shebang, *(f"#SBATCH {option}" for option in options), body])


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        (["--gres=gpu:2"], Resources(2)),
        (["--gres=gpu:a100:4 -c 8"], Resources(4, 8000, gpu_type="A100")),
        (["-G h100:2", "-n 2", "--mem=64G"], Resources(2, 2000, 65536, "H100")),
        (["--gpus-per-task=1", "--ntasks=4", "--cpus-per-task=2"], Resources(4, 8000)),
        (["--gpus-per-node=2", "--constraint=v100"], Resources(2, gpu_type="V100")),
        (["-c4", "--mem-per-cpu=2G"], Resources(0, 4000, 8192)),
        (["--gres=gpu:2", "--mem-per-gpu=16G", "--cpus-per-gpu=4"], Resources(2, 8000, 32768)),
        (["--tasks-per-node 8"], Resources(0, 8000)),
        (["--mem=1000K", "-n1"], Resources(0, 1000, 1)),
        (["--gpus-per-node=2", "--constraint=[a100|h100]&ib"], Resources(2, gpu_type="A100 or H100")),
        (["--gpus=2", "--constraint=gen10"], Resources(2)),
        (["--gpus=4", "--ntasks-per-gpu=2", "-c 2"], Resources(4, 16000)),
        (["-n 8", "--ntasks-per-gpu=4", "-C a100"], Resources(2, 8000, gpu_type="A100")),
        (["--gpus=2", "--gres=gpu:a100:2"], Resources(2, gpu_type="A100")),
    ],
)
def test_what_a_script_asks_for(options: list[str], needed: Resources) -> None:
    assert read(script(*options)).job.tasks == (needed,)


@pytest.mark.parametrize(
    ("options", "each", "nodes"),
    [
        (["-N2", "--gres=gpu:4", "--mem=8G"], Resources(4, 0, 8192), 2),
        (["--nodes=2-4", "--gpus=8", "--ntasks-per-node=4"], Resources(4, 4000), 2),
        (["-N 2", "-n 3", "-c 2"], Resources(0, 4000), 2),
        (["-N 4", "-n 2", "--gpus-per-task=1"], Resources(1, 1000), 2),
        (["-n 16", "--ntasks-per-node=8", "--gpus-per-task=1"], Resources(8, 8000), 2),
        (["--gpus=16", "--gpus-per-node=a100:8"], Resources(8, gpu_type="A100"), 2),
        (["-N 2", "-n 8", "--ntasks-per-gpu=1"], Resources(4, 4000), 2),
        (["-n 8", "--gres=gpu:4", "--ntasks-per-gpu=1"], Resources(4, 4000), 2),
    ],
)
def test_what_it_asks_for_on_each_of_several_nodes(options: list[str], each: Resources, nodes: int) -> None:
    assert read(script(*options)).job.tasks == (each,) * nodes


@pytest.mark.parametrize(("tasks", "nodes", "said"), [(2, 1, "2"), (6, 3, "2(x3)"), (5, 2, "3,2")])
def test_tasks_of_nodes_are_written_as_slurm_does(tasks: int, nodes: int, said: str) -> None:
    assert values.by_node(tasks, nodes) == said


@pytest.mark.parametrize(
    ("text", "limit_s"),
    [
        *(("90", 5400), ("1:30", 90), ("2:00:00", 7200), ("1-12", 129600), ("1-02:30", 95400)),
        *(("2-00:00:10", 172810), ("UNLIMITED", None), ("0", None)),
    ],
)
def test_times_are_those_of_sbatch(text: str, limit_s: int | None) -> None:
    assert read(script(f"--time={text}", "-n1")).workload.time_limit_s == limit_s


def test_names_dependencies_and_holds_are_kept() -> None:
    found = read(script("-J Fine_Tune", "-d afterok:prep:split,afterany:clean", "-H", "-n1"))
    assert (found.job.name, found.job.hold) == ("fine-tune", True)
    assert (found.job.after_ok, found.job.after_any) == (("prep", "split"), ("clean",))
    assert found.notes == ("line 2, --job-name: Fine_Tune: the job is named fine-tune",)
    found = read(script("-d Singleton,afterok:prep", "-n1"))
    assert (found.singleton, found.job.after_ok) == (True, ("prep",))
    found = read(script("-d AfterNotOk:prep,after:split:clean", "-n1"))
    assert not found.singleton
    assert (found.job.after_not_ok, found.job.after_start) == (("prep",), ("split", "clean"))


@pytest.mark.parametrize("option", ["--output=%j.out", "-p gpu", "-A lab", "--mail-type=END", "-w node7"])
def test_what_is_not_kept_is_said(option: str) -> None:
    (note,) = read(script(option, "-n1")).notes
    assert note.startswith("line 2, --")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("-n 4", "line 2, --ntasks: all 4 run on one node; for several give --nodes"),
        (
            "--gpus=1 -C a100&h100",
            "line 2, --constraint: A100 is asked for; no node has GPUs of several types",
        ),
        ("-C avx512", "line 2, --constraint: avx512: features of Slurm's nodes are not known"),
        ("--gpus=a100:1 -C ib", "line 2, --constraint: ib: features of Slurm's nodes are not known"),
        ("--gpus=1 --gres=gpu:2", "line 2, --gres: is not used: --gpus says 1 GPUs of each node"),
    ],
)
def test_what_is_taken_of_several_is_said(options: str, told: str) -> None:
    (note,) = read(script(options)).notes
    assert note.startswith(told)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("-N2 --gpus=3", 'line 2, --gpus: "3": must be a multiple of the 2 nodes'),
        ("--gress=gpu:1", 'line 2, --gress: "gpu:1": is no option of sbatch; did you mean gres?'),
        ("--begin=16:00", 'line 2, --begin: "16:00": start times are not kept'),
        ("--time=soon", 'line 2, --time: "soon": must be minutes'),
        ("--gres=gpu:2,shard:1", 'line 2, --gres: "gpu:2,shard:1": shard:1: only gpu is a resource here'),
        ("--gres=gpu:a100:1,gpu:l4:1", "gpu:l4:1: a job has GPUs of one type"),
        ("-d singleton:a", "write singleton, or one of afterok, afterany, afternotok, after"),
        ("-d after:a+5", "a time behind + is not kept"),
        (
            "-d expand:a",
            "write singleton, or one of afterok, afterany, afternotok, after with :JOB behind it",
        ),
        (
            "-d afternotok",
            "write singleton, or one of afterok, afterany, afternotok, after with :JOB behind it",
        ),
        ("-d afterok:Prep", "Prep: ids and names of jobs have lower-case letters"),
        (
            "-d afterok::",
            "write singleton, or one of afterok, afterany, afternotok, after with :JOB behind it",
        ),
        ("-Z", "line 2, #SBATCH -Z: cannot be read: -Z is no option of sbatch"),
        ("hetjob", "jobs of several parts are not taken"),
        ("--mem", "--mem has no value"),
    ],
)
def test_what_would_run_wrongly_is_refused_with_its_line(option: str, told: str) -> None:
    (line,) = problems(script(option))
    assert line.startswith("train.sbatch: ")
    assert told in line


def test_a_container_of_srun_is_refused_unless_the_whole_job_has_an_image() -> None:
    text = script(
        "-n1", body="echo a # --container-image\nsrun --ntasks=1 \\\n  --container-image=me/x train\n"
    )
    (line,) = problems(text)
    assert line.startswith("train.sbatch: line 5, --container-image: srun starts no containers; ")
    assert not problems(text, overrides=Overrides(image="me/x"))


def test_options_below_the_first_command_are_not_read_as_for_sbatch() -> None:
    found = read(script("-n1", body="echo a\n#SBATCH -G 8\n"))
    assert found.job.tasks[0].gpus == 0
    assert found.notes == ("line 4: stands below the first command, where sbatch reads no options",)


def test_a_comment_begins_with_a_word_of_its_own() -> None:
    found = read(
        script("--container-image=nvcr.io#nvidia/pytorch:24.01 --gpus=8 # don't wait", "-c 4 ## CPUs")
    )
    assert found.workload.image == "nvcr.io/nvidia/pytorch:24.01"
    assert found.job.tasks == (Resources(8, 4000),)


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_a_script_written_on_windows_is_read_as_one_of_unix(mark: str, end: str, tmp_path: Path) -> None:
    found = read(mark + script("--gpus=2", body="echo it\necho runs\n").replace("\n", end))
    assert found.job.tasks == (Resources(2),)
    assert run(found, tmp_path).stdout == "it\nruns\n"


def test_an_interpreter_may_be_found_by_env_with_options(tmp_path: Path) -> None:
    found = read(script("-n1", shebang="#!/usr/bin/env -S bash -e", body="false\necho never\n"))
    assert (run(found, tmp_path).returncode, run(found, tmp_path).stdout) == (1, "")


def test_an_interpreter_that_cannot_be_given_the_script_is_refused() -> None:
    assert "begin the script with #!/bin/bash" in problems(script("-n1", shebang="#!/usr/bin/tclsh"))[0]


def test_the_command_line_comes_before_the_script() -> None:
    overrides = Overrides(gpus=GpuRequest(1, "L4"), image="me/train", array="0-2", hints={"queue": "papers"})
    found = read(script("--gres=gpu:a100:8", "--array=0-99"), overrides=overrides)
    assert found.job.tasks[0] == Resources(1, gpu_type="L4")
    assert (found.workload.image, found.job.queue, len(members(found))) == ("me/train", "papers", 3)


def test_a_script_finds_the_variables_of_slurm_and_its_arguments(tmp_path: Path) -> None:
    body = (
        'echo "$SLURM_JOB_ID $SLURM_NTASKS $SLURM_CPUS_PER_TASK $SLURM_JOB_NAME $0 $1 $$" | sed "s/[0-9]*$//"'
    )
    found = read(script("-n 2 -c 3", "-J a", body=body), overrides=Overrides(arguments=("--lr=1 2",)))
    assert run(found, tmp_path).stdout == "a-a1b2c 2 3 a train.sbatch --lr=1 2 \n"


@pytest.mark.parametrize(("array", "ids"), [("4-6", "4 5 6"), ("1,3,9%2", "1 3 9"), ("0-15:8", "0 8")])
def test_each_job_of_an_array_has_its_index(array: str, ids: str, tmp_path: Path) -> None:
    body = "echo $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
    jobs = members(read(script(f"--array={array}", "-n1", body=body)))
    said = [run(job, tmp_path).stdout.strip() for job in jobs]
    assert said == [f"{index}/{len(jobs)}" for index in ids.split()]


@pytest.mark.parametrize(
    ("array", "step"), [("0-8:4", "4"), ("1-3", "1"), ("7", "1"), ("1,3,9", ""), ("2,4,6", "2")]
)
def test_a_job_of_an_array_knows_the_step_that_is_its_share(array: str, step: str, tmp_path: Path) -> None:
    body = "for i in $(seq 1 ${SLURM_ARRAY_TASK_STEP:-0}); do printf .; done; echo $SLURM_ARRAY_TASK_STEP"
    found = read(script("-n1", f"--array={array}", body=body))
    assert run(found, tmp_path).stdout == "." * int(step or 0) + f"{step}\n"


def test_a_directive_needs_no_blank_before_its_options() -> None:
    found = read("#!/bin/bash\n#SBATCH--gres=gpu:a100:2\n#SBATCH-c4 --time=1:00\n#SBATCHED -n 9\ntrue\n")
    assert found.job.tasks == (Resources(2, 4000, gpu_type="A100"),)
    assert found.workload.time_limit_s == 60


def test_srun_runs_a_process_per_gpu(tmp_path: Path) -> None:
    found = read(script("--gpus=2", "--ntasks-per-gpu=1", body="srun -l sh -c 'echo $CUDA_VISIBLE_DEVICES'"))
    told = run(found, tmp_path, CUDA_VISIBLE_DEVICES="4,5")
    assert sorted(told.stdout.splitlines()) == ["0: 4", "1: 5"]
    (note,) = read(script("--gpus=2", "--ntasks-per-gpu=2")).notes
    assert note == "line 3, --ntasks-per-gpu: each process sees all GPUs of its node, not one of them"


def test_a_script_counts_the_gpus_of_a_node(tmp_path: Path) -> None:
    found = read(script("--gpus-per-node=a100:4", body="echo --nproc-per-node=$SLURM_GPUS_PER_NODE"))
    assert run(found, tmp_path).stdout == "--nproc-per-node=4\n"


def test_srun_runs_a_process_per_task_each_with_its_gpus(tmp_path: Path) -> None:
    body = "srun -l sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS has $CUDA_VISIBLE_DEVICES'"
    found = read(script("-n 3", "--gpus-per-task=2", body=body))
    told = run(found, tmp_path, CUDA_VISIBLE_DEVICES="4,5,6,7,8,9")
    assert told.stderr == ""
    assert sorted(told.stdout.splitlines()) == [
        "0: 0 of 3 has 4,5",
        "1: 1 of 3 has 6,7",
        "2: 2 of 3 has 8,9",
    ]


@pytest.mark.parametrize(
    ("line", "code", "out"),
    [
        ("srun --ntasks=1 --mpi=pmix hostname >/dev/null; echo $?", 0, "0\n"),
        ("srun sh -c 'exit $((SLURM_PROCID * 3))'", 3, ""),
        ("srun -K sh -c '[ $SLURM_PROCID = 1 ] && exit 3; exec sleep 50'", 143, ""),
        ("srun -K true", 0, ""),
        ("srun -N 2 true", 2, ""),
        ("echo in | srun -n1 cat", 0, "in\n"),
        ("srun -D / -n1 pwd", 0, "/\n"),
        ('scontrol show hostnames "a,b"', 0, "a\nb\n"),
    ],
)
def test_srun_ends_as_its_tasks_do(line: str, code: int, out: str, tmp_path: Path) -> None:
    told = run(read(script("-n 2", body=line)), tmp_path)
    assert (told.returncode, told.stdout) == (code, out), told.stderr


def test_the_directory_goes_along_without_what_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "home" / "code" / "out").mkdir(parents=True)
    code, there = tmp_path / "home" / "code", tmp_path / "there"
    there.mkdir()
    (code / "train.py").write_text("print('trained')")
    (code / "out" / "big").write_text("x")
    (code / ".gitignore").write_text("out/\n")
    (code / "tool.sh").write_text("#!/bin/sh\necho tool\n")
    (code / "tool.sh").chmod(0o755)
    found = read(script("-n1", body="cat train.py; ls; ./tool.sh"), local=Elsewhere(str(code)))
    assert run(found, there).stdout == "print('trained')tool.sh\ntrain.py\ntool\n"
    relative = read(script("-n1", "-D out", body="ls"), local=Elsewhere(str(code)))
    assert run(relative, there).returncode == 1


def test_an_empty_directory_goes_along_too(tmp_path: Path) -> None:
    for name in ("code", "there"):
        (tmp_path / name).mkdir()
    told = run(
        read(script("-n1", body="ls; echo ran"), local=Elsewhere(str(tmp_path / "code"))), tmp_path / "there"
    )
    assert (told.returncode, told.stdout) == (0, "ran\n"), told.stderr


def test_a_shell_that_cannot_write_where_it_starts_unpacks_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a").write_text("")
    found = read(script("-n1", body="ls; pwd"), local=Elsewhere(str(tmp_path / "code")))
    told = run(found, Path("/proc"), TMPDIR=str(tmp_path))
    assert told.stdout.startswith(f"a\n{tmp_path}/"), told.stderr


def test_variables_of_the_submitter_go_along_only_by_name() -> None:
    local = Elsewhere(environ={"WANDB": "key", "OTHER": "x"})
    found = read(script("-n1", "--export=ALL,WANDB,LR=0.1,NOT_SET"), local=local)
    assert dict(found.workload.env) == {"WANDB": "key", "LR": "0.1"}
    assert found.notes == (
        "line 3, --export: the variables of your shell do not go along; name those that it needs",
        "line 3, --export: NOT_SET is not set where it is submitted",
    )


def test_a_server_takes_a_script_without_its_directory() -> None:

    (found,) = read_manifests(script("-G 1"), "train.sbatch", suffix=lambda: "a1b2c")
    assert found.job.tasks[0].gpus == 1
    assert "the directory of the script stays where it is" in found.notes[0]


@pytest.mark.parametrize("text", ["", "5-3", "a", "1-5%0", "0-99999999", "1,,2"])
def test_bad_arrays_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"indices|at most|order"):
        values.array(text)
