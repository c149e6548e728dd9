"""The object of a gang's run: as many pods as its attempt has tasks, told where they are."""

from __future__ import annotations

import copy
import dataclasses

import pytest

from starburst.kube import names
from tests.clusters.kubernetes.run_objects import TRAIN, env_of, made, run


def test_completions_in_turn_are_left_to_the_job_controller() -> None:
    spec = {**TRAIN["spec"], "parallelism": 2, "completions": 8}
    job = made(run({**TRAIN, "spec": spec}, tasks=2), indexed=True)
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (2, 8)
    assert "completionMode" not in job["spec"]


def test_a_gang_is_as_many_pods_at_once_and_told_its_nodes_by_rank() -> None:
    job = made(run(tasks=3))
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (3, 3)
    assert "completionMode" not in job["spec"]
    assert job["metadata"]["annotations"][names.NODES] == "n0,n1,n2"
    assert env_of(job)["STARBURST_WORLD_SIZE"] == "3"


def test_where_the_server_has_indexed_jobs_a_gang_is_one_and_its_index_is_the_servers() -> None:
    job = made(run(tasks=3), indexed=True)
    assert job["spec"]["completionMode"] == "Indexed"
    assert "JOB_COMPLETION_INDEX" not in env_of(job)
    assert "completionMode" not in made(run(), indexed=True)["spec"], "a single pod needs none"


def test_pods_of_a_gang_know_how_many_they_are_and_which_each_is() -> None:
    env = env_of(made(run(tasks=3), indexed=True))
    assert [env[name] for name in ("WORLD_SIZE", "NNODES", "SKYPILOT_NUM_NODES")] == ["3"] * 3
    assert env["RANK"] == env["NODE_RANK"] == env["SKYPILOT_NODE_RANK"] == env["STARBURST_RANK"]
    assert "WORLD_SIZE" not in env_of(made(run()))


@pytest.mark.parametrize("indexed", [True, False])
def test_pods_of_a_gang_ask_for_the_address_of_the_first_and_find_it_in_master_addr(indexed: bool) -> None:
    job = made(run(tasks=2), indexed=indexed)
    assert job["spec"]["template"]["metadata"]["annotations"][names.MASTER_ADDR] == ""
    assert names.MASTER_ADDR in str(env_of(job)["MASTER_ADDR"])
    assert env_of(job)["MASTER_PORT"] == "29500"
    alone = made(run(), indexed=indexed)["spec"]["template"]["metadata"]["annotations"]
    assert names.MASTER_ADDR not in alone


def test_pods_in_a_headless_service_of_the_user_know_the_first_of_them() -> None:
    manifest = copy.deepcopy(TRAIN)
    manifest["spec"]["template"]["spec"]["subdomain"] = "peers"
    job = made(run(manifest, tasks=2), indexed=True)
    assert env_of(job)["MASTER_ADDR"] == f"{job['metadata']['name']}-0.peers"
    asked = job["spec"]["template"]["metadata"]["annotations"]
    assert names.MASTER_ADDR not in asked, "it is known before there are pods"
    unnamed = env_of(made(run(manifest, tasks=2)))["MASTER_ADDR"]
    assert names.MASTER_ADDR in str(unnamed), "only an Indexed Job names its pods"


def test_what_the_user_says_of_the_gang_wins() -> None:
    manifest = copy.deepcopy(TRAIN)
    env = manifest["spec"]["template"]["spec"]["containers"][0]["env"]
    env += [{"name": "WORLD_SIZE", "value": "7"}]
    job = made(run(manifest, tasks=2), indexed=True)
    listed = job["spec"]["template"]["spec"]["containers"][0]["env"]
    assert [one["value"] for one in listed if one["name"] == "WORLD_SIZE"] == ["7"]


@pytest.mark.parametrize("left", [1, 2])
def test_an_elastic_gang_is_as_large_as_its_attempt(left: int) -> None:
    manifest = {**TRAIN, "spec": {**TRAIN["spec"], "parallelism": 3, "completions": 3}}
    whole = run(manifest, tasks=3)
    job = made(dataclasses.replace(whole, slots=whole.slots[-left:]), indexed=True)
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (left, left)
    assert job["spec"]["completionMode"] == "Indexed"
    env = env_of(job)
    assert [env[name] for name in ("WORLD_SIZE", "NNODES", "STARBURST_WORLD_SIZE")] == [str(left)] * 3


def test_pods_in_turn_are_no_gang() -> None:
    spec = {**TRAIN["spec"], "parallelism": 2, "completions": 8}
    assert "WORLD_SIZE" not in env_of(made(run({**TRAIN, "spec": spec}, tasks=2), indexed=True))
