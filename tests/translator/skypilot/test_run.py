"""What the `run` of a task does in a real shell: arguments and variables arrive to the letter."""

from __future__ import annotations

import os
import signal
import string
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.translator.manifests import job
from tests.translator.skypilot.goldens import CLUSTER
from tests.translator.skypilot.running import PATH, SHELLS, accepted, run, task_of, words
from translator.field import Field, ManifestReport
from translator.kinds.kind_fidelity import KindReading

PIECES = [
    *("'", '"', "\\", "$", "`", "!", "\n", "\t", " ", "*", "?", "[", "]", "{", "}", "(", ")", "<", ">", "|"),
    *("&", ";", "~", "#", "=", "%", "-", "^", "\r", "\x1b", "\x7f", "é", "日本", "🚀", "\u2028", "a", "0"),
    *("!!", "!$", "\n^a^b", "$(A)", "$$(A)", "$$", "$((", "${HOME}", "$(date)", "`id`", "<<EOF\n", "EOF\n"),
    *("\\\n", "$A", "--"),
]
NASTY = st.lists(st.sampled_from(PIECES), max_size=8).map("".join) | st.text(
    st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=12
)
ODD_NAMES = ["UID", "IFS", "PWD", "OMP_NUM_THREADS", "BASH_X", "dotted.name", "dash-name", "1st", "PS1"]
NAMES = st.text(string.ascii_letters + "_", min_size=1, max_size=6) | st.sampled_from(ODD_NAMES)
#: Set by the shell or the loader, or looked at by them.
UNTESTABLE = {"_", "PATH", "HOME", "LD_PRELOAD"}
ALL_SHELLS = pytest.mark.parametrize("shell", SHELLS)


def kubernetes_expands(text: str, values: dict[str, str]) -> str:
    """Letter by letter, as Kubernetes says it does: another way of writing it than the translator's."""
    out, at = [], 0
    while at < len(text):
        close = text.find(")", at)
        if text[at] != "$" or at + 1 == len(text):
            out.append(text[at])
            at += 1
        elif text[at + 1] == "$":
            out.append("$")
            at += 2
        elif text[at + 1] == "(" and close > 0:
            name = text[at + 2 : close]
            out.append(values.get(name, f"$({name})"))
            at = close + 1
        else:
            out.append(text[at])
            at += 1
    return "".join(out)


@ALL_SHELLS
@settings(max_examples=12)
@given(st.lists(NASTY, max_size=6), NASTY)
@example(["", " ", "-n", "!x\n!y", "x\n^a^b^", "$$(A)", "$(A", "$"], "'$(B)'\n")
def test_every_argument_arrives_as_kubernetes_would_give_it(tmp_path_factory, shell, arguments, value):
    task = task_of(["printf", "%s\\0", *arguments, "end"], env=[{"name": "A", "value": value}])
    known = {"A": kubernetes_expands(value, {})}
    done = run(task, tmp_path_factory.mktemp("run"), shell)
    assert done.returncode == 0, done.stderr
    assert words(done.stdout) == [*(kubernetes_expands(text, known) for text in arguments), "end"]


@ALL_SHELLS
@settings(max_examples=12)
@given(st.lists(st.tuples(NAMES.filter(lambda name: name not in UNTESTABLE), NASTY), max_size=5))
@example([("IFS", "/"), ("A", "x"), ("B", "$(A)$(IFS)"), ("A", "y\n^x^z")])
def test_every_variable_arrives_as_kubernetes_would_set_it(tmp_path_factory, shell, variables):
    task = task_of(["env", "-0"], env=[{"name": name, "value": value} for name, value in variables])
    known: dict[str, str] = {}
    for name, value in variables:
        known[name] = kubernetes_expands(value, known)
    done = run(task, tmp_path_factory.mktemp("run"), shell)
    assert done.returncode == 0, done.stderr
    given = dict(word.split("=", 1) for word in words(done.stdout))
    assert {name: given.get(name) for name in known} == known


@ALL_SHELLS
def test_the_exit_code_is_the_commands_own(tmp_path, shell):
    assert run(task_of(["sh", "-c", "exit 7"]), tmp_path, shell).returncode == 7
    limited = job("spec/activeDeadlineSeconds", 600)
    limited["spec"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", "exit 7"]
    assert run(accepted(limited), tmp_path, shell).returncode == 7


@ALL_SHELLS
def test_a_command_that_is_not_there_fails_as_in_any_shell(tmp_path, shell):
    assert run(task_of(["./not-there"]), tmp_path, shell).returncode == 127


def test_the_command_takes_the_place_of_the_shell_so_that_signals_reach_it(tmp_path):
    script = task_of(["sh", "-c", "echo $$$$; kill -TERM $$$$"])["run"]
    with subprocess.Popen(
        ["sh", "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, env={"PATH": PATH}
    ) as process:
        out, _ = process.communicate(timeout=60)
    assert int(out) == process.pid
    assert process.returncode == -signal.SIGTERM


@ALL_SHELLS
@pytest.mark.parametrize("program", ["-dash", "it's here", "a$b"])
def test_a_program_may_have_an_odd_name(tmp_path, shell, program):
    (tmp_path / program).write_text("#!/bin/sh\necho reached\n")
    (tmp_path / program).chmod(0o755)
    task = task_of([program.replace("$", "$$")], env=[{"name": "PATH", "value": f"{tmp_path}:{PATH}"}])
    assert run(task, tmp_path, shell).stdout == b"reached\n"


@ALL_SHELLS
def test_the_working_directory_is_made_and_entered(tmp_path, shell):
    there = tmp_path / 'it\'s "new"' / "$HOME"
    done = run(task_of(["pwd"], workingDir=str(there)), tmp_path, shell)
    assert done.stdout.decode().rstrip("\n") == str(there)


def test_a_kind_of_an_operator_finds_its_peers_by_what_skypilot_alone_sets(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "configs" / "examples" / "pytorch-job.yaml").read_text()
    reading = KindReading.of(Field(yaml.safe_load(text), "", ManifestReport("ddp.yaml", 0)))
    hosts = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2\n10.0.0.3\n10.0.0.4", "SKYPILOT_NUM_NODES": "4"}
    task = accepted(dict(reading.manifest))
    for rank in range(4):
        done = run(task, tmp_path, **hosts, SKYPILOT_NODE_RANK=str(rank))
        assert done.stdout.decode() == f"rank {rank} of 4 at 10.0.0.1\n", done.stderr


@ALL_SHELLS
def test_each_node_of_a_gang_knows_its_rank_and_its_address(tmp_path, shell):
    manifest = job("spec/parallelism", 3)
    manifest["spec"]["template"]["spec"]["containers"][0] |= {
        "command": ["printf", "%s\\0", "$(JOB_COMPLETION_INDEX)", "$(STARBURST_WORLD_SIZE)", "$(IP):1"],
        "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
    }
    node = {
        "SKYPILOT_NODE_RANK": "1",
        "SKYPILOT_NUM_NODES": "3",
        "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2\n10.0.0.3",
    }
    assert words(run(accepted(manifest), tmp_path, shell, **node).stdout) == ["1", "3", "10.0.0.2:1"]


@ALL_SHELLS
def test_secrets_reach_the_command_through_variables_and_files(tmp_path, shell):
    files = tmp_path / "keys"
    manifest = job("CONTAINER/command", ["printf", "%s\\0", "$(URL)"])
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}},
        {"name": "URL", "value": "db://$(PASSWORD)@host"},
    ]
    container["volumeMounts"] = [{"name": "keys", "mountPath": str(files)}]
    manifest["spec"]["template"]["spec"]["volumes"] = [{"name": "keys", "secret": {"secretName": "db"}}]
    task = accepted(manifest, resolve=CLUSTER.get)
    assert "SECRET2" not in task["run"]
    for _ in range(2):  # also on a machine where it ran before
        done = run(task, tmp_path, shell)
        assert words(done.stdout) == ["db://p'w\"$SECRET2\n@host"]
    assert (files / "password").read_text() == "p'w\"$SECRET2\n"
    assert (files / "password").stat().st_mode & 0o777 == 0o400


@ALL_SHELLS
@settings(max_examples=6)
@given(NASTY.filter(lambda text: "\r" not in text))
def test_files_of_config_maps_are_written_to_the_letter(tmp_path_factory, shell, text):
    directory = tmp_path_factory.mktemp("run")
    manifest = job("CONTAINER/command", ["cat", str(directory / "etc" / "a b.txt")])
    pod: dict[str, Any] = manifest["spec"]["template"]["spec"]
    pod["containers"][0]["volumeMounts"] = [{"name": "etc", "mountPath": str(directory / "etc")}]
    pod["volumes"] = [{"name": "etc", "configMap": {"name": "any"}}]
    task = accepted(manifest, resolve=lambda _: {"a b.txt": text})
    assert os.fsdecode(run(task, directory, shell).stdout) == text


def test_empty_directories_are_there_when_the_command_starts(tmp_path: Path):
    manifest = job("CONTAINER/command", ["touch", str(tmp_path / "scratch/here")])
    pod: dict[str, Any] = manifest["spec"]["template"]["spec"]
    pod["containers"][0]["volumeMounts"] = [{"name": "s", "mountPath": str(tmp_path / "scratch")}]
    pod["volumes"] = [{"name": "s", "emptyDir": {}}]
    assert run(accepted(manifest), tmp_path).returncode == 0
    assert (tmp_path / "scratch/here").exists()
