"""Rules of the source tree that no other tool checks. Each names the offender and the limit."""

from __future__ import annotations

import ast
from collections import defaultdict
from itertools import chain

from tests.house.source import PACKAGES, ROOT, circles, functions, imports, modules, nodes, path_of

FILE_LINES = 400
FUNCTION_LINES = 60
CONSTRUCTOR_PARAMETERS = 8
FOLDER_MODULES = 16
#: Python of the repository that is not in the wheel.
AROUND = ("tests", "bench", "docsite")


def test_no_import_circle() -> None:
    assert circles() == []


def test_no_type_name_is_defined_twice() -> None:
    places = defaultdict(list)
    for module, tree in modules().items():
        for node in nodes(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_files_are_short() -> None:
    paths = chain.from_iterable((ROOT / folder).rglob("*.py") for folder in (*PACKAGES, *AROUND))
    sizes = {str(path.relative_to(ROOT)): path.read_bytes().count(b"\n") for path in paths}
    assert {path: lines for path, lines in sizes.items() if lines > FILE_LINES} == {}


def test_functions_fit_a_screen() -> None:
    sizes = {
        f"{module}.{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for module, tree in modules().items()
        for node in functions(tree)
    }
    assert {name: lines for name, lines in sizes.items() if lines > FUNCTION_LINES} == {}


def test_constructors_take_few_parameters() -> None:
    counts = {}
    for module, tree in modules().items():
        for node in functions(tree):
            if node.name == "__init__":
                of = node.args
                counts[f"{module}:{node.lineno}"] = len(of.posonlyargs + of.args + of.kwonlyargs) - 1
    assert {name: count for name, count in counts.items() if count > CONSTRUCTOR_PARAMETERS} == {}


def test_folders_can_be_overlooked() -> None:
    counts: defaultdict[str, int] = defaultdict(int)
    for module in modules():
        path = path_of(module)
        if path.name != "__init__.py":
            counts[str(path.parent.relative_to(ROOT))] += 1
    assert {folder: count for folder, count in counts.items() if count > FOLDER_MODULES} == {}


def test_only_the_kit_starts_asyncio_tasks_and_waits_with_deadlines() -> None:
    kit = "starburst.aio"
    found = {
        f"{module}:{node.lineno} {node.attr}"
        for module, tree in modules().items()
        if module != kit
        for node in nodes(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("create_task", "ensure_future", "wait_for")
    }
    assert found == set()


def test_the_wheel_imports_nothing_that_is_not_in_it() -> None:
    outside = {"bench", "tests", "deploy", "docs"}
    found = set()
    for module, tree in modules().items():
        for node in nodes(tree):
            named = [node.module] if isinstance(node, ast.ImportFrom) else []
            named += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found |= {f"{module} imports {name}" for name in named if name and name.split(".")[0] in outside}
    assert found == set()
    assert {module.split(".")[0] for targets in imports().values() for module in targets} <= set(PACKAGES)
