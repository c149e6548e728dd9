"""A field is told as "kept" only where the task has it: each such line of the cases is held against its task.

What the commands do with it (arguments, variables, files, directories, ends) is executed in `test_run`.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import translator
from tests.translator.reasons import words
from tests.translator.skypilot import goldens
from translator.fidelity import FidelityLevel, UntranslatedFields

TRANSLATOR = Path(translator.__file__).parent
Task = dict[str, Any]
Check = Callable[[Any, Task, str], bool]


def machine(task: Task) -> dict[str, Any]:
    found: dict[str, Any] = task["resources"]
    return found


def accelerators(_: Any, task: Task, told: str) -> bool:
    return set(told.removeprefix("any of ").split(", ")) == set(machine(task)["accelerators"])


def sizes(_: Any, task: Task, told: str) -> bool:
    """Each size that the line shows is the task's, such as "cpus: 4+, memory: 16+, accelerators: L4:1"."""
    found = machine(task)
    kinds = found.get("accelerators", "")
    shown = ", ".join(f"{k}:{n}" for k, n in kinds.items()) if isinstance(kinds, dict) else kinds
    parts = [f"{key}: {found[key]}" for key in ("cpus", "memory", "instance_type") if key in found]
    return told == ", ".join([*parts, *([f"accelerators: {shown}"] if shown else [])])


def first_word(value: Any, task: Task, _: str) -> bool:
    """The first word of a command stands in the script; expansion and quoting are executed in `test_run`."""
    return "$(" in str(value) or str(value[0]).partition("\n")[0][:20] in task["run"]


def in_place_of(value: Any, task: Task, names: str) -> bool:
    return all(name in task.get("envs", {}) or name in task.get("secrets", {}) for name in names.split(", "))


def in_script(_: Any, task: Task, name: str) -> bool:
    return name in task["run"]


def always(_: Any, __: Task, ___: str) -> bool:
    """True of every rented machine, and nothing in a task says it."""
    return True


#: Text of a line → how the task shows it; the group of the pattern is passed on.
SHOWN: dict[str, Check] = {
    r"as name": lambda value, task, _: task["name"] == value,
    r"as run, word by word": first_word,
    r"as cd in run; made if it is missing": lambda value, task, _: (
        "cd " in task["run"] and value.partition("'")[0] in task["run"]
    ),
    r"as image_id; .*": lambda value, task, _: machine(task)["image_id"] == f"docker:{value}",
    r"as ((?:cpus|memory|accelerators|instance_type): .*[0-9+].*)": lambda v, t, told: (
        sizes(v, t, told) or accelerators(v, t, told.partition(": ")[2])
    ),
    r"as accelerators: (any of .*|[^:]*)": accelerators,
    r"as instance_type": lambda value, task, _: machine(task)["instance_type"] == value,
    r"as use_spot": lambda value, task, _: machine(task)["use_spot"] is (str(value).lower() != "false"),
    r"as infra": lambda value, task, _: machine(task)["infra"] == value,
    r"as any_of": lambda value, task, _: ",".join(each["infra"] for each in machine(task)["any_of"]) == value,
    r"as infra: (.*)": lambda _, task, told: machine(task)["infra"].startswith(told),
    r"a task without use_spot is on demand": lambda _, task, __: "use_spot" not in machine(task),
    r"a rented machine has as many GPUs as the job asks for": lambda value, task, _: str(
        machine(task)["accelerators"]
    ).endswith(f":{value}"),
    r"no task is told its number by it": lambda _, task, __: "SKYPILOT_NODE_RANK" not in task["run"],
    r"a rented machine is none of the cluster's nodes": always,
    r"rented machines run Linux": lambda value, _, __: value == {"name": "linux"},
    r"as (max_hourly_cost|autostop|disk_size)": lambda _, task, name: bool(machine(task)[name]),
    r"as labels: (.*)": lambda value, task, name: machine(task)["labels"][name] == str(value or ""),
    r"as (?:envs|secrets): (.*) and its like": in_place_of,
    r"as (?:envs|secrets): (.*)": in_place_of,
    r"(\S+), (?:exported in run|given to the command by env, not by the shell)": in_script,
    r"a command runs once": lambda _, task, __: "while" not in task["run"],
    r"failed commands are not run again": lambda _, task, __: "job_recovery" not in machine(task),
    r"as one node": lambda _, task, __: "num_nodes" not in task,
    r"(?:JOB_COMPLETION_INDEX is )?the rank of the node": lambda _, task, __: (
        "SKYPILOT_NODE_RANK" in task["run"]
    ),
    r"known from the manifest": lambda _, task, __: bool(task.get("envs") or "export" in task["run"]),
    r"\S+(?: \S+)? (?:is optional and not there|has no \S+, and need not)": always,
    r"is counted among the container's": lambda _, task, __: {"cpus", "memory"} & set(machine(task)) != set(),
    r"is read by Starburst": always,
    r"what SkyPilot's images are": lambda value, _, __: value in ("amd64", "linux"),
    r"what SkyPilot grants": always,
    r"rented machines have no taints": always,
    r"machines with GPUs have NVIDIA's runtime": always,
    r"Starburst and SkyPilot choose the machines, all nodes of a task together": always,
}


#: Texts of the code that are nothing but filled in: one that they become.
FILLED_IN = {"as …": "as autostop", "as …: …": "as envs: NAME"}


def value_at(manifest: Any, path: str) -> Any:
    """The value at the path of a report's line."""
    for quoted, plain, index in re.findall(r'\["((?:[^"\\]|\\.)*)"\]|([A-Za-z_]\w*)|\[(\d+)\]', path):
        manifest = manifest[int(index)] if index else manifest[quoted or plain]
    return manifest


@pytest.mark.parametrize("name", goldens.names())
def test_what_is_kept_is_in_the_task(name: str) -> None:
    for manifest, found in zip(goldens.manifests(name), goldens.translations(name), strict=True):
        if "run" not in found.task:  # refused: nothing runs there
            continue
        for line in found.report:
            if line.verdict is not FidelityLevel.KEPT:
                continue
            shown = [
                (check, match) for text, check in SHOWN.items() if (match := re.fullmatch(text, line.text))
            ]
            assert shown, f"no test shows that this is kept: {line.field}: {line.text}"
            check, match = shown[0]
            value = value_at(manifest, line.field)
            assert check(value, found.task, match[1] if match.groups() else ""), line


def test_every_row_is_of_a_line_that_is_told() -> None:
    told = {
        line.text for name in goldens.names() for each in goldens.translations(name) for line in each.report
    }
    unused = [text for text in SHOWN if not any(re.fullmatch(text, line) for line in told)]
    assert unused == []


def test_every_text_of_the_code_that_says_kept_has_a_row() -> None:
    """Also of lines that no case happens to have: … stands for what is filled in."""
    told = [text for path in sorted(TRANSLATOR.rglob("*.py")) for text in _kept_by(path)]
    assert len(told) > 30
    assert [text for text in told if not any(re.fullmatch(row, text) for row in SHOWN)] == []


def _kept_by(path: Path) -> Iterator[str]:
    """The texts of a module's calls of `kept`, and of its tables of kept fields."""
    module = importlib.import_module(".".join(path.relative_to(TRANSLATOR.parent).with_suffix("").parts))
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".kept") and len(node.args) == 2:
            text = words(node.args[1], module)
            if text != "…":  # a variable, whose lines the cases have
                yield FILLED_IN.get(text, text)
    for table in vars(module).values():
        if isinstance(table, UntranslatedFields):
            yield from table.kept.values()
