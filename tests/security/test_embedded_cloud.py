"""Behind a cluster that others use, their jobs do not come to run on the scheduler's own machine.

The attacker may create Jobs in one namespace, asks for the cloud, and has nothing else.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from starburst.app.config import Config, load_config, parse_config
from starburst.app.config.home import user_name
from starburst.app.doctor.doctor import CheckStatus, trust_checks
from starburst.app.errors import UserError
from starburst.app.wiring.stored import live_core
from starburst.clouds.catalog import EC2_CATALOG
from starburst.core.model.events import JobSubmitted, NodesChanged
from starburst.store.store import Store
from tests.builders import job, nodes
from tests.security.running import starburst

KUBERNETES = "cluster: {kind: kubernetes}\n"
OFFER = "[{name: p3, gpus: 8, gpu_type: V100, cpus: 32, memory_gib: 64, usd_per_hour: 3}]"


def load(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "starburst.yaml"
    file.write_text(text)
    return load_config(file)


def test_without_a_word_about_clouds_there_is_none(tmp_path: Path):
    config = load(tmp_path, KUBERNETES)
    assert config.cloud.kind == "none"
    assert config.cloud.known_offers() == ()
    assert load(tmp_path, "").cloud.known_offers() == tuple(entry.offer for entry in EC2_CATALOG), "as ever"


def test_a_job_that_asks_for_the_cloud_and_nothing_else_starts_nowhere(tmp_path: Path):
    with Store.open(tmp_path / "starburst.db") as store:
        store.set_fact("config", load(tmp_path, KUBERNETES).model_dump(mode="json"))
        core = live_core(store)
        evil = job("evil", 1, cloud="only")
        acts = core.handle([NodesChanged(nodes(4)), JobSubmitted(evil)], time.time())
        acts += core.handle([], time.time() + 1e6)
    assert acts == []


@pytest.mark.parametrize("cloud", ["{kind: local}", "{}", "{lease: 10m}", f"{{offers: {OFFER}}}"])
def test_the_embedded_cloud_is_refused_by_name_with_the_mends(tmp_path: Path, cloud: str):
    with pytest.raises(UserError) as said:
        load(tmp_path, f"{KUBERNETES}cloud: {cloud}")
    assert str(said.value) == (
        f'{tmp_path}/starburst.yaml: cloud.kind: "local": whoever may create Jobs in the cluster would run '
        "commands on this machine, as the user that runs Starburst; leave cloud out for none, write kind: "
        "skypilot, or set cloud.trust_users: true"
    )


@pytest.mark.parametrize("cloud", ["{kind: none}", "{offers: []}", "{kind: skypilot}"])
def test_what_runs_nothing_here_needs_no_trust(tmp_path: Path, cloud: str):
    config = load(tmp_path, f"{KUBERNETES}cloud: {cloud}")
    assert config.cloud.known_offers() == ()
    assert trust_checks(config) == []


def test_no_cloud_can_be_said_of_the_embedded_cluster_too(tmp_path: Path):
    assert load(tmp_path, "cloud: {kind: none}").cloud.known_offers() == ()
    with pytest.raises(UserError, match=r"cloud\.offers: .*kind: none has no offers; leave them out"):
        load(tmp_path, f"cloud: {{kind: none, offers: {OFFER}}}")
    with pytest.raises(UserError, match=r"""cloud\.kind: "aws": must be 'local', 'skypilot' or 'none'"""):
        load(tmp_path, "cloud: {kind: aws}")


def test_who_trusts_them_is_told_what_that_means(tmp_path: Path):
    config = load(tmp_path, f"{KUBERNETES}cloud: {{trust_users: true}}")
    assert config.cloud.known_offers()
    (check,) = trust_checks(config)
    assert check.status is CheckStatus.WARN
    me = user_name(os.geteuid())
    assert check.found == f"whoever may create Jobs in the cluster runs commands on this machine, as {me}"


def test_a_config_that_an_older_starburst_stored_is_read_and_doctor_says_what_is_wrong_with_it(
    tmp_path: Path,
):
    told = Config().model_dump(mode="json")
    old = {
        "cluster": {"kind": "kubernetes"},
        "cloud": {key: value for key, value in told["cloud"].items() if key != "trust_users"},
    }
    config = parse_config(json.loads(json.dumps(old)), "stored config")
    (check,) = trust_checks(config)
    assert check.status is CheckStatus.FAIL
    assert "cloud.trust_users: true" in check.mend


def test_the_commands_say_so(tmp_path: Path):
    file = tmp_path / "starburst.yaml"
    file.write_text(KUBERNETES)
    home = tmp_path / "home"
    assert (
        ": ok: a Kubernetes cluster (starburst doctor looks at it), no cloud, "
        in starburst(home, "config", "check", str(file)).stdout
    )
    file.write_text(f"{KUBERNETES}cloud: {{kind: local}}")
    refused = starburst(home, "up", "-c", str(file))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "cloud.trust_users: true" in refused.stderr
    file.write_text(f"{KUBERNETES}cloud: {{trust_users: true}}")
    doctor = starburst(home, "doctor", "-c", str(file)).stdout.splitlines()
    assert doctor[-1].startswith(
        "! trust: whoever may create Jobs in the cluster runs commands on this machine"
    )
