"""`starburst token`: made once, listed without the secret, gone when revoked."""

from __future__ import annotations

import json
import time

import pytest

from starburst.app.config import run_as
from starburst.app.config.home import Home
from starburst.store import tokens
from starburst.store.store import Store
from tests.cli.answers import one_line


def test_a_token_is_shown_once_and_kept_as_a_hash(cli, home):
    told = cli("token", "create", "ci", "--role", "submitter", "--queue", "papers", "--expires", "30d")
    secret = told.out.strip()
    assert told.code == 0
    assert secret.startswith("starburst_")
    assert len(secret) == len("starburst_") + 43
    assert secret.encode() not in Home(home).database.read_bytes()
    with Store.open(Home(home).database) as store:
        found = tokens.find(store, secret)
    assert (found.name, found.role.value, found.queues) == ("ci", "submitter", ("papers",))
    assert abs(found.expires_at - time.time() - 30 * 86_400) < 60
    assert secret not in (listed := cli("token", "list").out)
    assert listed.splitlines()[1].split()[:3] == ["ci", "submitter", "papers"]


def test_programs_get_the_same_as_keys(cli):
    made = json.loads(cli("token", "create", "a", "-o", "json").out)
    assert (made.pop("token")[:10], made["role"], made["queues"]) == ("starburst_", "viewer", None)
    assert json.loads(cli("token", "list", "-o", "json").out) == [made]


def test_a_revoked_token_is_gone_and_its_name_free(cli):
    first = cli("token", "create", "a").out
    assert cli("token", "revoke", "a").out == "token/a revoked\n"
    assert cli("token", "list").err == "no tokens: the HTTP API answers this machine only\n"
    assert cli("token", "create", "a").out != first


@pytest.mark.parametrize(("days", "shown"), [(2_900_000, " 99"), (3_000_000, "the end of time")])
def test_an_end_beyond_the_calendar_is_shown(cli, days, shown):
    assert cli("token", "create", "a", "--expires", f"{days}d").code == 0
    assert shown in cli("token", "list").out
    (row,) = json.loads(cli("token", "list", "-o", "json").out)
    assert (row["expires_at"] is None) == (shown == "the end of time")


def test_mistakes_are_one_line(cli):
    cli("token", "create", "a")
    said = one_line(cli("token", "create", "a"))
    assert said == "there is a token 'a' already; revoke it or choose another name"
    assert one_line(cli("token", "revoke", "b")) == "there is no token 'b'; see: starburst token list"
    assert one_line(cli("token", "create", "a b")).startswith("NAME: 'a b': must be letters")
    assert one_line(cli("token", "create", "b", "--expires", "30")).startswith("--expires: '30': ")
    assert one_line(cli("token", "create", "b", "--expires", "0s")).startswith("--expires: '0s': must be")
    assert "'viewer', 'submitter', 'admin'" in cli("token", "create", "b", "--role", "king").err


def test_a_submitters_token_where_nobody_can_be_kept_apart_is_an_admins_and_it_says_so(cli, monkeypatch):
    monkeypatch.setattr(run_as, "cannot_separate", lambda: "")
    assert "warning" not in cli("token", "create", "apart", "--role", "submitter").err
    monkeypatch.setattr(run_as, "cannot_separate", lambda: "Operation not permitted")
    said = cli("token", "create", "ci", "--role", "submitter").err
    assert said.startswith("warning: jobs of the embedded cluster and cloud run as ")
    assert "who submits can do what an admin can" in said
    assert "warning" not in cli("token", "create", "eyes", "--role", "viewer").err
    assert "warning" not in cli("token", "create", "boss", "--role", "admin").err


def test_what_its_jobs_may_in_a_cluster_is_kept_and_listed(cli):
    options = (
        "--namespace",
        "papers",
        "--secret",
        "wandb",
        "--kubernetes-user",
        "ada",
        "--kubernetes-group",
        "lab",
    )
    made = json.loads(cli("token", "create", "a", *options, "-o", "json").out)
    keys = ("namespaces", "secrets", "kubernetes_user", "kubernetes_groups")
    assert [made[key] for key in keys] == [["papers"], ["wandb"], "ada", ["lab"]]
    assert "as ada, namespace papers, secret wandb" in cli("token", "list").out


def test_nobody_is_impersonated_who_belongs_to_the_system(cli):
    for options in (
        ("--kubernetes-user", "system:admin"),
        ("--kubernetes-user", "ada", "--kubernetes-group", "system:masters"),
        ("--kubernetes-user", "a\r\nImpersonate-Group: system:masters"),
    ):
        assert "must be a person's or a team's" in one_line(cli("token", "create", "b", *options))
    assert one_line(cli("token", "create", "b", "--kubernetes-group", "a")).startswith("--kubernetes-group: ")
    assert one_line(cli("token", "create", "b", "--namespace", "Kube_System")).startswith("--namespace: ")
