"""Python 3.10 refuses a comprehension that awaits within one that does not; mypy and ruff rarely tell."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain

import pytest

from tests.house.source import modules, nodes

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def in_scope(comprehension: Comprehension) -> Iterator[ast.AST]:
    """What a comprehension evaluates in its own scope; its first iterable belongs to the scope around it."""
    first = comprehension.generators[0].iter
    waiting = [
        child for child in ast.iter_child_nodes(comprehension) if not isinstance(child, ast.comprehension)
    ]
    for generator in comprehension.generators:
        waiting += [part for part in (generator.iter, *generator.ifs) if part is not first]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, COMPREHENSIONS):
            waiting.append(node.generators[0].iter)
        elif not isinstance(node, ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def awaits(comprehension: Comprehension) -> bool:
    """Whether it awaits in its own scope, by a word or by `async for`."""
    by_for = any(generator.is_async for generator in comprehension.generators)
    return by_for or any(isinstance(node, ast.Await) for node in in_scope(comprehension))


def refused(tree: ast.Module) -> list[int]:
    """Lines of comprehensions that Python 3.10 refuses. A generator expression may await anywhere."""
    around = (node for node in nodes(tree) if isinstance(node, COMPREHENSIONS) and not awaits(node))
    inside = chain.from_iterable(in_scope(node) for node in around)
    return [
        node.lineno
        for node in inside
        if isinstance(node, COMPREHENSIONS) and not isinstance(node, ast.GeneratorExp) and awaits(node)
    ]


@pytest.mark.parametrize(
    ("expression", "lines"),
    [
        ("[e for e in x if all([await g(o) for o in e])]", [2]),
        ("[[a async for a in g(e)] for e in x]", [2]),
        ("[{c for a in x for c in await g(a)} for a in x]", [2]),
        ("({a: await g(a) for a in e} for e in x)", [2]),
        ("[e for e in [await g(o) for o in x]]", []),
        ("[[await g(a) for a in e] async for e in x]", []),
        ("[[await g(a) for a in e] for e in x if await h(e)]", []),
        ("[(await g(a) for a in e) for e in x]", []),
        ("[[[b for b in c] for c in await g(a)] for a in x]", []),
    ],
)
def test_what_python_3_10_refuses_is_found(expression: str, lines: list[int]) -> None:
    assert refused(ast.parse(f"async def f(x):\n    return {expression}\n")) == lines


def test_the_wheel_has_no_comprehension_that_its_oldest_python_refuses() -> None:
    found = {module: lines for module, tree in modules().items() if (lines := refused(tree))}
    assert found == {}
