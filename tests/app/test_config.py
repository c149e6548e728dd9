"""starburst.yaml: what it means, and that every mistake in it is one line with its mend."""

from __future__ import annotations

import json
import platform

import pytest

from starburst.app.config import Config, load_config, parse_config
from starburst.app.config.sites import KubernetesConfig
from starburst.app.errors import UserError
from starburst.clouds.catalog import EC2_CATALOG
from starburst.core.model.settings import Settings
from starburst.domain.money import Money
from starburst.domain.resources import Resources
from starburst.policy.ordering import ORDERS
from starburst.policy.placement import PLACEMENTS
from starburst.policy.returns import RETURNS
from starburst.policy.waiting import WAITING


@pytest.fixture
def load(tmp_path):
    def load(text):
        file = tmp_path / "starburst.yaml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_config(file)

    return load


@pytest.fixture
def problems(load, tmp_path):
    """What is said about a bad file, without its name."""

    def problems(text):
        with pytest.raises(UserError) as error:
            load(text)
        name = f"{tmp_path / 'starburst.yaml'}"
        lines = str(error.value).splitlines()
        assert all(line.startswith(name) for line in lines)
        return [line.removeprefix(name).removeprefix(": ") for line in lines]

    return problems


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}", "policy: {}\ncluster: {}"])
def test_a_file_that_says_nothing_is_the_default(load, text):
    assert load(text) == Config() == load_config(None)


def test_the_default_is_the_cores_own(load):
    assert load("").policy.settings() == Settings()
    assert load("").cloud.catalog() == EC2_CATALOG


def test_durations_have_units_and_hourly_factors_are_turned_into_seconds(load):
    policy = load("policy: {waiting: constant, factor: 0.5, t_max: 1h30m, short_jobs: 90s, prior_runtime: 0}")
    settings = policy.policy.settings()
    assert (settings.factor, settings.t_max_s, settings.short_job_s, settings.prior_runtime_s) == (
        1800,
        5400,
        90,
        0,
    )
    assert load("policy: {waiting: compute, factor: 0.5}").policy.settings().factor == 0.5
    assert load("policy: {budget_mode: calibrated}").policy.settings().budget_mode == "calibrated"
    assert load("policy: {hopeless: leave}").policy.settings().hopeless == "leave"


def test_nodes_alike_are_numbered(load):
    config = load(
        "cluster: {nodes: [{name: a, count: 2, gpus: 4, gpu_type: V100, labels: {x: y}}, {name: b}]}"
    )
    nodes = config.cluster.known_nodes()
    assert [node.name for node in nodes] == ["a-0", "a-1", "b"]
    assert nodes[0].capacity == Resources.of(4, 8, 32, "V100")
    labels = dict(nodes[0].labels)
    assert labels.pop("kubernetes.io/arch") in ("amd64", "arm64", platform.machine())
    assert labels == {
        "kubernetes.io/hostname": "a-0",
        "kubernetes.io/os": "linux",
        "nvidia.com/gpu.count": "4",
        "nvidia.com/gpu.memory": "16384",
        "nvidia.com/gpu.product": "V100",
        "x": "y",
    }


def test_a_type_of_gpu_has_one_name_however_it_is_written(load):
    (node,) = load(
        "cluster: {nodes: [{name: a, gpus: 1, gpu_type: NVIDIA-A100-SXM4-80GB}]}"
    ).cluster.known_nodes()
    assert node.capacity.gpu_type == "A100-80GB"


def test_a_kubernetes_cluster_works_with_its_kind_alone(load):
    cluster = load("cluster: {kind: kubernetes}").cluster
    assert cluster == KubernetesConfig(
        kubeconfig=None,
        context=None,
        namespace="default",
        checkpoints=None,
        checkpoints_here=None,
        bind_limit="60s",
    )
    assert cluster.known_nodes() == ()


def test_a_kubeconfig_means_the_same_from_any_directory(load, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    for written, meant in {"kc": f"{tmp_path}/kc", "~/kc": "/home/ada/kc", "/kc": "/kc"}.items():
        assert load(f"cluster: {{kind: kubernetes, kubeconfig: {written}}}").cluster.kubeconfig == meant


def test_a_checkpoint_volume_is_kept_as_it_is_written(load):
    volume = {"hostPath": {"path": "/data/ckpt", "type": "Directory"}}
    text = f"cluster: {{kind: kubernetes, checkpoints: {json.dumps(volume)}}}"
    assert load(text).cluster.checkpoints == volume


def test_offers_are_as_they_are_written(load):
    text = (
        "cloud: {offers: [{name: x, cpus: 8, memory_gib: 61, usd_per_hour: 3.06, spot: true, capacity: 1}]}"
    )
    (entry,) = load(text).cloud.catalog()
    assert (entry.offer.name, entry.offer.price_per_hour, entry.offer.spot) == ("x", Money.of("3.06"), True)
    assert (entry.boot_s, entry.setup_s, entry.capacity) == (30, 60, 1)


def test_an_unknown_price_is_null_and_no_cloud_is_an_empty_list(load):
    text = "cloud: {offers: [{name: x, cpus: 8, memory_gib: 61, usd_per_hour: null}]}"
    assert load(text).cloud.catalog()[0].offer.price_per_hour is None
    assert load("cloud: {offers: []}").cloud.catalog() == ()


@pytest.mark.parametrize("section", sorted(Config.model_fields))
def test_a_field_that_no_section_has_is_named_with_those_that_there_are(problems, section):
    several = isinstance(getattr(Config(), section), list)
    (said,) = problems(f"{section}: {'[{zzz: 1}]' if several else '{zzz: 1}'}")[-1:]
    place = f"{section}[0]" if several else section
    assert said.startswith(f"{place}.zzz: there is no such field; the fields here are ")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("home: {keep: 30}", "home.keep: 30: a duration needs a unit; write 30s, 30m, 30h or 30d"),
        ("polcy: {}", "polcy: there is no such field; did you mean policy?"),
        ("policy: {t_mx: 1m}", "policy.t_mx: there is no such field; did you mean t_max?"),
        ("clock: {zzz: 1}", "clock.zzz: there is no such field; the fields here are speed"),
        (
            "cluster: {nodes: [{name: a, gpu: 1}]}",
            "cluster.nodes[0].gpu: there is no such field; did you mean gpus?",
        ),
        ("policy: 3", "policy: 3: must be a mapping of fields to values"),
        ("- policy", "must be a mapping of fields to values"),
        ("cluster: {nodes: {}}", "cluster.nodes: must be a list; begin each element with a dash"),
        ("cluster: {nodes: []}", "cluster.nodes: must not be empty"),
        ("cluster: {nodes: [{gpus: 1}]}", "cluster.nodes[0].name: is missing; add it"),
        ("cluster: {nodes: [{name: a, gpus: -1}]}", "cluster.nodes[0].gpus: -1: must be at least 0"),
        (
            "cluster: {nodes: [{name: a, gpus: '1'}]}",
            'cluster.nodes[0].gpus: "1": must be a whole number, without quotes',
        ),
        (
            "cluster: {nodes: [{name: a, gpus: true}]}",
            "cluster.nodes[0].gpus: true: must be a whole number, without quotes",
        ),
        ("cluster: {nodes: [{name: a, gpus: 1e9}]}", "must be a whole number, without quotes"),
        (
            "cluster: {nodes: [{name: a, memory_gib: 1e99}]}",
            "cluster.nodes[0].memory_gib: 1e+99: must be at most 1000000",
        ),
        (
            "cluster: {nodes: [{name: a, labels: {x: 1}}]}",
            "cluster.nodes[0].labels.x: 1: must be text; put it in quotes",
        ),
        (
            "cluster: {nodes: [{name: a b}]}",
            'cluster.nodes[0].name: "a b": must be letters, digits, dashes, dots and underscores, '
            "with a letter or digit at each end",
        ),
        ("cluster: {nodes: [{name: " + "a" * 64 + "}]}", "must be at most 63 characters"),
        (
            "cluster: {nodes: [{name: a, count: 2}, {name: a-1}]}",
            "cluster.nodes: the name 'a-1' stands for two of them; give each its own",
        ),
        ("cluster: {kind: k8s}", "cluster.kind: \"k8s\": must be 'local' or 'kubernetes'"),
        ("cluster: {kind: [local]}", "cluster.kind: must be 'local' or 'kubernetes'"),
        ("cluster: 3", "cluster: 3: must be a mapping of fields to values"),
        (
            "cluster: {kind: kubernetes, namespce: a}",
            "cluster.namespce: there is no such field; did you mean namespace?",
        ),
        (
            "cluster: {kind: kubernetes, nodes: []}",
            "cluster.nodes: there is no such field; the fields here are kind, kubeconfig, context, "
            "namespace, namespaces, pod_security, checkpoints, checkpoints_here, bind_limit, start_limit",
        ),
        (
            "cluster: {kind: kubernetes, namespace: My_Jobs}",
            'cluster.namespace: "My_Jobs": must be lower-case letters, digits and dashes, the ends no dashes',
        ),
        (
            "cluster: {kind: kubernetes, kubeconfig: 3}",
            "cluster.kubeconfig: 3: must be text; put it in quotes",
        ),
        (
            "cluster: {kind: kubernetes, kubeconfig: ~nosuchuser/config}",
            'cluster.kubeconfig: "~nosuchuser/config": no home directory is known for this user',
        ),
        (
            "cluster: {kind: kubernetes, bind_limit: 60}",
            "cluster.bind_limit: 60: a duration needs a unit; write 60s",
        ),
        (
            "cluster: {kind: kubernetes, bind_limit: 0s}",
            'cluster.bind_limit: "0s": must be at least 1s and at most 3650d',
        ),
        (
            "cluster: {kind: kubernetes, checkpoints: /data}",
            'cluster.checkpoints: "/data": must be a mapping of keys to values',
        ),
        (
            "cluster: {kind: kubernetes, checkpoints_here: /mnt/checkpoints}",
            'cluster.checkpoints_here: "/mnt/checkpoints": needs checkpoints: the volume that is seen there',
        ),
        (
            "cluster: {kind: kubernetes, checkpoints: {emptyDir: {}}}",
            "must be one of hostPath, persistentVolumeClaim, nfs, such as {hostPath: {path: /data/ckpt}}",
        ),
        (
            "cluster: {kind: kubernetes, checkpoints: {hostPath: {path: /a}, nfs: {server: b, path: /c}}}",
            "must be one of hostPath, persistentVolumeClaim, nfs",
        ),
        (
            "cluster: {kind: kubernetes, checkpoints: {nfs: {server: b}}}",
            "nfs needs path, which is text",
        ),
        (
            "cluster: {kind: kubernetes, checkpoints: {persistentVolumeClaim: ckpt}}",
            "persistentVolumeClaim needs claimName, which is text",
        ),
        ("policy: {waiting: compte}", 'policy.waiting: "compte": did you mean compute?'),
        ("policy: {order: zzz}", f'policy.order: "zzz": choose one of {", ".join(ORDERS)}'),
        (
            "policy: {backfill: true}",
            "policy.backfill: true: needs out_of_order: false; out of order is backfill without reservations",
        ),
        (
            "policy: {budget_mode: calibrated, prior_runtime: 0}",
            "policy.prior_runtime: 0: must be more than 0 if budget_mode is calibrated",
        ),
        (
            "policy: {backfill: 'yes'}",
            'policy.backfill: "yes": must be true or false, without quotes',
        ),
        ("policy: {budget_percent: 0}", "policy.budget_percent: 0: must be more than 0"),
        (
            "policy: {budget_percent: .nan}",
            'policy.budget_percent: ".nan": must be a finite number',
        ),
        (
            "policy: {budget_percent: .inf}",
            'policy.budget_percent: ".inf": must be a finite number',
        ),
        ("policy: {factor: -0.1}", "policy.factor: -0.1: must be at least 0"),
        ("policy: {t_max: 15}", "policy.t_max: 15: a duration needs a unit; write 15s, 15m, 15h or 15d"),
        ("policy: {t_max: -5m}", 'policy.t_max: "-5m": a duration cannot be negative'),
        ("policy: {t_max: [1]}", "policy.t_max: not a duration"),
        ("policy: {t_max: 9999d}", 'policy.t_max: "9999d": must be at least 0s and at most 3650d'),
        ("cloud: {lease: 59s}", 'cloud.lease: "59s": must be at least 60s and at most 3650d'),
        (
            "cloud: {offers: [{name: x, cpus: 1, memory_gib: 1}]}",
            "cloud.offers[0].usd_per_hour: is missing; add it",
        ),
        (
            "cloud: {kind: skypilot, volumes: {claim/a: s3://b}}",
            'cloud.volumes: ["claim/a"]: no volume is named like this; write pvc/NAME, pvc/NAMESPACE',
        ),
        (
            "cloud: {kind: skypilot, volumes: {pvc/a: {source: s3://b, mode: X}}}",
            'cloud.volumes: ["pvc/a"].mode: "X": must be MOUNT or MOUNT_CACHED or COPY',
        ),
        (
            "cloud: {kind: skypilot, bucket: runs}",
            'cloud.bucket: "runs": must be the URL of a bucket, such as s3://data/runs or gs://data',
        ),
        ("cloud: {kind: skypilot, volumes: [pvc/a]}", "cloud.volumes: must be a mapping of keys to values"),
        ("cloud: {volumes: {pvc/a: s3://b}}", "cloud.volumes: there is no such field"),
        ("clock: {speed: 0}", "clock.speed: 0: must be at least 0.001"),
        ("http: {memory: 268435400}", "http.memory: 268435400: must be at least 268435456"),
        ("smtp: {host: ''}", 'smtp.host: "": must be at least 1 long, or be left out'),
        ("smtp: {sender: x}", 'smtp.sender: "x": must be at least 3 long, or be left out'),
        ("clock: {speed: 1000000}", "clock.speed: 1000000: must be at most 10000"),
        ("policy: [", ", document 1: line 2, column 1"),
        (
            "clock: {}\nclock: {}",
            ', document 1: line 2, column 1: "clock": this key was already given 1 line',
        ),
        ("clock: {}\n---\nclock: {}", ", document 2: a config is one document; remove the --- between them"),
        (b"\xff\xfe", "is not a text file; write YAML in UTF-8"),
        ("clock: {speed: !!python/object:os.system 1}", "tags are not used"),
        ("[" * 5000, "is nested more than 100 levels deep; flatten it"),
    ],
)
def test_a_mistake_is_one_line_with_its_place_and_mend(problems, text, problem):
    (line,) = problems(text)
    assert problem in line


def test_every_mistake_is_told_at_once(problems):
    text = "policy: {waiting: x, t_max: 1}\nclock: {speed: -1}\ncluster: {nodes: [{name: a, gpus: x}, {}]}"
    fields = [line.split(":")[0] for line in problems(text)]
    assert fields == [
        "policy.waiting",
        "policy.t_max",
        "cluster.nodes[0].gpus",
        "cluster.nodes[1].name",
        "clock.speed",
    ]


def test_a_file_that_is_not_there_or_no_file(tmp_path):
    with pytest.raises(UserError, match=r"none.yaml: cannot be read \(No such file or directory\)"):
        load_config(tmp_path / "none.yaml")
    with pytest.raises(UserError, match=r"cannot be read \(Is a directory\); name an existing file"):
        load_config(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "policy: {waiting: star, factor: 2, t_max: 90s, short_jobs: 1h30m}\ncloud: {lease: 2m, offers: []}",
        "cloud: {offers: [{name: x, cpus: 0.5, memory_gib: 1, usd_per_hour: 0.1, boot: 1.5s}]}",
        "cloud: {reap_after: 1h, reap_others: true}\nhome: {keep: 7d}",
        "home: {keep: 0}",
        "cloud: {kind: skypilot, volumes: {pvc/a: s3://b, 'nfs:f:/x': {volume: v}}}",
        "cluster: {kind: kubernetes}",
        "cluster: {kind: kubernetes, kubeconfig: kc, context: lab, namespace: ml, bind_limit: 90s, "
        "checkpoints: {persistentVolumeClaim: {claimName: ckpt, readOnly: false}}}",
        "debug: {validate: true}",
    ],
)
def test_a_stored_config_is_read_back_as_it_was(load, text):
    config = load(text)
    assert parse_config(json.loads(json.dumps(config.model_dump(mode="json"))), "stored config") == config


def test_the_state_is_checked_only_if_the_file_says_so(load):
    assert not Config().debug.validates
    assert load("debug: {validate: true}").debug.validates
    with pytest.raises(UserError, match=r"debug.validates: there is no such field; did you mean validate\?"):
        load("debug: {validates: true}")


def schema_nodes(schema):
    """Every field of every section."""
    for name, section in {"Config": schema, **schema["$defs"]}.items():
        for field, node in section["properties"].items():
            yield f"{name}.{field}", node


def test_the_schema_describes_every_field():
    fields = dict(schema_nodes(Config.model_json_schema(mode="serialization")))
    assert len(fields) > 40
    assert [name for name, node in fields.items() if not node.get("description")] == []


def test_the_schema_lists_the_policies_by_name():
    fields = dict(schema_nodes(Config.model_json_schema(mode="serialization")))
    for field, known in {
        "waiting": WAITING,
        "order": ORDERS,
        "placement": PLACEMENTS,
        "returns": RETURNS,
    }.items():
        assert fields[f"PolicyConfig.{field}"]["enum"] == list(known)


SECTIONS = {
    "policy": "PolicyConfig",
    "cloud": "CloudConfig",
    "home": "HomeConfig",
    "clock": "ClockConfig",
    "debug": "DebugConfig",
}


def test_the_defaults_of_the_schema_may_stand_in_a_file():
    schema = Config.model_json_schema(mode="serialization")
    for name, section in SECTIONS.items():
        defaults = {field: node["default"] for field, node in schema["$defs"][section]["properties"].items()}
        assert parse_config({name: defaults}, "schema") == Config()
    assert schema["properties"]["cloud"]["default"]["lease"] == "900s"
