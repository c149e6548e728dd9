"""`translate`: the task on standard output, the report beside it, and when it says no."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
import yaml

from starburst.clusters.kubernetes.config_data import CONFIG_MAPS, SECRETS
from starburst.kube import api as kube_api
from tests.cli.answers import one_line
from tests.translator.manifests import job
from tests.translator.skypilot import goldens

PRICES = """InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,SpotPrice,Region
p3.8xlarge,V100,4,32,244,12.24,,us-east-1
"""


@pytest.fixture
def manifest(tmp_path):
    """Writes manifests as the documents of a file."""

    def write(*manifests):
        path = tmp_path / "job.yaml"
        path.write_text("".join(f"---\n{json.dumps(each)}\n" for each in manifests))
        return path

    return write


def test_the_task_is_printed_and_every_field_has_its_line(cli, manifest):
    answer = cli("translate", manifest(job("spec/backoffLimit", 0)))
    assert answer.code == 0
    task = yaml.safe_load(answer.out)
    assert (task["name"], task["resources"]["image_id"]) == ("train", "docker:trainer:1")
    assert "exec python3 train.py" in task["run"]
    lines = [line.split() for line in answer.err.splitlines()]
    assert ["kept", "spec.backoffLimit"] in [line[:2] for line in lines]
    starts = {line.index("spec") for line in answer.err.splitlines() if "  spec" in line}
    assert len(starts) == 1  # the columns are aligned


def test_what_is_refused_is_printed_with_a_warning_and_exit_code_2(cli, manifest):
    answer = cli("translate", manifest(job("POD/hostNetwork", True)))
    assert answer.code == 2
    assert answer.out.startswith("# refused: spec.template.spec.hostNetwork\n")
    assert "set the annotation starburst.io/cloud: never" in answer.err
    assert "Traceback" not in answer.err


def test_a_task_of_skypilot_is_translated_as_submit_reads_it(cli, tmp_path):
    file = tmp_path / "task.yaml"
    file.write_text(
        "name: Fine_Tune\nnum_nodes: 2\nresources: {accelerators: A100:8, infra: aws, ports: 80}\n"
        "workdir: .\nfile_mounts: {/data: ./data}\nenvs: {A: b}\nsecrets: {TOKEN: hush}\n"
        "setup: pip install x\nrun: python train.py\n"
    )
    answer = cli("translate", file)
    task = yaml.safe_load(answer.out)
    assert (answer.code, task["name"], task["num_nodes"]) == (0, "fine-tune", 2)
    assert task["resources"] == {"accelerators": {"A100": 8}, "infra": "aws"}
    assert "'pip install x' 'python train.py'" in task["run"]
    assert (task["envs"], task["secrets"]) == ({"A": "b"}, {"TOKEN": None})
    lines = {tuple(line.split()[:2]) for line in answer.err.splitlines()}
    lost = ("workdir", 'file_mounts["/data"]', "resources.ports", "num_nodes")
    assert {("approximated", field) for field in lost} <= lines
    assert {("kept", "name"), ("kept", "resources.infra"), ("kept", "run"), ("kept", "envs[0]")} <= lines
    assert "hush" not in answer.out + answer.err
    assert cli("translate", file, "--strict").code == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("run: ''", 'run: "": is missing; write the commands of the task'),
        ("run: [a]", "run: must be text; put it in quotes"),
        ("run: a\nenvs: {X: }", "envs.X: has no value; give it with --env X"),
        ("run: a\nfile_mounts: {/d: 's3://b'}", 'file_mounts["/d"]: buckets are not mounted'),
        ("run: a\nfile_mounts: [a]", "file_mounts: must be a mapping of keys to values"),
        ("run: a\nsecrets: [x]", "secrets: must be a mapping of keys to values"),
    ],
)
def test_a_task_that_submit_refuses_is_refused_with_one_line(cli, tmp_path, text, told):
    file = tmp_path / "task.yaml"
    file.write_text(text)
    answer = cli("translate", file)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {file}, document 1: {told}")


def test_a_kind_of_an_operator_is_translated_with_a_report_in_its_own_words(cli):
    examples = Path(__file__).parents[2] / "configs" / "examples"
    answer = cli("translate", examples / "pytorch-job.yaml")
    assert (answer.code, yaml.safe_load(answer.out)["num_nodes"]) == (0, 4)
    assert "spec.pytorchReplicaSpecs.Master.template.spec.containers[0].image" in answer.err
    answer = cli("translate", examples / "cron-job.yaml")
    assert "dropped       spec.schedule" in answer.err
    assert "spec.jobTemplate.spec.template.spec.containers[0].image" in answer.err


def test_a_batch_script_is_translated_with_a_report_by_its_options(cli, tmp_path):
    script = tmp_path / "train.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH -N 2 --gres=gpu:a100:8 -p gpu\n#SBATCH --time=60\nsrun train\n")
    found = cli("translate", script)
    task = yaml.safe_load(found.out)
    assert (found.code, task["num_nodes"], task["resources"]) == (0, 2, {"accelerators": {"A100": 8}})
    lines = {line[14:].split("  ")[0]: line.split()[0] for line in found.err.splitlines()}
    assert lines["line 2, --partition"] == lines["--time"] == "approximated"
    assert lines["--gpus, --cpus-per-task, --mem"] == "kept"
    script.write_text("#!/bin/bash\n#SBATCH --array=0-7\ntrain\n")
    found = cli("translate", script)
    assert (found.code, 'refused       --array  "0-7": a task is one job' in found.err) == (2, True), (
        found.err
    )
    script.write_text("#!/bin/bash\n#SBATCH --begin=16:00\ntrain\n")
    assert "line 2, --begin" in cli("translate", script).err


def test_strict_lets_nothing_be_lost(cli, manifest):
    path = manifest(job("spec/ttlSecondsAfterFinished", 60))
    assert cli("translate", path).code == 0
    assert cli("translate", path, "--strict").code == 2


def test_several_manifests_become_several_documents_each_with_a_report(cli, manifest):
    second = {key: job("metadata/name", "other")[key] for key in ("metadata", "spec")}
    jobs = {"apiVersion": "batch/v1", "kind": "JobList", "items": [second]}
    answer = cli("translate", manifest(job("metadata/name", "one"), jobs))
    assert [task["name"] for task in yaml.safe_load_all(answer.out)] == ["one", "other"]
    assert [line for line in answer.err.splitlines() if line.startswith("Job ")] == ["Job one:", "Job other:"]


def test_json_has_the_promised_keys(cli, manifest):
    answer = cli("translate", manifest(job("metadata/name", "one")), "-o", "json")
    (found,) = json.loads(answer.out)
    assert set(found) == {"task", "report"}
    assert set(found["report"][0]) == {"field", "verdict", "text"}
    assert found["task"]["name"] == "one"


def test_a_manifest_that_is_wrong_has_no_task(cli, manifest):
    path = manifest(job("CONTAINER/resources", {"requests": {"cpu": "1x"}}))
    answer = cli("translate", path)
    assert (answer.code, answer.out) == (2, "")
    assert "not a Kubernetes quantity" in answer.err
    assert json.loads(cli("translate", path, "-o", "json").out)[0]["task"] is None


def test_volumes_are_mapped_by_the_config(cli, tmp_path):
    config = tmp_path / "starburst.yaml"
    config.write_text(yaml.safe_dump({"cloud": {"volumes": goldens.VOLUMES}}))
    answer = cli("translate", goldens.CASES / "pvc-mapped.yaml", "--config", config)
    assert answer.code == 0
    assert yaml.safe_load(answer.out)["file_mounts"]["/out"]["source"] == "gs://lab-results"


@pytest.fixture
def on_kubernetes(server, tmp_path, monkeypatch):
    """A config file that names a cluster."""
    monkeypatch.setattr(kube_api, "FIRST_PAUSE_S", 0.0)
    path = tmp_path / "starburst.yaml"
    kubeconfig = str(server.kubeconfig(tmp_path / "kubeconfig"))
    cluster = {"kind": "kubernetes", "kubeconfig": kubeconfig, "namespace": "team"}
    path.write_text(yaml.safe_dump({"cluster": cluster, "cloud": {"volumes": goldens.VOLUMES}}))
    return path


PASSWORD = {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}}
LEARNING_RATE = {"name": "LR", "valueFrom": {"configMapKeyRef": {"name": "limits", "key": "lr"}}}


def test_a_cluster_that_the_config_names_is_asked_and_no_secret_is_shown(
    cli, manifest, server, on_kubernetes
):
    secret = base64.b64encode(b"s3cret").decode()
    server.add(SECRETS, {"metadata": {"namespace": "team", "name": "login"}, "data": {"password": secret}})
    server.add(CONFIG_MAPS, {"metadata": {"namespace": "team", "name": "limits"}, "data": {"lr": "0.1"}})
    path = manifest(job("CONTAINER/env", [PASSWORD, LEARNING_RATE]))
    answer = cli("translate", path, "--config", on_kubernetes)
    assert answer.code == 0, answer.err
    task = yaml.safe_load(answer.out)
    assert (task["secrets"], task["envs"]) == ({"PASSWORD": None}, {"LR": "0.1"})
    told = answer.out + answer.err + cli("translate", path, "--config", on_kubernetes, "-o", "json").out
    assert "s3cret" not in told
    assert secret not in told


def test_what_the_cluster_does_not_have_is_refused_by_name(cli, manifest, server, on_kubernetes):
    answer = cli("translate", manifest(job("CONTAINER/env", [PASSWORD])), "--config", on_kubernetes)
    assert answer.code == 2
    assert "there is no Secret login in namespace team; create it" in answer.err


def test_a_cluster_that_does_not_answer_leaves_it_unresolved_and_the_report_says_so(
    cli, manifest, server, on_kubernetes
):
    server.fail("/secrets/", status=503, times=99)
    answer = cli("translate", manifest(job("CONTAINER/env", [PASSWORD])), "--config", on_kubernetes)
    assert answer.code == 2
    assert "unresolved: Secret login is in the cluster, which did not tell (Secret login: 503" in answer.err
    assert yaml.safe_load(answer.out)["secrets"] == {"PASSWORD": None}


def test_a_manifest_that_needs_nothing_of_the_cluster_does_not_ask_it(cli, manifest, server, on_kubernetes):
    assert cli("translate", manifest(job("spec/backoffLimit", 0)), "--config", on_kubernetes).code == 0
    assert server.asked == []


@pytest.mark.parametrize(
    ("volumes", "error"),
    [
        ("{claim/a: s3://b}", "cloud.volumes"),
        ("[", "check the indentation"),
    ],
)
def test_a_bad_config_is_one_line(cli, tmp_path, manifest, volumes, error):
    config = tmp_path / "starburst.yaml"
    config.write_text(f"cloud:\n  volumes: {volumes}\n")
    answer = cli("translate", manifest(job("metadata/name", "one")), "--config", config)
    assert error in one_line(answer)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"", "there is no Job or Pod in it; write at least one"),
        (b"\xff", "is not a text file; write YAML in UTF-8"),
        (b"- 1", "document 1: not a manifest; write a batch/v1 Job or a v1 Pod"),
        (b"a: [", "check the indentation"),
    ],
)
def test_what_is_no_manifest_is_one_line(cli, text, error):
    assert error in one_line(cli("translate", "-", stdin=text))


def test_a_file_that_is_not_there_is_one_line(cli, tmp_path):
    assert "cannot be read" in one_line(cli("translate", tmp_path / "absent.yaml"))


def test_a_config_with_offers_tells_which_machines_a_gang_would_get_when_it_leaves(cli, tmp_path):
    """The choice is that of the scheduler: fewer machines than tasks, where one holds several of them."""
    examples = Path(__file__).parents[2] / "configs" / "examples"
    offers = "{name: p3, gpus: 4, gpu_type: V100, cpus: 32, memory_gib: 256, usd_per_hour: 12}"
    config = tmp_path / "starburst.yaml"
    config.write_text(f"cloud: {{offers: [{offers}]}}\n")
    answer = cli("translate", examples / "gang.yaml", "--config", config)
    assert yaml.safe_load(answer.out)["num_nodes"] == 2
    assert "Starburst itself would rent 2 × p3 at $24.00/h: no machine holds all 2 tasks" in answer.err
    config.write_text(f"cloud: {{offers: [{offers.replace('gpus: 4', 'gpus: 8')}]}}\n")
    answer = cli("translate", examples / "gang.yaml", "--config", config, "-o", "json")
    assert json.loads(answer.out)[0]["rents"] == "p3 at $12.00/h: it holds all 2 tasks"


def test_with_skypilot_it_shows_the_task_that_rents_them(cli, tmp_path):
    """The one that the scheduler launches, but for labels: how many machines, and where."""
    pytest.importorskip("sky")
    examples = Path(__file__).parents[2] / "configs" / "examples"
    prices, config = tmp_path / "prices.csv", tmp_path / "starburst.yaml"
    prices.write_text(PRICES)
    fast = "spot: never, network_tier: best"
    config.write_text(f"cloud: {{kind: skypilot, {fast}, prices: {prices}, idle_minutes: 7}}\n")
    answer = cli("translate", examples / "gang.yaml", "--config", config)
    told = answer.err.partition("Starburst itself would rent 2 × aws/us-east-1/p3.8xlarge at $24.48/h")[2]
    shown = {
        "resources": {
            "infra": "aws/us-east-1",
            "instance_type": "p3.8xlarge",
            "use_spot": False,
            "network_tier": "best",
            "autostop": {"idle_minutes": 7, "down": True},
        },
        "num_nodes": 2,
    }
    assert yaml.safe_load(told.partition("\n")[2]) == shown
    (found,) = json.loads(cli("translate", examples / "gang.yaml", "--config", config, "-o", "json").out)
    assert found["launches"] == shown
