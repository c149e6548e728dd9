"""The reasons for which a manifest is refused, or keeps its job on the cluster, read from the code itself.

docs/manifests.md lists them all. To write that list anew: python -m tests.translator.reasons
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from translator.field import Fields

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "manifests.md"
BEGIN, END = "<!-- reasons: written by tests/translator/reasons.py -->", "<!-- end of reasons -->"
#: Calls that record a reason, and which of their arguments have its words.
_CALLS = {"refuse": (0,), "refuse_away": (0, 1), "stay": (1,)}
#: Files about the config or about `translate` alone, whose reasons its own page has.
_NOT_OF_MANIFESTS = ("cloud_volumes.py", "skypilot.py", "references.py", "volumes.py")
_AWAY = "does not go along to a cloud"


def reasons() -> dict[str, list[str]]:
    """Every reason by the topic of the module that has it, which is the first line of its docstring."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "translator").rglob("*.py")):
        tree = ast.parse(path.read_text())
        fields: dict[str, set[str]] = {}
        for key, why in _of_calls(tree, _module(path)):
            fields.setdefault(why, set()).add(key)
        if fields and path.name not in _NOT_OF_MANIFESTS:
            found[_topic(tree)] = sorted(map(_line, fields.items()), key=str.lower)
    return dict(sorted(found.items()))


def _line(of: tuple[str, set[str]]) -> str:
    """A reason behind the fields that it is about."""
    why, fields = of
    named = ", ".join(f"`{key}`" for key in sorted(fields) if key)
    return f"{named}: {why}" if named else why


def _module(path: Path) -> ModuleType:
    return importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def _topic(tree: ast.Module) -> str:
    return (ast.get_docstring(tree) or "").partition("\n")[0].rstrip(".")


def _of_calls(tree: ast.Module, module: ModuleType) -> Iterator[tuple[str, str]]:
    """Field, "" if it is not said, and reason of calls and of the tables of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CALLS:
            for at in _CALLS[node.func.attr]:
                told = words(node.args[at], module) if len(node.args) > at else _AWAY
                if re.search("[a-z]{2}", told):
                    yield _key(node.func.value), told
    for name, table in vars(module).items():
        if isinstance(table, Fields) and f"{name} = " in ast.unparse(tree):
            for key, why in table.refused.items():
                yield key, f"{why} (on the embedded cluster and in a cloud)" if key in table.kept else why


def _key(receiver: ast.expr) -> str:
    """The field's name, where the call itself says it, as in `spec.at("suspend").refuse(...)`."""
    if isinstance(receiver, ast.Call) and isinstance(receiver.func, ast.Attribute) and receiver.args:
        key = receiver.args[0]
        if receiver.func.attr == "at" and isinstance(key, ast.Constant):
            return str(key.value)
    return ""


def words(node: ast.expr, module: ModuleType) -> str:
    """A text with … for what is filled in; names of the module's own constants are resolved."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(words(part, module) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return words(node.value, module)
    if isinstance(node, ast.IfExp):
        return f"{words(node.body, module)} / {words(node.orelse, module)}"
    value: Any = getattr(module, node.id, None) if isinstance(node, ast.Name) else None
    return str(value) if isinstance(value, str | int) else "…"


def listed() -> str:
    """The list as it stands in the page."""
    lines = []
    for topic, told in reasons().items():
        lines += [f"**{topic}**", "", *(f"- {_escaped(reason)}" for reason in told), ""]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return re.sub(r"([*<>])", r"\\\1", text)


def parts(page: str) -> tuple[str, str, str]:
    """The page before the list, the list, and what comes after it."""
    before, _, rest = page.partition(BEGIN)
    middle, _, after = rest.partition(END)
    return before, middle.strip("\n"), after


if __name__ == "__main__":
    first, _, last = parts(PAGE.read_text())
    PAGE.write_text(f"{first}{BEGIN}\n\n{listed()}\n{END}{last}")
