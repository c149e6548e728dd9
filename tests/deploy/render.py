"""A renderer for the small part of Helm's template language that the chart uses; anything else is refused.

`python -m tests.deploy.render > deploy/kubernetes.yaml` makes the plain manifests anew.
"""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "starburst"
NAMESPACE, RELEASE = "starburst-system", "starburst"

ACTION = re.compile(r"\{\{(-)?\s+(.*?)\s+(-)?\}\}", re.DOTALL)
PATH = re.compile(r"(\$?)\.((?:Values|Release)(?:\.[A-Za-z]+)+)")
HAS = re.compile(r'\.Capabilities\.APIVersions\.Has "([a-z0-9./]+)"')
IS = re.compile(r'eq (\S+) "([a-z]+)"')
TO_YAML = re.compile(r"toYaml (\S+) \| indent ([0-9]+)")
DIGEST = re.compile(r"toJson (\S+) \| sha256sum")
QUOTE = re.compile(r"(\S+) \| quote")

HEAD = """\
# Made of deploy/helm/starburst and its defaults by `python -m tests.deploy.render`: change those.
# A server older than 1.21 refuses the PodDisruptionBudget, which it does not know, and takes all else.
apiVersion: v1
kind: Namespace
metadata:
  name: {namespace}
"""


class UnknownTemplateError(Exception):
    """The chart uses something that is not known here, or a value that is not there."""


def chart(
    values: Mapping[str, Any] = {},
    apis: frozenset[str] = frozenset({"policy/v1"}),
    release: str = RELEASE,
) -> Iterator[str]:
    """Every template of the chart that has anything in it; `values` are laid over the defaults."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    scope = {
        "Values": _over(defaults, values),
        "Release": {"Name": release, "Namespace": NAMESPACE},
        "APIs": apis,
    }
    for path in sorted((CHART / "templates").iterdir()):
        text = render(path.read_text(), scope).strip("\n")
        if text:
            yield text + "\n"


def objects(
    values: Mapping[str, Any] = {},
    apis: frozenset[str] = frozenset({"policy/v1"}),
    release: str = RELEASE,
) -> list[Any]:
    """The same, read."""
    return [item for text in chart(values, apis, release) for item in yaml.safe_load_all(text)]


@dataclass
class Block:
    """What stands between an `if` or a `range` and its `end`: texts, actions and blocks."""

    opening: str
    parts: list[Block | Text | str] = field(default_factory=list)


class Text(str):
    """What is not within braces."""


def render(template: str, scope: Mapping[str, Any]) -> str:
    """One template. Raises UnknownTemplateError."""
    return _shown(_parsed(template), scope)


def _parsed(template: str) -> Block:
    root = Block("")
    within, at = [root], 0
    for match in ACTION.finditer(template):
        before, action = template[at : match.start()], match[2]
        at = match.end()
        if match[3]:
            at += len(template[at:]) - len(template[at:].lstrip())
        within[-1].parts.append(Text(before.rstrip() if match[1] else before))
        if action.startswith(("if ", "range ")):
            within.append(Block(action))
            within[-2].parts.append(within[-1])
        elif action == "end":
            if len(within) == 1:
                raise UnknownTemplateError("an end too many")
            within.pop()
        else:
            within[-1].parts.append(action)
    rest = template[at:]
    if len(within) != 1 or "{{" in rest or "}}" in rest:
        raise UnknownTemplateError("an action without its end")
    root.parts.append(Text(rest))
    return root


def _shown(block: Block, scope: Mapping[str, Any]) -> str:
    out = ""
    for part in block.parts:
        if isinstance(part, Text):
            if "{{" in part or "}}" in part:
                raise UnknownTemplateError("an action that is none")
            out += part
        elif isinstance(part, str):
            out += _text(part, scope)
        elif part.opening.startswith("if "):
            out += _shown(part, scope) if _condition(part.opening[3:], scope) else ""
        else:
            items = _value(part.opening.removeprefix("range "), scope)
            out += "".join(_shown(part, {**scope, ".": item}) for item in items)
    return out


def _condition(action: str, scope: Mapping[str, Any]) -> bool:
    has = HAS.fullmatch(action)
    if has:
        return has[1] in scope["APIs"]
    equal = IS.fullmatch(action)
    if equal:
        return bool(_value(equal[1], scope) == equal[2])
    return not _value(action[4:], scope) if action.startswith("not ") else bool(_value(action, scope))


def _text(action: str, scope: Mapping[str, Any]) -> str:
    block = TO_YAML.fullmatch(action)
    if block:
        lines = yaml.safe_dump(_value(block[1], scope), default_flow_style=False).splitlines()
        return "\n".join(" " * int(block[2]) + line for line in lines)
    digest = DIGEST.fullmatch(action)
    if digest:
        packed = json.dumps(
            _value(digest[1], scope), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
        return sha256(packed.encode()).hexdigest()
    quoted = QUOTE.fullmatch(action)
    value = _value(quoted[1] if quoted else action, scope)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UnknownTemplateError(f"{action}: {value!r} is neither text nor a whole number")
    return json.dumps(str(value)) if quoted else str(value)


def _value(path: str, scope: Mapping[str, Any]) -> Any:
    if path == "." and "." in scope:
        return scope["."]
    found = PATH.fullmatch(path)
    if not found or ("." in scope and not found[1]):  # within a range a dot is the item
        raise UnknownTemplateError(f"{path}: not known here")
    value: Any = scope
    for part in found[2].split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise UnknownTemplateError(f"{path}: there is no such value")
        value = value[part]
    return value


def _over(below: Any, above: Any) -> Any:
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return copy.deepcopy(above)
    return {
        key: _over(below.get(key), above[key]) if key in above else below[key] for key in {**below, **above}
    }


def manifests() -> str:
    """deploy/kubernetes.yaml."""
    return "---\n".join((HEAD.format(namespace=NAMESPACE), *chart()))


if __name__ == "__main__":
    sys.stdout.write(manifests())
