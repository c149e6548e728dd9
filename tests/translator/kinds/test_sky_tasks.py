"""SkyPilot tasks: what sky launch takes, as jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from starburst.domain.job import CloudChoice
from starburst.domain.resources import Resources
from tests.translator.kinds.running import Elsewhere, problems, read, run
from translator.intake.texts import read_manifests
from translator.kinds.conversion import converted
from translator.kinds.overrides import NONE, Overrides

TASK = "name: train\nnum_nodes: 1\nrun: python train.py\nresources: "


@pytest.mark.parametrize(
    ("resources", "needed"),
    [
        ("{accelerators: 'A100:8'}", Resources(8, gpu_type="A100")),
        ("{accelerators: {H100: 4}, cpus: 16+, memory: 64+}", Resources(4, 16000, 65536, "H100")),
        ("{accelerators: {'H100:2', 'A100:2'}}", Resources(2, gpu_type="H100 or A100")),
        ("{accelerators: L4}", Resources(1, gpu_type="L4")),
        ("{cpus: 2, memory: 512MB}", Resources(0, 2000, 512)),
        (
            "{any_of: [{accelerators: V100}, {accelerators: T4}], cpus: 4}",
            Resources(1, 4000, gpu_type="V100 or T4"),
        ),
    ],
)
def test_what_a_task_asks_for(resources: str, needed: Resources) -> None:
    assert read(TASK + resources, "task.yaml").job.tasks == (needed,)


def test_place_price_image_and_retries_are_kept() -> None:
    found = read(
        TASK
        + "{cloud: AWS, region: us-east-1, use_spot: true, max_hourly_cost: 3.5, image_id: 'docker:me/train',"
        " cpus: 1, priority: 7, disk_size: 100, job_recovery: {max_restarts_on_errors: 3}}",
        "task.yaml",
    )
    rules = found.job.offer_rules
    assert (rules.cloud, rules.region, rules.spot, str(rules.ceiling)) == ("aws", "us-east-1", True, "$3.50")
    assert (found.workload.image, found.job.priority, found.job.retries) == ("me/train", 7, 3)
    assert found.workload.manifest is None
    assert read(TASK + "{infra: kubernetes, cpus: 1}", "t.yaml").job.cloud is CloudChoice.NEVER


@pytest.mark.parametrize("text", ["1e-4", "2e5", "1234e56", "1E3", ".5e3"])
def test_a_variable_that_looks_like_a_number_to_manifests_alone_stays_as_it_is_written(text: str) -> None:
    """SkyPilot takes an exponent for one with a dot and a sign only; a commit may look like 1234e56."""
    task = f"envs: {{LR: {text}}}\nsecrets: {{KEY: {text}}}\nrun: x\n"
    for item in (read(task, "t.yaml"), *read_manifests(task, "t.yaml", suffix=lambda: "a1b2c")):
        assert dict(item.workload.env) == {"LR": text, "KEY": text}
    numbers = "envs: {A: 1.0e-4, B: 0x1e3, C: 1.50, D: 7}\nrun: x\n"
    assert dict(read(numbers, "t.yaml").workload.env) == {"A": "0.0001", "B": "483", "C": "1.5", "D": "7"}


@pytest.mark.parametrize(
    ("written", "given"),
    [
        *(("True", "True"), ("yes", "True"), ("off", "False"), ("y", "y"), ("2.0", "2.0"), ("12.10", "12.1")),
        *(("08", "08"), ("0o17", "0o17"), ("010", "8"), ("1_000", "1000"), ("1:30", "90")),
        *(("2024-01-01", "2024-01-01"), ("0x_", "0x_")),
    ],
)
def test_a_variable_without_quotes_has_the_text_that_sky_launch_gives_it(written: str, given: str) -> None:
    """SkyPilot: str() of what PyYAML reads."""
    task = f"envs: {{A: {written}}}\nsecrets: {{B: {written}}}\nrun: x\n"
    for item in (read(task, "t.yaml"), *read_manifests(task, "t.yaml", suffix=lambda: "a1b2c")):
        assert dict(item.workload.env) == {"A": given, "B": given}


def test_every_node_is_a_task_of_a_gang() -> None:
    assert len(read("num_nodes: 3\nrun: hostname\n", "many.yaml").job.tasks) == 3


def test_the_nodes_of_a_gang_on_pods_have_the_addresses_of_all_from_the_hosts_file(tmp_path: Path) -> None:
    found = read("num_nodes: 2\nrun: echo $SKYPILOT_NODE_IPS\n", "t.yaml")
    (tmp_path / "hosts").write_text("10.0.0.1\n10.0.0.2\n")
    on_pod = run(found, tmp_path, STARBURST_HOSTS_FILE=str(tmp_path / "hosts"))
    elsewhere = run(found, tmp_path, SKYPILOT_NODE_IPS="10.0.0.3\n10.0.0.4")
    assert (on_pod.stdout, elsewhere.stdout) == ("10.0.0.1 10.0.0.2\n", "10.0.0.3 10.0.0.4\n")
    assert run(found, tmp_path).returncode == 127, "every node would take itself for the first"


@pytest.mark.parametrize(("size", "given"), [("512", "512Gi"), ("256GB+", "256Gi"), ("1TB", "1024Gi")])
def test_a_disk_has_its_size_with_a_unit_too(size: str, given: str) -> None:
    task = converted(f"run: a\nresources: {{disk_size: {size}}}\n", "t.yaml", Elsewhere(), NONE)
    assert task is not None
    assert json.loads(task.text)["metadata"]["annotations"]["starburst.io/disk-size"] == given


@pytest.mark.parametrize(
    ("lines", "note"),
    [
        ("{any_of: [{cpus: 1}, {cpus: 2}]}", "resources.any_of[1]: is left out: cpus would differ"),
        ("{accelerators: {A100: 1, V100: 2}}", "resources.accelerators: V100:2: left out"),
        ("{cpus: 1, autostop: 10}", "resources.autostop: a machine is given back when no job is on it"),
        ("{cpus: 1, ports: 8080}", "resources.ports: ports of a job are not opened"),
        ("{cpus: 1, instance_type: p3.2xlarge}", "resources.instance_type: Starburst chooses the machine"),
        ("{cpus: 1}\nsecrets: {TOKEN: x}", "secrets: are variables of the job"),
        ("{cpus: 1}\nevent_callback: echo", "event_callback: callbacks are not run"),
    ],
)
def test_what_is_not_kept_is_said(lines: str, note: str) -> None:
    (told,) = read(TASK + lines, "task.yaml").notes
    assert told.startswith(note)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("setup: pip install x\n", "run: is missing"),
        ("run: [a, b]\nnum_nodes: 1\n", "run: must be text"),
        ("run: a\nservice: {replicas: 2}\n", "service: Starburst runs jobs that end"),
        ("run: a\nresources: {image_id: ami-123}\n", "resources.image_id: only images of containers"),
        (
            "run: a\nresources: {accelerators: 'A100:0.5'}\n",
            "resources.accelerators: A100:0.5: parts of a GPU are not given out",
        ),
        (
            'run: a\nresources: {accelerators: "requirements.txt\\n"}\n',
            r"resources.accelerators: requirements.txt\u000a: parts of a GPU are not given out",
        ),
        ("run: a\nresources: {instance_type: p3.2xlarge}\n", "says nothing of its size here"),
        ("run: a\nresources: {memory: 3x}\n", 'resources.memory: "3x": must be a size in GiB'),
        ("run: a\nfile_mounts: {/data: 's3://sets'}\n", 'file_mounts["/data"]: buckets are not mounted'),
        ("run: a\nenvs: {TOKEN: null}\n", "envs.TOKEN: has no value; give it with --env TOKEN"),
        ("run: a\nworkdir: {url: 'https://git'}\n", "workdir: repositories are not fetched"),
        ("run: a\nnum_node: 2\n", "num_node: is not a field of a SkyPilot task; did you mean num_nodes?"),
        ("run: a\nresources: {gpus: 1}\n", "resources.gpus: "),
    ],
)
def test_what_would_run_wrongly_is_refused_by_field(text: str, told: str) -> None:
    (line,) = problems(text, "task.yaml")
    assert told in line


def test_setup_runs_before_run_and_both_find_the_variables(tmp_path: Path) -> None:
    lines = ("  cat made | cut -d' ' -f1,2", '  echo "$SKYPILOT_NODE_RANK/$SKYPILOT_NUM_NODES"', "")
    task = "\n".join(("setup: echo setup $MODEL $$ > made", "run: |", *lines))
    found = read(f"{task}envs: {{MODEL: llama, COUNT: 3}}\n", "task.yaml")
    assert run(found, tmp_path).stdout == "setup llama\n0/1\n"
    failing = read("setup: exit 4\nrun: echo never\n", "task.yaml")
    told = run(failing, tmp_path)
    assert (told.returncode, told.stdout) == (4, "")


def test_variables_without_a_value_are_those_of_the_command_line(tmp_path: Path) -> None:
    found = read(
        "run: echo $TOKEN\nenvs: {TOKEN: null}\n", "t.yaml", overrides=Overrides(env={"TOKEN": "abc"})
    )
    assert run(found, tmp_path).stdout == "abc\n"


def test_workdir_and_file_mounts_go_along(tmp_path: Path) -> None:
    code, there = tmp_path / "code", tmp_path / "there"
    code.mkdir()
    there.mkdir()
    for name in ("train.py", "left.out", "notes.md"):
        (code / name).write_text(name)
    (code / ".skyignore").write_text("*.out\n")
    (code / ".gitignore").write_text("*.md\n")
    mounts = f"  ~/cfg/a b.md: {code}/notes.md\n  {there}/all: {code}\n"
    task = f"workdir: {code}\nfile_mounts:\n{mounts}run: ls; cat ~/cfg/*; ls {there}/all\n"
    told = run(read(task, "task.yaml"), there)
    assert told.stdout == "notes.md\ntrain.py\nnotes.mdnotes.md\ntrain.py\n", told.stderr


def test_variables_are_filled_in_in_the_paths_of_files(tmp_path: Path) -> None:
    """As by sky launch; what is no variable of the task stays as it is written."""
    for name in ("small", "large"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model").write_text(name)
    mounts = f"{{'{tmp_path}/there/$SIZE-$HOME': '{tmp_path}/${{SIZE}}/model'}}"
    task = f"envs: {{SIZE: small}}\nworkdir: {tmp_path}/$SIZE\nfile_mounts: {mounts}\nrun: cat model\n"
    for size, overrides in (("small", NONE), ("large", Overrides(env={"SIZE": "large"}))):
        told = run(read(task, "task.yaml", overrides=overrides), tmp_path)
        assert told.stdout == size, told.stderr
        assert (tmp_path / "there" / f"{size}-$HOME").read_text() == size


def test_a_server_has_no_paths_of_its_users() -> None:
    with pytest.raises(Exception, match=r'workdir: "[.]": is a path of the machine that submits'):
        read_manifests("workdir: .\nrun: a\n", "task.yaml", suffix=lambda: "a1b2c")
    (found,) = read_manifests("run: echo a\nresources: {ports: 1}\n", "task.yaml", suffix=lambda: "a1b2c")
    assert found.notes[0].startswith("resources.ports: ")


def test_manifests_beside_a_task_stay_what_they_are() -> None:
    job = '{"apiVersion": "batch/v1", "kind": "ConfigMap", "metadata": {"name": "conf"}}'
    text = f"run: echo a\n---\n{job}\n"
    found = read(text, "task.yaml", Elsewhere())
    assert any("ConfigMap conf" in note for note in read_manifests(text, "t", suffix=lambda: "a")[0].notes)
    assert found.job.name == "task"
