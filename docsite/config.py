"""The reference of the config file, from the schema that pydantic makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from docsite.markdown import cell, code, table
from starburst.app.config import Config

HEAD = """# Config file

Every field of the file that `starburst up --config` reads, with its type, default and meaning. All fields are
optional unless the default says *required*. `starburst config init` writes a file to begin with, `starburst
config check FILE` names each mistake, and `starburst config schema` prints this as JSON Schema for editors.
"""


def page() -> str:
    """The reference as Markdown: the top level first, then a section for each part."""
    schema = Config.model_json_schema(mode="serialization")
    parts: dict[str, Any] = schema.get("$defs", {})
    paths = _paths(schema, parts)
    lines = [HEAD, "## Top level\n", *_table(schema, paths)]
    for name, path in paths.items():
        told = cell(parts[name].get("description", ""))
        lines += [f"## {path} {{#{name.lower()}}}\n", f"{told}\n", *_table(parts[name], paths)]
    return "\n".join(lines)


def _paths(schema: dict[str, Any], parts: dict[str, Any]) -> dict[str, str]:
    """Where each part stands in the file, such as `cluster.nodes[]`, in the order of the file."""
    found: dict[str, str] = {}
    for name, path in _below(schema, parts, ""):
        found.setdefault(name, path)
    return found


def _below(part: dict[str, Any], parts: dict[str, Any], before: str) -> Iterator[tuple[str, str]]:
    for field_name, field in part["properties"].items():
        for name, many in _references(field):
            path = f"{before}{field_name}{many}"
            kind = parts[name]["properties"].get("kind", {})
            kinds = kind.get("enum", [kind["const"]] if "const" in kind else ())
            yield name, path + (f" (kind: {', '.join(kinds)})" if kinds else "")
            yield from _below(parts[name], parts, f"{path}.")


def _references(field: dict[str, Any], many: str = "") -> Iterator[tuple[str, str]]:
    """The parts that a field holds, with `[]` behind those of a list."""
    if "$ref" in field:
        yield field["$ref"].rpartition("/")[2], many
    for several in ("anyOf", "oneOf"):
        for each in field.get(several, ()):
            yield from _references(each, many)
    if field.get("type") == "array":
        yield from _references(field.get("items", {}), "[]")


def _table(part: dict[str, Any], paths: Mapping[str, str]) -> Iterator[str]:
    required = part.get("required", ())
    return table(
        ("Field", "Type", "Default", ""),
        (
            (
                f"`{name}`",
                _type(field, paths),
                _default(name, field, required),
                cell(field.get("description", "")),
            )
            for name, field in part["properties"].items()
        ),
    )


def _default(name: str, field: dict[str, Any], required: Sequence[str]) -> str:
    """A default as JSON; that of a part is the defaults of its fields."""
    if "default" not in field:
        return "*required*" if name in required else ""
    default = json.dumps(field["default"], ensure_ascii=False)
    return "" if "{" in default else code(default)


def _type(field: dict[str, Any], paths: Mapping[str, str]) -> str:
    """A type in words; a part of the config links to its section."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{paths[name].removesuffix('[]')}](#{name.lower()})"
    if "enum" in field or "const" in field:
        values = field.get("enum") or [field["const"]]
        return ", ".join(f"`{value}`" for value in values)
    for several in ("anyOf", "oneOf"):
        if several in field:
            return " or ".join(dict.fromkeys(_type(each, paths) for each in field[several]))
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}), paths)}"
    if field.get("type") == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"map of {_type(field['additionalProperties'], paths)}"
    return f"{field.get('type', 'any')}{_bounds(field)}"


def _bounds(field: dict[str, Any]) -> str:
    marks = {"minimum": "≥", "exclusiveMinimum": "&gt;", "maximum": "≤", "exclusiveMaximum": "&lt;"}
    found = [f"{mark} {field[key]}" for key, mark in marks.items() if key in field]
    return f" {', '.join(found)}" if found else ""
