"""The documents for contributors: their links, and the names of the code that they use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tests.house.source import ROOT

LIFE = ROOT / "docs" / "life-of-a-job.md"
GLOSSARY = ROOT / "docs" / "glossary.md"
DOCUMENTS = (LIFE, ROOT / "docs" / "architecture.md", GLOSSARY, ROOT / "CONTRIBUTING.md")
HOPS = 60
MECHANISM_WORDS = (30, 60)
#: What a job's path may pass more than once.
PASSED_AGAIN = "starburst/core/"

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
#: A link to a module with the names of functions and types right behind it.
NAMED = re.compile(r"\]\(([^)\s]+\.py)\)((?:,?\s+`\w+(?:\.\w+)*`)+)")
HOP = re.compile(r"^(\d+)\. \[[^\]]*\]\(\.\./([^)\s]+)\)\s+`", re.MULTILINE)
MECHANISM = re.compile(r"^> \*\*(How [^*]+)\.\*\*((?:.*\n)(?:>.*\n)*)", re.MULTILINE)


def of_file(document: Path) -> str:
    """Names a case of a test."""
    return document.name


@cache
def prose(document: Path) -> str:
    """A document without its code."""
    return re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)


@cache
def headings(document: Path) -> frozenset[str]:
    """The anchors of a document's headings, as GitHub and the site make them."""
    found = re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found)


def lost(document: Path, target: str) -> bool:
    """Whether a link of a document leads to a file or heading that is not there; the web is not asked."""
    path, _, anchor = target.partition("#")
    if "://" in path:
        return False
    file = (document.parent / path).resolve() if path else document
    return not file.exists() or bool(anchor and file.suffix == ".md" and anchor not in headings(file))


@cache
def names_in(path: Path) -> frozenset[str]:
    """What a module defines: functions, types and constants, and those of its types as `Type.name`."""
    return frozenset(_names(ast.parse(path.read_text(encoding="utf-8")), ""))


def _names(node: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + child.name
        if isinstance(child, ast.ClassDef):
            yield from _names(child, f"{prefix}{child.name}.")
        if isinstance(child, ast.Assign | ast.AnnAssign):
            assigned = child.targets if isinstance(child, ast.Assign) else [child.target]
            yield from (prefix + ast.unparse(target) for target in assigned)


def rows() -> Iterator[list[str]]:
    """The cells of the glossary's rows."""
    for line in GLOSSARY.read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith("| Term |"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def resolves(name: str) -> bool:
    """Whether a dotted name below `starburst` is a package, a module, or an attribute of one."""
    parts = name.split(".")
    for split in range(len(parts), 0, -1):
        base = ROOT.joinpath("starburst", *parts[:split])
        if base.with_suffix(".py").exists() or (base / "__init__.py").exists():
            found: object = import_module(".".join(("starburst", *parts[:split])))
            for attribute in parts[split:]:
                found = getattr(found, attribute, None)
            return found is not None
    return False


def test_links_lead_to_files_and_headings() -> None:
    every = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    assert [
        f"{page.name}: {target}"
        for page in every
        for target in LINK.findall(prose(page))
        if lost(page, target)
    ] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=of_file)
def test_names_beside_a_link_are_defined_in_its_file(document: Path) -> None:
    named = NAMED.findall(document.read_text(encoding="utf-8"))
    missing = {
        f"{target}: {name}"
        for target, names in named
        for name in re.findall(r"`([^`]+)`", names)
        if name not in names_in((document.parent / target).resolve())
    }
    assert missing == set()
    assert named or document != LIFE


def test_the_life_of_a_job_has_few_hops_each_with_a_link_and_a_name() -> None:
    text = LIFE.read_text(encoding="utf-8")
    hops = HOP.findall(text)
    assert [int(number) for number, _ in hops] == list(range(1, len(hops) + 1))
    assert len(re.findall(r"^\d+\. ", text, re.MULTILINE)) == len(hops) <= HOPS
    assert text.count("](../") == len(hops), "a link to code outside of a hop is a hop that is not counted"


def test_the_life_of_a_job_returns_to_no_file_outside_the_core() -> None:
    passed = [path for _, path in HOP.findall(LIFE.read_text(encoding="utf-8"))]
    again = {path for path in passed if passed.count(path) > 1 and not path.startswith(PASSED_AGAIN)}
    assert again == set()


def test_the_life_of_a_job_tells_ten_mechanisms_in_few_words() -> None:
    least, most = MECHANISM_WORDS
    told = {title: len(text.split()) for title, text in MECHANISM.findall(LIFE.read_text(encoding="utf-8"))}
    assert len(told) == 10
    assert {title: words for title, words in told.items() if not least <= words <= most} == {}


def test_the_glossary_explains_each_term_once() -> None:
    terms = [row[0] for row in rows()]
    assert {len(row) for row in rows()} == {4}
    assert sorted(set(terms)) == sorted(terms)


def test_types_of_the_glossary_are_in_the_code() -> None:
    named = [name for row in rows() for name in re.findall(r"`([^`]+)`", row[2])]
    assert [name for name in named if not resolves(name)] == []
    assert named
