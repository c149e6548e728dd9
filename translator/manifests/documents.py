"""Parses YAML text, with stricter rules than YAML: duplicate keys, for example, are errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from json import JSONDecoder
from typing import Any

import yaml

from translator.errors import ManifestError, ManifestErrors
from translator.manifests.scalars import NO_NUMBERS, TAG, ScalarLoader

#: A document marker: the text is split at each before it is parsed, so an invalid document hides no other.
_MARKER = re.compile(r"^---(?=\s|\Z)", re.MULTILINE)
#: A byte order mark at the beginning of a line, as where files were joined.
_BYTE_ORDER = re.compile(r"^\ufeff", re.MULTILINE)
_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
#: What no program's argument may have: NUL and lone surrogates.
_UNCLEAN = re.compile("[\0\ud800-\udfff]")
_BLANKS = re.compile(r"\s*")
#: A line that only a template has: Helm's or Jinja's braces where a key or a value begins.
_TEMPLATE = re.compile(r"^[ \t]*(?:- +)*(?:[^\s:'\"#]+:[ \t]+)?\{[{%]", re.MULTILINE)
#: A script; a manifest may begin with a comment, though not with one of an interpreter.
_SCRIPT = re.compile(r"\s*#!\s*/")

_MERGE = f"{TAG}merge"

#: Largest number of nodes per document, with aliases expanded; 10,000 jobs have some 300,000.
MAX_NODES = 500_000
#: Largest number of nodes that aliases add: this many, or so many times the written ones.
MAX_ALIASED, MAX_ALIAS_RATIO = 20_000, 10
#: Largest nesting depth; Kubernetes' own types have some twenty levels.
MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Chunk:
    """The text of one document and the number of lines before it."""

    text: str
    lines_before: int


def chunks(text: str) -> list[Chunk]:
    """The documents of a text; comments and directives before the first marker belong to the first."""
    text = _BYTE_ORDER.sub("", text)
    objects = _json_objects(text)
    if objects:
        return objects
    starts = [match.start() for match in _MARKER.finditer(text)]
    head = text[: starts[0]].splitlines() if starts else [text]
    if starts and all(line.lstrip()[:1] in ("", "#", "%") for line in head):
        starts[0] = 0
    else:
        starts.insert(0, 0)
    ends = [*starts[1:], len(text)]
    lines, found = 0, []
    for start, end in zip(starts, ends, strict=True):
        found.append(Chunk(text[start:end], lines))
        lines += text.count("\n", start, end)
    return found


def _json_objects(text: str) -> list[Chunk]:
    """The values of a text of JSON, one after the other as for kubectl; none if it is anything else."""
    start, decode = len(text) - len(text.lstrip()), JSONDecoder().raw_decode
    found: list[Chunk] = []
    lines = text.count("\n", 0, start)
    while text[start : start + 1] == "{":
        try:
            _, end = decode(text, start)
        except (ValueError, RecursionError):
            return []
        found.append(Chunk(_PAIR.sub(_joined, text[start:end]), lines))
        behind = _BLANKS.match(text, end)
        after = behind.end() if behind else end
        lines += text.count("\n", start, after)
        start = after
    return found if start == len(text) else []


def _joined(pair: re.Match[str]) -> str:
    """The character of two escapes of JSON, which YAML does not read."""
    high, low = int(pair[2], 16), int(pair[3], 16)
    return pair[1] + chr(0x10000 + ((high & 0x3FF) << 10) + (low & 0x3FF))


def load(chunk: Chunk, source: str, document: int, scalars: type[yaml.CSafeLoader] = ScalarLoader) -> object:
    """The value of one document, of dicts with text keys, lists and scalars; None if it is empty.

    `scalars` types plain scalars; by default as kubectl does.

    Raises:
        ManifestErrors: the text is not YAML, is too large, or has keys or values that manifests may not have.
    """

    def error(field: str, value: object, mend: str) -> ManifestErrors:
        return ManifestErrors([ManifestError(source, document, field, value, mend)])

    if _SCRIPT.match(chunk.text):
        mend = "starburst submit takes it if #SBATCH lines are at its top, else as a command: -- sh SCRIPT"
        raise error("", None, f"is a script, no manifest; {mend}")
    try:
        _measure(chunk.text)
        loader = scalars(chunk.text)
        root = loader.get_single_node()
        if root is None:
            return None
        problems = [
            ManifestError(source, document, _place(chunk, mark), value, mend)
            for mark, value, mend in _problems(loader, root)
        ]
        if problems:
            raise _template(chunk, error) or ManifestErrors(problems)
        value: object = loader.construct_document(root)
        return value
    except yaml.MarkedYAMLError as bad:
        mark = bad.problem_mark or bad.context_mark
        problem = f"{bad.problem or bad.context}; check the indentation and the quotes there"
        raise _template(chunk, error) or error(_place(chunk, mark), None, problem) from None
    except (yaml.reader.ReaderError, UnicodeEncodeError) as bad:
        raise error(_line(chunk, bad), None, "this character may not stand in YAML; remove it") from None
    except _TooLargeError as bad:
        raise error(_place(chunk, bad.mark), None, str(bad)) from None
    except RecursionError:
        raise error("", None, "this document is nested too deeply") from None


def _template(chunk: Chunk, error: Callable[[str, object, str], ManifestErrors]) -> ManifestErrors | None:
    """The error of a template that was not rendered, which is no YAML; None if the text is none."""
    match = _TEMPLATE.search(chunk.text)
    if match is None:
        return None
    line = chunk.lines_before + chunk.text.count("\n", 0, match.start()) + 1
    return error(
        f"line {line}",
        None,
        "a template is no manifest; render it first, as with helm template or jinja2, and submit the result",
    )


class _TooLargeError(Exception):
    """A document exceeds MAX_NODES or MAX_DEPTH, or has no end."""

    def __init__(self, mark: Any, why: str) -> None:
        super().__init__(why)
        self.mark = mark


def _measure(text: str) -> None:
    """Check the size of a document by its events, before nodes are built: libyaml's loader has no limits.

    Raises:
        _TooLargeError: it is too deep, or has too many nodes.
        yaml.YAMLError: it is not YAML.
    """
    nodes, written, sizes = 0, 0, dict[str, int]()  # sizes: nodes per anchor, 0 while it is open
    levels: list[tuple[str | None, int]] = []
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                mark: Any = event.start_mark  # a type of libyaml's binding
                raise yaml.composer.ComposerError(None, None, f"found undefined alias {event.anchor!r}", mark)
            if not sizes[event.anchor]:
                raise _TooLargeError(
                    event.start_mark, f"the alias {event.anchor!r} stands for itself; write it out"
                )
            nodes += sizes[event.anchor]
        elif isinstance(event, yaml.NodeEvent):
            if event.anchor is not None:
                sizes[event.anchor] = 0 if isinstance(event, yaml.CollectionStartEvent) else 1
            written += 1
            if isinstance(event, yaml.CollectionStartEvent):
                levels.append((event.anchor, nodes))
            nodes += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = levels.pop()
            if anchor is not None:
                sizes[anchor] = nodes - before
        if len(levels) > MAX_DEPTH:
            raise _TooLargeError(event.start_mark, f"is nested more than {MAX_DEPTH} levels deep; flatten it")
        most = max(MAX_ALIASED, MAX_ALIAS_RATIO * written)
        if nodes - written > most:
            raise _TooLargeError(
                event.start_mark, f"here aliases stand for more than {most} values; write them out"
            )
        if nodes > MAX_NODES:
            raise _TooLargeError(
                event.start_mark,
                f"here the document has more than {MAX_NODES} values, aliases written out; split it up",
            )


def _line(chunk: Chunk, bad: yaml.reader.ReaderError | UnicodeEncodeError) -> str:
    """The line of a character that YAML does not allow."""
    if isinstance(bad, UnicodeEncodeError):
        before = chunk.text.count("\n", 0, bad.start)
    else:  # libyaml's position is in bytes
        before = chunk.text.encode().count(b"\n", 0, bad.position)
    return f"line {chunk.lines_before + before + 1}"


def _place(chunk: Chunk, mark: yaml.Mark | None) -> str:
    if mark is None:
        return ""
    return f"line {chunk.lines_before + mark.line + 1}, column {mark.column + 1}"


def _problems(loader: yaml.CSafeLoader, root: yaml.Node) -> list[tuple[yaml.Mark, object, str]]:
    """Valid YAML that manifests may not have: the position, the value and the remedy of each problem."""
    found: list[tuple[yaml.Mark, object, str]] = []
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:  # repeated by an alias
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            found += _key_problems(node)
            waiting += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif _is_no_number(loader, node):
            found.append(
                (node.start_mark, node.value, "JSON has no such number; put it in quotes if it is text")
            )
        elif not _is_clean(node.value):
            found.append(
                (node.start_mark, None, "this text holds a character no program can be given; remove it")
            )
        if node.tag != _plain_tag(loader, node):
            found.append((node.start_mark, node.tag, "tags are not used in manifests; remove it"))
    return sorted(found, key=lambda problem: problem[0].index)


def _is_no_number(loader: yaml.CSafeLoader, node: yaml.Node) -> bool:
    plain = isinstance(node, yaml.ScalarNode) and not node.style and isinstance(loader, ScalarLoader)
    return plain and NO_NUMBERS.fullmatch(node.value) is not None


def _key_problems(node: yaml.MappingNode) -> list[tuple[yaml.Mark, object, str]]:
    found: list[tuple[yaml.Mark, object, str]] = []
    first_lines: dict[str, yaml.Mark] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            found.append((key.start_mark, None, "a key must be text; quote a value that begins with { or ["))
        elif key.tag not in (f"{TAG}str", _MERGE):
            found.append((key.start_mark, key.value, "a key must be text; put it in quotes"))
        elif not _is_clean(key.value):
            found.append((key.start_mark, None, "this key holds a character no key may hold; remove it"))
        elif key.value in first_lines:
            away = key.start_mark.line - first_lines[key.value].line
            before = f"{away} line{'s' if away > 1 else ''} above" if away else "on the same line"
            found.append(
                (key.start_mark, key.value, f"this key was already given {before}; keep one of the two")
            )
        else:
            first_lines[key.value] = key.start_mark
    return found


def _plain_tag(loader: yaml.CSafeLoader, node: yaml.Node) -> str:
    """The implicit tag of a node."""
    if isinstance(node, yaml.MappingNode):
        return f"{TAG}map"
    if isinstance(node, yaml.SequenceNode):
        return f"{TAG}seq"
    if node.tag == f"{TAG}str":
        return node.tag
    return str(loader.resolve(yaml.ScalarNode, node.value, (True, False)))  # type: ignore[no-untyped-call]


def _is_clean(text: str) -> bool:
    """Whether a text can be a program's argument: no NUL and no lone surrogate."""
    return _UNCLEAN.search(text) is None
