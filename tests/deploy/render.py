"""A renderer for the small part of Helm's template language that the chart uses; anything else is refused.

`python -m tests.deploy.render > deploy/kubernetes.yaml` makes the plain manifests anew.
"""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "starburst"
NAMESPACE, RELEASE = "starburst-system", "starburst"

ACTION = re.compile(r"\{\{(-)?\s+(.*?)\s+(-)?\}\}", re.DOTALL)
PATH = re.compile(r"\.((?:Values|Release)(?:\.[A-Za-z]+)+)")
HAS = re.compile(r'\.Capabilities\.APIVersions\.Has "([a-z0-9./]+)"')
TO_YAML = re.compile(r"toYaml (\S+) \| indent ([0-9]+)")
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


def chart(values: Mapping[str, Any] = {}, apis: frozenset[str] = frozenset({"policy/v1"})) -> Iterator[str]:
    """Every template of the chart that has anything in it; `values` are laid over the defaults."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    scope = {
        "Values": _over(defaults, values),
        "Release": {"Name": RELEASE, "Namespace": NAMESPACE},
        "APIs": apis,
    }
    for path in sorted((CHART / "templates").iterdir()):
        text = render(path.read_text(), scope).strip("\n")
        if text:
            yield text + "\n"


def objects(values: Mapping[str, Any] = {}, apis: frozenset[str] = frozenset({"policy/v1"})) -> list[Any]:
    """The same, read."""
    return [item for text in chart(values, apis) for item in yaml.safe_load_all(text)]


def render(template: str, scope: Mapping[str, Any]) -> str:
    """One template. Raises UnknownTemplateError."""
    out, shown, at = "", [True], 0
    for match in ACTION.finditer(template):
        before, action = template[at : match.start()], match[2]
        at = match.end()
        if match[3]:
            at += len(template[at:]) - len(template[at:].lstrip())
        if shown[-1]:
            out += before.rstrip() if match[1] else before
        if action.startswith("if "):
            shown.append(bool(_condition(action[3:], scope)) and shown[-1])
        elif action == "end":
            if len(shown) == 1:
                raise UnknownTemplateError("an end too many")
            shown.pop()
        elif shown[-1]:
            out += _text(action, scope)
    rest = template[at:]
    if len(shown) != 1 or "{{" in out + rest or "}}" in rest:
        raise UnknownTemplateError("an action without its end")
    return out + rest


def _condition(action: str, scope: Mapping[str, Any]) -> Any:
    has = HAS.fullmatch(action)
    return has[1] in scope["APIs"] if has else _value(action, scope)


def _text(action: str, scope: Mapping[str, Any]) -> str:
    block = TO_YAML.fullmatch(action)
    if block:
        lines = yaml.safe_dump(_value(block[1], scope), default_flow_style=False).splitlines()
        return "\n".join(" " * int(block[2]) + line for line in lines)
    quoted = QUOTE.fullmatch(action)
    value = _value(quoted[1] if quoted else action, scope)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UnknownTemplateError(f"{action}: {value!r} is neither text nor a whole number")
    return json.dumps(str(value)) if quoted else str(value)


def _value(path: str, scope: Mapping[str, Any]) -> Any:
    found = PATH.fullmatch(path)
    if not found:
        raise UnknownTemplateError(f"{path}: not known here")
    value: Any = scope
    for part in found[1].split("."):
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
