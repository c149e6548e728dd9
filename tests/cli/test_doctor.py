"""`starburst doctor`: a line for each thing that is needed, with its mend; and `up`, which needs some."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from starburst.app.config import run_as
from starburst.app.doctor import embedded_checks
from starburst.app.errors import UserError
from starburst.app.jobs.submitting import this_user
from starburst.clouds.catalog import EC2_CATALOG
from starburst.kube import api as kube_api
from tests.cli.conftest import Answer, Cli
from tests.cli.past import NOON, Past

EXTRA = "cluster.kind: kubernetes: needs the extra: pip install 'starburst-hybrid[kubernetes]'"


@pytest.fixture
def on_kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config whose cluster is given by KUBECONFIG alone; there is none yet."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setattr(kube_api, "FIRST_PAUSE_S", 0.0)
    file = tmp_path / "kubernetes.yaml"
    file.write_text("cluster: {kind: kubernetes}")
    return file


def kubeconfig(file: Path, server: str) -> None:
    told = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    }
    file.write_text(json.dumps(told))


def last_but_cloud(told: Answer) -> str:
    """The last line about the cluster: the embedded cloud's comes after it."""
    *_, line, cloud = told.out.splitlines()
    assert cloud.startswith("✓ cloud: ")
    return line


def nobody() -> str:
    """An address at which nothing answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


# --- the home and the config ------------------------------------------------------------------------------


@pytest.fixture(params=["", "Operation not permitted"])
def separation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Why this machine cannot keep users apart; "" if it can."""
    for module in (run_as, embedded_checks):
        monkeypatch.setattr(module, "cannot_separate", lambda: request.param)
    return str(request.param)


def test_a_fresh_home_has_nothing_to_mend(cli: Cli, home: Path, separation: str) -> None:
    told = cli("doctor")
    others = f"nobody can be kept apart here: {separation}" if separation else "others are kept apart"
    runs = f"admins' jobs run as {this_user()}, {others} (run_as: auto)"
    assert (told.code, told.err) == (0, "")
    assert told.out.splitlines() == [
        f"✓ home: {home}, no scheduler runs",
        f"✓ store: {home}/starburst.db, 0 jobs",
        "✓ config: the default, cluster.kind: local",
        f"✓ cluster: embedded, 2 nodes, {runs}",
        f"✓ cloud: embedded, {len(EC2_CATALOG)} offers, {runs}",
    ]


def test_the_store_is_the_one_that_the_config_names(cli: Cli, home: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared.yaml"
    shared.write_text(f"store: {{url: 'postgresql://sb@{nobody().removeprefix('http://')}/sb'}}")
    told = cli("doctor", "--config", shared)
    assert (told.code, told.err) == (1, "")
    assert "✗ store: the store: PostgreSQL does not answer" in told.out
    assert f"✓ config: {shared}, cluster.kind: local" in told.out
    assert not (home / "starburst.db").exists(), "`up` would take its file for jobs of this home, and refuse"


def test_a_store_that_up_would_refuse_is_told(cli: Cli, home: Path, tmp_path: Path) -> None:
    cli("token", "create", "eyes", "--role", "viewer")
    shared = tmp_path / "shared.yaml"
    shared.write_text("store: {url: 'postgresql://sb@127.0.0.1/sb'}")
    told = cli("doctor", "--config", shared)
    assert (told.code, told.err) == (1, "")
    assert f"✗ config: {home}/starburst.db: holds this home's jobs" in told.out


def test_a_budget_that_a_factor_replaces_is_a_warning(cli: Cli, tmp_path: Path) -> None:
    both = tmp_path / "both.yaml"
    both.write_text("policy: {factor: 2, budget_percent: 10}")
    warning = (
        f"! config: {both}: policy.budget_percent has no effect beside policy.factor; leave out one of them"
    )
    assert warning in cli("doctor", "--config", both).out
    both.write_text("policy: {factor: 2}")
    assert "budget_percent" not in cli("doctor", "--config", both).out


def test_submitters_tokens_are_a_warning_where_jobs_run_as_the_scheduler(
    cli: Cli, tmp_path: Path, separation: str
) -> None:
    cli("token", "create", "ci", "--role", "submitter")
    cli("token", "create", "eyes", "--role", "viewer")
    alike = tmp_path / "alike.yaml"
    alike.write_text("cluster: {run_as: self}")
    warning = (
        f"! tokens: submitter 'ci': jobs of the embedded cluster and cloud run as {this_user()}, so who "
        "submits can do what an admin can; set cluster.run_as"
    )
    told = cli("doctor", "--config", alike)
    assert told.code == 0, "a laptop's owner may mean it"
    assert told.out.splitlines()[-1] == warning
    assert (warning in cli("doctor").out) == bool(separation)
    apart = tmp_path / "apart.yaml"
    apart.write_text("cluster: {run_as: pool, pool: 61000-61009}")
    assert "tokens:" not in cli("doctor", "--config", apart).out


def test_hints_that_submit_are_a_warning_as_tokens_are(cli: Cli, tmp_path: Path, separation: str) -> None:
    hinted = tmp_path / "hinted.yaml"
    hinted.write_text("bus: {kind: mqtt, accept: [submit]}")
    said = "! tokens: hints of the bus: jobs of the embedded cluster and cloud run as "
    assert (said in cli("doctor", "--config", hinted).out) == bool(separation)


def test_a_sandbox_without_a_token_is_a_warning_for_its_jobs_have_the_owners_account(
    cli: Cli, tmp_path: Path
) -> None:
    apart = tmp_path / "apart.yaml"
    apart.write_text("cluster: {run_as: sandbox}")
    said = "! tokens: there is none, and without one the API takes jobs of a sandbox for who runs it"
    assert said in cli("doctor", "--config", apart).out
    cli("token", "create", "boss", "--role", "admin")
    assert "tokens:" not in cli("doctor", "--config", apart).out


@pytest.mark.parametrize(
    ("run_as", "mend"),
    [
        ("sandbox", "is for another account than root; set run_as: pool or submitter"),
        ("submitter", "only root may; run starburst as root, or set run_as: sandbox"),
        ("pool, pool: 61000-61009", "only root may; run starburst as root, or set run_as: sandbox"),
    ],
)
def test_a_mode_that_this_account_cannot_have_is_refused_at_the_start(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_as: str, mend: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0 if run_as == "sandbox" else 1000)
    file = tmp_path / "apart.yaml"
    file.write_text(f"cluster: {{run_as: {run_as}}}")
    told = cli("up", "--config", file)
    assert told.code == 2
    name = run_as.partition(",")[0]
    assert told.err.splitlines()[0] == f"error: cluster: run_as: {name}: {mend}"


def test_programs_get_the_same_four_keys_of_each_check(cli: Cli) -> None:
    rows = json.loads(cli("doctor", "-o", "json").out)
    assert [list(row) for row in rows] == [["check", "status", "found", "mend"]] * 5
    assert {row["status"] for row in rows} == {"ok"}
    assert (
        cli("doctor", "-o", "name").out
        == "check/home\ncheck/store\ncheck/config\ncheck/cluster\ncheck/cloud\n"
    )


def test_a_home_that_cannot_be_used_is_the_first_thing_to_mend(cli: Cli, home: Path) -> None:
    home.write_text("a file")
    told = cli("doctor")
    assert told.code == 1
    assert told.out.splitlines()[0] == f"✗ home: {home}: is not a directory; set STARBURST_HOME to one"


def test_a_store_that_is_damaged(cli: Cli, home: Path) -> None:
    home.mkdir()
    (home / "starburst.db").write_bytes(b"\x00not a database" * 1000)
    told = cli("doctor")
    assert told.code == 1
    (line,) = [line for line in told.out.splitlines() if line.startswith("✗")]
    assert line.startswith("✗ store: ")
    assert "file is not a database" in line


def test_a_bad_config_is_a_line_for_each_mistake(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("cluster: {kind: kubernetes, namespace: Ml, bind_limit: 3}")
    told = cli("doctor", "--config", file)
    assert told.code == 1
    bad = [line for line in told.out.splitlines() if line.startswith("✗")]
    assert bad == [
        f'✗ config: {file}: cluster.namespace: "Ml": must be lower-case letters, digits and dashes, '
        "the ends no dashes, 63 at most",
        f"✗ config: {file}: cluster.bind_limit: 3: a duration needs a unit; write 3s, 3m, 3h or 3d",
    ]


# --- before the cluster is reached ------------------------------------------------------------------------


def test_without_the_extra_there_is_one_line(
    cli: Cli, on_kubernetes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("starburst.app.wiring.kube_client.find_spec", lambda _: None)
    told = cli("doctor", "--config", on_kubernetes)
    assert (told.code, last_but_cloud(told)) == (1, f"✗ extra: {EXTRA}")
    told = cli("up", "--config", on_kubernetes)
    assert (told.code, told.err) == (2, f"error: extra: {EXTRA}\n")


def test_without_a_kubeconfig_it_says_what_to_set(cli: Cli, on_kubernetes: Path) -> None:
    line = f"kubeconfig: {on_kubernetes.parent}/kubeconfig: there is no such kubeconfig; "
    line += "set KUBECONFIG, or cluster.kubeconfig in the config"
    told = cli("doctor", "--config", on_kubernetes)
    assert (told.code, last_but_cloud(told)) == (1, f"✗ {line}")
    told = cli("up", "--config", on_kubernetes)
    assert (told.code, told.err) == (2, f"error: {line}\n")


def test_up_refuses_a_server_that_does_not_answer_with_the_doctors_line(
    cli: Cli, on_kubernetes: Path, home: Path
) -> None:
    server = nobody()
    kubeconfig(on_kubernetes.parent / "kubeconfig", server)
    told = cli("doctor", "--config", on_kubernetes)
    assert told.code == 1
    line = last_but_cloud(told).removeprefix("✗ ")
    assert line.startswith(f"server: {server} does not answer (")
    assert line.endswith(
        "; check that the server runs, its address in the kubeconfig, and the network between"
    )
    told = cli("up", "--config", on_kubernetes)
    assert (told.code, told.err) == (2, f"error: {line}\n")


def test_up_waits_for_a_server_that_does_not_answer_if_it_has_work_there(
    cli: Cli, on_kubernetes: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig(on_kubernetes.parent / "kubeconfig", nobody())
    with Past.begin(home / "starburst.db", NOON) as past:
        past.submit("a")
        past.start("a")

    def begin(*_anything: object, **_more: object) -> None:
        raise UserError("it begins")

    monkeypatch.setattr("starburst.cli.service.replica.build", begin)
    told = cli("up", "--config", on_kubernetes)
    assert "does not answer" in told.err
    assert told.err.splitlines()[-1] == "error: it begins"
