"""The product's modules as syntax trees, and what they import of each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("starburst", "chakra_plugin", "translator", "sim")


@cache
def modules() -> dict[str, ast.Module]:
    """Dotted name → syntax tree of each module of the product."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return found


def path_of(module: str) -> Path:
    """The file of a module."""
    base = ROOT.joinpath(*module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions and methods of a module, nested ones included."""
    return (node for node in nodes(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes of a module, as `ast.walk` finds them."""
    return tuple(ast.walk(tree))


@cache
def imports() -> dict[str, frozenset[str]]:
    """Module → the product's modules that it imports, also inside functions and for type checking only."""
    names = modules()
    found: dict[str, frozenset[str]] = {}
    for module, tree in names.items():
        targets = set()
        for node in nodes(tree):
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names if alias.name in names}
            elif isinstance(node, ast.ImportFrom) and node.module in names:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                targets |= (inner & names.keys()) or {node.module}
                if not inner <= names.keys():
                    targets.add(node.module)
        found[module] = frozenset(targets - {module})
    return found


def circles() -> list[list[str]]:
    """Groups of modules that import each other, directly or through others (Tarjan's components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in imports()[module]:
            if target not in index:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            start = stack.index(module)
            if len(stack) - start > 1:
                found.append(sorted(stack[start:]))
            del stack[start:]

    for module in imports():
        if module not in index:
            visit(module)
    return found
