"""Sources of the core as mypyc compiles them best: records become native classes.

mypyc makes a native class, whose fields are read and written without a look-up, of a plain dataclass: not of
one with slots or of another decorator. What `dataclass` generates at run time is interpreted, so constructors
are written out. Nothing else changes; the rules are those of the sources.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

#: What the process that simulates begins with; the rest follows from imports.
START, PACKAGES = "sim.compiled.worker", ("starburst", "sim")
#: What is compiled of what that imports. Packing is arrays, and that engine shares no machines.
COMPILED = ("starburst.core", "starburst.policy", "starburst.domain", "sim.world", "sim.engines")
INTERPRETED = ("starburst.policy.packing", "starburst.domain.value")
FUTURE = "from __future__ import annotations\n"
NEEDED = "\nfrom dataclasses import dataclass\n\nfrom mypy_extensions import mypyc_attr\n"


def reached(root: Path) -> list[str]:
    """Files that a simulation by the core imports, relative to the directory of the packages, sorted."""
    seen: dict[str, Path] = {}
    left = [START]
    while left:
        name = left.pop()
        at = root.joinpath(*name.split("."))
        file = at / "__init__.py" if at.is_dir() else at.with_suffix(".py")
        if name in seen or name.partition(".")[0] not in PACKAGES or not file.is_file():
            continue
        seen[name] = file
        left.append(name.rpartition(".")[0])
        if not at.is_dir():  # packages import nothing, but `starburst` its client on demand
            left += _imported(ast.parse(file.read_text(encoding="utf-8")))
    return sorted(str(file.relative_to(root)) for file in seen.values())


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_compiled(file: str) -> bool:
    """Whether a file that is reached is compiled; the others are interpreted."""
    name = file.removesuffix(".py").replace("/", ".")

    def within(packages: tuple[str, ...]) -> bool:
        return any(name == package or name.startswith(f"{package}.") for package in packages)

    return within(COMPILED) and not within(INTERPRETED) and not name.endswith(".__init__")


def native(source: str) -> str:
    """The source with native records and exceptions that are none."""
    lines = source.splitlines(keepends=True)
    changes: list[tuple[int, int, str]] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            changes += _changes(node)
    for begin, end, text in sorted(changes, reverse=True):  # from the last line on, so that numbers hold
        lines[begin:end] = [text]
    return "".join(lines).replace(FUTURE, FUTURE + NEEDED, 1) if changes else source


def _changes(cls: ast.ClassDef) -> Iterator[tuple[int, int, str]]:
    """Lines, from one to before another, and what takes their place."""
    if any(isinstance(base, ast.Name) and base.id.endswith("Error") for base in cls.bases):
        yield cls.lineno - 1, cls.lineno - 1, "@mypyc_attr(native_class=False)\n"
    for node in cls.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__":
            yield node.lineno - 1, node.end_lineno or node.lineno, "    pass\n"
    for decorator in cls.decorator_list:
        if (options := _record_options(decorator)) is not None:
            record = _Record(cls, options)
            yield decorator.lineno - 1, decorator.end_lineno or decorator.lineno, record.decorator()
            last = cls.body[-1].end_lineno or cls.lineno
            yield last, last, record.constructor()


def _record_options(decorator: ast.expr) -> dict[str, bool] | None:
    """The options of `dataclass` that make such a record; None of another decorator."""
    if isinstance(decorator, ast.Name):
        return {"value": {"unsafe_hash": True}, "dataclass": {}}.get(decorator.id)
    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "dataclass":
        return {each.arg or "": ast.literal_eval(each.value) for each in decorator.keywords}
    return None


@dataclass(frozen=True)
class _Record:
    cls: ast.ClassDef
    options: dict[str, bool]
    fields: list[ast.AnnAssign] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.fields.extend(node for node in self.cls.body if isinstance(node, ast.AnnAssign))

    def decorator(self) -> str:
        """Without slots, and frozen for the sources' type checker only: it is hashed as if it were."""
        kept = {name: on for name, on in self.options.items() if name not in ("slots", "frozen")}
        if self.options.get("frozen") and self.options.get("eq", True):
            kept["unsafe_hash"] = True
        return f"@dataclass({', '.join(f'{name}={on}' for name, on in {'init': False, **kept}.items())})\n"

    def constructor(self) -> str:
        parameters, body = [], []
        for each in self.fields:
            name, kind = ast.unparse(each.target), ast.unparse(each.annotation)
            factory = _factory(each.value)
            given = name
            if factory:
                parameters.append(f"{name}: {kind} | None = None")
                given = f"{factory} if {name} is None else {name}"
            else:
                default = "" if each.value is None else f" = {ast.unparse(each.value)}"
                parameters.append(f"{name}: {kind}{default}")
            body.append(f"        self.{name} = {given}\n")
        if self._has_post_init():
            body.append("        self.__post_init__()\n")
        head = f"\n    def __init__({', '.join(['self', *parameters])}) -> None:\n"
        return head + "".join(body or ["        pass\n"])

    def _has_post_init(self) -> bool:
        """Bases of records keep something at hand that follows from the fields."""
        methods = (node.name for node in self.cls.body if isinstance(node, ast.FunctionDef))
        return bool(self.cls.bases) or "__post_init__" in methods


def _factory(default: ast.expr | None) -> str:
    """What makes a field's default anew each time; "" if it is a constant or missing."""
    if not (isinstance(default, ast.Call) and ast.unparse(default.func) == "field"):
        return ""
    (made,) = (each.value for each in default.keywords if each.arg == "default_factory")
    text = ast.unparse(made)
    return {"dict": "{}", "list": "[]"}.get(text, f"({text})()")
