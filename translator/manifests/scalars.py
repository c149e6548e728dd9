"""Plain scalars as kubectl reads them: YAML 1.1 with `0755` = 493, `0x1ed`, `0b11`, `1_000` and `y`.

Source: kubectl 1.32 (sigs.k8s.io/yaml, which is go-yaml v2). Numbers are those of Go's strconv with base 0
after underscores are removed, dates stay text, and a float without a fraction is an integer in JSON.
"""

from __future__ import annotations

import math
import re

from yaml import CSafeLoader, ScalarNode

TAG = "tag:yaml.org,2002:"

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_INTEGER = re.compile(
    r"([-+]?)(?:0[xX](?P<x>[0-9a-fA-F]{1,16})|0[bB](?P<b>[01]{1,64})|0[oO]?(?P<o>[0-7]{1,22})"
    r"|(?P<d>0|[1-9][0-9]{0,19}))"
)
_BASES = {"x": 16, "b": 2, "o": 8, "d": 10}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]{1,400}(\.[0-9]*)?)([eE][-+]?[0-9]{1,6})?")
#: Numbers that JSON does not have.
NO_NUMBERS = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
#: Floats from here on stay floats: Go writes them with an exponent.
_LARGE = 1e21


def number(text: str) -> int | float | None:
    """The number that a plain scalar denotes; None if it is text."""
    if not text[:1].isascii() or text[:1] not in "-+.0123456789" or text in ("", "-", "+", "."):
        return None
    plain = text if text[0] == "." else text.replace("_", "")
    match = _INTEGER.fullmatch(plain)
    if match is not None:
        base = match.lastgroup or "d"
        found = int(match[1] + match[base], _BASES[base])
        if -(2**63) <= found < 2**64:
            return found
    if not _FLOAT.fullmatch(plain):
        return None
    real = float(plain)
    if math.isinf(real):
        return None
    return int(real) if real.is_integer() and abs(real) < _LARGE else real


class ScalarLoader(CSafeLoader):
    """A loader whose plain scalars are those of kubectl."""

    def resolve(self, kind: type[object], value: str, implicit: tuple[bool, bool]) -> str:
        """The tag of a node; the base class knows only patterns."""
        if kind is not ScalarNode or not implicit[0]:
            return str(super().resolve(kind, value, implicit))  # type: ignore[no-untyped-call]
        if value in _WORDS:
            return f"{TAG}null" if _WORDS[value] is None else f"{TAG}bool"
        if value == "<<":
            return f"{TAG}merge"
        found = number(value)
        return f"{TAG}str" if found is None else f"{TAG}{'int' if isinstance(found, int) else 'float'}"

    def _number(self, node: ScalarNode) -> int | float | None:
        return number(node.value)

    def _bool(self, node: ScalarNode) -> bool | None:
        return _WORDS[node.value]


ScalarLoader.add_constructor(f"{TAG}int", ScalarLoader._number)
ScalarLoader.add_constructor(f"{TAG}float", ScalarLoader._number)
ScalarLoader.add_constructor(f"{TAG}bool", ScalarLoader._bool)
