"""Submitting: all or nothing, and the answer beforehand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from starburst.app.config import parse_config
from starburst.domain.job import CloudChoice
from starburst.store.listings import queries
from tests.cli.answers import one_line
from tests.cli.manifests import manifest

EMBEDDED_CLOUD = {"kind": "local", "trust_users": True}

EXAMPLES = sorted((Path(__file__).parents[2] / "configs" / "examples").glob("*.yaml"))


@pytest.fixture
def write(tmp_path):
    def write(name, *documents):
        file = tmp_path / name
        file.write_text("\n---\n".join(documents))
        return file

    return write


def names(cli):
    return [row["name"] for row in json.loads(cli("status", "-o", "json").out)]


def test_jobs_are_submitted_and_wait_for_the_scheduler(cli, write):
    told = cli("submit", write("two.yaml", manifest("a", "true"), manifest("b", "true")))
    assert (told.code, len(told.out.splitlines())) == (0, 2)
    assert re.fullmatch(r"job/a-[a-z0-9]{5} submitted", told.out.splitlines()[0])
    assert "no starburst runs in" in told.err
    assert "start it with: starburst up" in told.err
    assert names(cli) == ["a", "b"]
    assert cli("explain", "a").out.endswith("is stored and waits for the scheduler to take it up\n")


def test_standard_input_is_a_file_too(cli):
    told = cli("submit", "-", "-o", "name", stdin=manifest("a", "true").encode())
    assert re.fullmatch(r"job/a-[a-z0-9]{5}\n", told.out)


def test_notes_are_said_and_shown_to_programs(cli, write):
    file = write("a.yaml", manifest("a", "true").replace('"Never"', '"OnFailure"'))
    note = "spec.template.spec.restartPolicy: a failed command is not restarted in place"
    assert f"  note: {note}" in cli("submit", file).err
    (row,) = json.loads(cli("submit", file, "-o", "json").out)
    assert list(row) == ["id", "name", "notes"]
    assert row["notes"] == [note]


def test_machines_that_nobody_offers_are_refused_at_once(cli, write):
    told = cli("submit", write("a.yaml", manifest("a", "true", infra="gcp"), manifest("b", "true")))
    assert (told.code, told.err) == (
        2,
        "error: job a: no offer that holds it is in gcp (starburst.io/infra): change that annotation, or set "
        "starburst.io/cloud: never\n",
    )
    assert names(cli) == []
    assert cli("submit", write("a.yaml", manifest("a", "true", infra="gcp", cloud="never"))).code == 0
    assert cli("submit", write("a.yaml", manifest("a", "true", infra="aws/us-east-1"))).code == 0


ON_A100 = """
apiVersion: batch/v1
kind: Job
metadata: {name: a}
spec:
  template:
    spec:
      restartPolicy: Never
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions:
                  - {key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-A100-SXM4-80GB]}
      containers:
        - {name: c, command: ["true"], resources: {limits: {nvidia.com/gpu: 1}}}
"""


def test_a_job_whose_place_nobody_offers_stays_and_a_note_says_why(cli, write):
    why = "no offer that holds it has GPU type A100-80GB"
    told = cli("submit", "--allow-unsatisfiable", write("a.yaml", ON_A100))
    assert told.code == 0
    assert f"  note: stays on the cluster: {why}\n" in told.err
    assert why in cli("submit", "--dry-run", write("a.yaml", ON_A100)).out


@pytest.mark.parametrize("words", [[], ["--dry-run"]], ids=["submit", "dry-run"])
def test_one_bad_document_of_ten_stops_them_all(cli, write, words):
    documents = [manifest(f"good-{i}", "true") for i in range(9)]
    documents.insert(6, manifest("bad", "true", max_wait="15"))
    file = write("ten.yaml", *documents)
    told = cli("submit", file, *words)
    assert (told.code, told.out) == (2, "")
    assert told.err == (
        f'error: {file}, document 7: metadata.annotations["starburst.io/max-wait"]: "15": '
        "a duration needs a unit; write 15s, 15m, 15h or 15d\n"
    )
    assert names(cli) == []


def test_every_bad_file_is_named_and_the_good_one_is_not_taken(cli, write, tmp_path):
    good, empty, binary = write("good.yaml", manifest("a", "true")), write("empty.yaml", ""), tmp_path / "bin"
    binary.write_bytes(b"\xff\xfe\x00")
    none = tmp_path / "none.yaml"
    told = cli("submit", good, empty, binary, none, "-", stdin=b"\xff")
    assert (told.code, told.out) == (2, "")
    assert told.err.splitlines() == [
        f"error: {empty}: there is no Job or Pod in it; write at least one",
        f"error: {binary}: is not a text file; write YAML in UTF-8",
        f"error: {none}: cannot be read (No such file or directory); name an existing YAML file",
        "error: <stdin>: is not a text file; write YAML in UTF-8",
    ]
    assert names(cli) == []


def test_a_directory_is_its_manifests_in_the_order_of_their_names(cli, write, tmp_path):
    write("b.yml", manifest("b", "true"))
    write("a.yaml", manifest("a", "true"))
    write("notes.txt", "no manifest")
    assert cli("submit", tmp_path).code == 0
    assert names(cli) == ["a", "b"]
    (tmp_path / "empty").mkdir()
    assert one_line(cli("submit", tmp_path / "empty")) == (
        f"{tmp_path / 'empty'}: is a directory without a file in .yaml, .yml, .json; name one"
    )


def test_an_image_alone_runs_nothing_here(cli, write):
    file = write("a.yaml", manifest("a"))
    told = cli("submit", file)
    assert told.code == 2
    assert told.err.startswith(f"error: {file}, job a: containers[0].command: is missing; ")


def test_an_image_alone_runs_on_a_kubernetes_cluster_and_nowhere_else(cli, past, write):
    config = parse_config({"cluster": {"kind": "kubernetes"}}, "test")
    past.store.set_fact("config", config.model_dump(mode="json"))
    assert cli("submit", "--dry-run", write("a.yaml", manifest("a"))).code == 0
    stays = write("b.yaml", manifest("b", cloud="never"))
    assert cli("submit", "--dry-run", stays).code == 0
    assert cli("submit", stays).code == 0
    (request,) = past.store.requests(9)
    assert request.submission.workload.command == ()
    assert json.loads(request.submission.workload.manifest)["metadata"]["name"] == "b"


def test_a_dry_run_is_not_waited_for(cli, write):
    told = cli("submit", "--dry-run", "--wait", write("a.yaml", manifest("a", "true")))
    assert (told.code, told.err) == (
        2,
        "error: --wait: a dry run submits nothing to wait for; drop --wait or --dry-run\n",
    )


def test_a_dry_run_gives_the_answer_of_the_live_core(cli, past, write):
    past.morning()
    file = write("a.yaml", manifest("new", "true", gpus=2, runtime_estimate="1h30m"))
    told = cli("submit", "--dry-run", file)
    assert told.out == (
        "new waits for 2 GPUs on the cluster until 12:14 (Compute-Wait: 2 GPU × 1.5 h × α 0.08 = 14.4 min); "
        "2nd in line for 2 GPUs; would then cost about $3.06 on p3.2xlarge\n"
    )
    assert "new" not in names(cli)
    (row,) = json.loads(cli("submit", "--dry-run", file, "-o", "json").out)
    assert list(row) == [
        "name",
        "phase",
        "explanation",
        "leaves_at",
        "position",
        "cloud_cost_usd",
        "offers",
        "notes",
    ]
    assert (row["position"], row["cloud_cost_usd"]) == (2, 3.06)


def test_a_dry_run_and_the_explanation_afterwards_are_the_same(cli, past, write):
    past.morning()
    file = write("a.yaml", manifest("new", "true", gpus=2, runtime_estimate="1h30m"))
    foretold = cli("submit", "--dry-run", file).out.removeprefix("new ")
    past.submit("new-66666", 2, runtime_estimate_s=5400.0)
    assert cli("explain", "new").out.removeprefix("new-66666 ") == foretold


def test_a_dry_run_needs_no_scheduler_and_no_history(cli, write):
    told = cli("submit", "--dry-run", write("a.yaml", manifest("a", "true")))
    assert told.out == "a would start at once on the cluster on node-0\n"


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_every_example_can_be_submitted(cli, file):
    assert cli("submit", "--dry-run", file).code == 0


def test_cancelling_is_asked_for_once_and_not_of_what_is_over(cli, past):
    past.morning()
    told = cli("cancel", "wait", "done")
    assert told.out.splitlines() == [
        "job/wait-55555 is being cancelled",
        "job/done-11111 is over already: succeeded",
    ]
    cli("cancel", "wait")
    assert [request.job_id for request in past.store.requests(9)] == ["wait-55555"]


def test_of_several_none_is_cancelled_if_one_is_unknown(cli, past):
    past.morning()
    assert cli("cancel", "wait", "nobody").code == 2
    assert past.store.requests(9) == []


def test_the_users_name_is_kept(cli, past, write, monkeypatch):
    monkeypatch.setenv("LOGNAME", "grace")
    cli("submit", write("a.yaml", manifest("a", "true")))
    assert [row.user for row in queries.jobs(past.store)] == ["grace"]


@pytest.mark.parametrize(("cloud", "stays"), [({"kind": "skypilot"}, False), (EMBEDDED_CLOUD, True)])
def test_secrets_go_along_to_real_machines_and_nowhere_else(cli, past, write, cloud, stays):
    config = parse_config({"cluster": {"kind": "kubernetes"}, "cloud": cloud}, "test")
    past.store.set_fact("config", config.model_dump(mode="json"))
    job = json.loads(manifest("a", "true"))
    source = {"secretKeyRef": {"name": "login", "key": "password"}}
    job["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "valueFrom": source}]
    told = cli("submit", write("a.yaml", json.dumps(job)))
    assert told.code == 0
    assert ("note: stays on the cluster: a value of Secret login" in told.err) == stays
    (request,) = past.store.requests(9)
    assert (request.submission.job.cloud is CloudChoice.NEVER) == stays


@pytest.mark.parametrize(
    ("volumes", "note"),
    [
        (
            {"pvc/sets": "s3://lab/sets"},
            "note: spec.template.spec.volumes[0].persistentVolumeClaim: s3://lab/sets",
        ),
        ({}, "note: stays on the cluster: PVC sets; name what stands in for pvc/sets under cloud.volumes"),
    ],
)
def test_a_claim_goes_along_to_real_machines_if_the_config_maps_it(cli, past, write, volumes, note):
    cloud = {"kind": "skypilot", "volumes": volumes}
    config = parse_config({"cluster": {"kind": "kubernetes"}, "cloud": cloud}, "test")
    past.store.set_fact("config", config.model_dump(mode="json"))
    job = json.loads(manifest("a", "true"))
    pod = job["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "sets"}}]
    pod["containers"][0] |= {"image": "me/train", "volumeMounts": [{"name": "v", "mountPath": "/in"}]}
    told = cli("submit", write("a.yaml", json.dumps(job)))
    assert told.code == 0
    assert note in told.err


COMPANION = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"}})


def test_what_is_no_job_is_named_and_with_apply_rest_applied_by_the_user(
    cli, write, server, monkeypatch, tmp_path
):
    file = write("a.yaml", COMPANION, manifest("a", "true"))
    assert "note: not a job and passed over: ConfigMap conf" in cli("submit", "--dry-run", file).err
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / "config")))
    told = cli("submit", "--apply-rest", file)
    assert (told.code, "ConfigMap conf applied" in told.err, "passed over" in told.err) == (0, True, False)
    (patch,) = [call for call in server.asked if call.method == "PATCH"]
    assert patch.path == "/api/v1/namespaces/default/configmaps/conf"
    assert patch.query == {"fieldManager": "starburst-submit"}


def test_nothing_is_applied_for_jobs_that_are_refused(cli, write, monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    told = cli("submit", "--apply-rest", write("a.yaml", COMPANION, manifest("a", "true", max_wait="15")))
    assert told.code == 2
    assert "max-wait" in told.err


def test_without_a_kubeconfig_apply_rest_says_so(cli, past, write, monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    told = cli("submit", "--apply-rest", write("a.yaml", COMPANION, manifest("a", "true")))
    assert told.code == 2
    assert told.err.startswith("error: --apply-rest: ")
    assert past.store.requests(9) == []


def test_the_server_is_asked_whether_it_takes_a_job_before_starburst_does(cli, past, write, server, tmp_path):
    kubeconfig = str(server.kubeconfig(tmp_path / "config"))
    config = parse_config({"cluster": {"kind": "kubernetes", "kubeconfig": kubeconfig}}, "test")
    past.store.set_fact("config", config.model_dump(mode="json"))
    cause = "spec.template.spec.containers[0].ports[0]: Invalid value"
    server.fail("POST /apis/batch", status=422, causes=(cause,))
    file = write("a.yaml", manifest("a", "true"))
    told = cli("submit", file)
    assert (told.code, told.err) == (2, f"error: {file}, job a: {cause}\n")
    assert past.store.requests(9) == []
    assert cli("submit", file).code == 0


def test_a_cluster_that_is_away_is_a_note_and_no_refusal(cli, past, write, monkeypatch, tmp_path):
    config = parse_config({"cluster": {"kind": "kubernetes"}}, "test")
    past.store.set_fact("config", config.model_dump(mode="json"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    told = cli("submit", write("a.yaml", manifest("a", "true")))
    assert told.code == 0
    assert "note: the cluster was not asked whether it takes it: " in told.err


@pytest.mark.parametrize(
    ("asked", "lacks"),
    [
        ({"gpus": 1000}, "no node or offer has 1000 GPUs (the largest has "),
        ({"gpus": 1, "gpu_type": "B9000"}, "no node or offer has GPUs of type B9000 (there are "),
        ({"gpus": 1, "cpu": "9000"}, "no node or offer has 9000 CPUs (the largest has "),
        ({"gpus": 1, "memory": "900Ti"}, "no node or offer has 9.216e+05 GiB of memory (the largest has "),
        ({"gpus": 1000, "cloud": "never"}, "no node has 1000 GPUs (the largest has "),
    ],
    ids=["gpus", "gpu-type", "cpus", "memory", "never"],
)
def test_what_can_never_run_is_refused_and_the_resource_is_named(cli, write, asked, lacks):
    text = json.loads(manifest("big", "true", gpus=asked["gpus"]))
    spec = text["spec"]["template"]["spec"]
    spec["containers"][0]["resources"]["limits"] |= {k: asked[k] for k in ("cpu", "memory") if k in asked}
    if "gpu_type" in asked:
        spec["nodeSelector"] = {"nvidia.com/gpu.product": asked["gpu_type"]}
    if "cloud" in asked:
        text["metadata"]["annotations"]["starburst.io/cloud"] = asked["cloud"]
    file = write("big.yaml", json.dumps(text))
    told = cli("submit", file)
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith(f"error: job big: {lacks}")
    assert told.err.endswith("or submit it with --allow-unsatisfiable if such machines will come\n")
    assert names(cli) == []
    assert cli("submit", "--allow-unsatisfiable", file).code == 0
    assert names(cli) == ["big"]


def test_the_nodes_of_a_kubernetes_cluster_may_yet_come(cli, past, write):
    config = parse_config({"cluster": {"kind": "kubernetes"}}, "test")
    past.store.set_fact("config", config.model_dump(mode="json"))
    told = cli("submit", write("big.yaml", manifest("big", "true", gpus=1000)))
    assert told.code == 0
    assert "1000 GPUs (the largest has " in told.err
    assert ": it waits for such a node" in told.err


def test_a_job_that_only_the_cloud_could_hold_and_may_not_leave_is_taken_with_a_warning(cli, write):
    file = write("five.yaml", manifest("five", "true", gpus=8, cloud="never"))
    told = cli("submit", file)
    assert told.code == 0
    assert "note: only the cloud could hold it, and its starburst.io/cloud says never: it waits\n" in told.err
