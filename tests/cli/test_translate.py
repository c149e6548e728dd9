"""`translate`: the task on standard output, the report beside it, and when it says no."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.cli.answers import one_line
from tests.translator.manifests import job
from tests.translator.skypilot import goldens


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


def test_strict_lets_nothing_be_lost(cli, manifest):
    path = manifest(job("spec/ttlSecondsAfterFinished", 60))
    assert cli("translate", path).code == 0
    assert cli("translate", path, "--strict").code == 2


def test_several_manifests_become_several_documents_each_with_a_report(cli, manifest):
    second = job("metadata/name", "other")
    answer = cli("translate", manifest(job("metadata/name", "one"), second))
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
