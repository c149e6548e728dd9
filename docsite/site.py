"""Builds the site: `python -m docsite.site OUT`, with `zensical` beside this Python.

The pages are docs/, the README as the first one, documents of the project, and references made from the code.
A link to a file that is no page leads to a copy of it. The build fails on links and anchors that lead nowhere
and on anything that a browser would load from another host.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from docsite import commands, config, http
from docsite.links import faults

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "mkdocs.yml"
#: Documents outside docs/ that are pages, with their names on the site.
PROJECT = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "SUPPORT.md": "support.md",
}
#: Where files go that pages link to and that are no pages.
FILES = "files"
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\()([^)\s]+)(\))")
DIAGRAM = re.compile(r"```mermaid\nstateDiagram-v2\n(.*?)```", re.DOTALL)
BUILD_LIMIT_S = 300


def assemble(pages: Path) -> None:
    """Write the source of the site into an empty directory."""
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.is_file():
            _add(path, pages / path.relative_to(ROOT / "docs"), pages)
    for name, page in PROJECT.items():
        _add(ROOT / name, pages / page, pages)
    (pages / "reference").mkdir()
    for name, text in references().items():
        (pages / "reference" / name).write_text(text, encoding="utf-8")
    (pages / "llms.txt").write_text(llms(pages), encoding="utf-8")


def references() -> dict[str, str]:
    """The pages that are made from the code, by name."""
    with http.empty_home() as context:
        over_http = {"api.md": http.api_page(context), "metrics.md": http.metrics_page(context)}
    return {"commands.md": commands.page(), "config.md": config.page(), **over_http}


def _add(source: Path, target: Path, pages: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix != ".md":
        shutil.copyfile(source, target)
        return
    text = LINK.sub(_leading_on(source, target, pages), source.read_text(encoding="utf-8"))
    target.write_text(DIAGRAM.sub(_transitions, text), encoding="utf-8")


def _leading_on(source: Path, target: Path, pages: Path) -> Callable[[re.Match[str]], str]:
    """Rewrites a link of a document for its page."""

    def rewrite(link: re.Match[str]) -> str:
        named, hash_sign, anchor = link[2].partition("#")
        path = (source.parent / named).resolve()
        if not named or "://" in named or not path.is_relative_to(ROOT):
            return link[0]
        place = _place(path.relative_to(ROOT), pages)
        if place is None:
            return link[0]
        up = "../" * len(target.relative_to(pages).parent.parts)
        return f"{link[1]}{up}{place.as_posix()}{hash_sign}{anchor}{link[3]}"

    return rewrite


def _place(name: Path, pages: Path) -> Path | None:
    """Where a file of the repository is on the site; None for one that is not there. Others are copied."""
    if name.as_posix() in PROJECT:
        return Path(PROJECT[name.as_posix()])
    if name.parts[0] == "docs":
        return name.relative_to("docs")
    if not (ROOT / name).is_file():
        return None
    copied = pages / FILES / name
    if not copied.exists():
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copied)
    return Path(FILES) / name


def _transitions(diagram: re.Match[str]) -> str:
    """A state diagram as a table: what draws diagrams in a browser would come from another host."""
    arrows = re.findall(r"(\S+) --> (\S+)", diagram[1].replace("[*]", "·"))
    following: dict[str, list[str]] = {}
    for before, after in arrows:
        following.setdefault(before, []).append(after)
    rows = [f"| {before} | {', '.join(after)} |" for before, after in following.items()]
    return "\n".join(["| From | To |\n|---|---|", *rows]).replace("·", "(begin or end)") + "\n"


def llms(pages: Path) -> str:
    """llms.txt: every page in the order of the site, with its title and first sentence."""
    settings = _settings()
    lines = [f"# {settings['site_name']}\n", f"> {settings['site_description']}\n"]
    for section in settings["nav"]:
        (title, entries), *_ = section.items()
        lines.append(f"\n## {title}\n")
        for name in named(entries):
            heading, first = _beginning(pages / name)
            lines.append(f"- [{heading}]({name}){': ' if first else ''}{first}")
    return "\n".join(lines) + "\n"


def named(entries: Any) -> Iterator[str]:
    """The pages that a part of the navigation names, in order."""
    if isinstance(entries, str):
        yield entries
    elif isinstance(entries, dict):
        for each in entries.values():
            yield from named(each)
    else:
        for each in entries:
            yield from named(each)


def _beginning(page: Path) -> tuple[str, str]:
    title, *paragraphs = page.read_text(encoding="utf-8").split("\n\n")
    prose = next(
        (" ".join(p.split()) for p in paragraphs if not re.match(r"\s*(```|[|#>!]|- |\d\. |$)", p)), ""
    )
    prose = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", prose)
    return title.removeprefix("# ").split("\n")[0], re.split(r"(?<=[.:]) ", prose)[0].rstrip(":")


def _settings() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    return loaded


def build(out: Path) -> list[str]:
    """Build the site into a directory, which is made anew. Returns what is wrong with it."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        assemble(root / "pages")
        settings = _settings() | {"docs_dir": "pages", "site_dir": "site"}
        (root / "mkdocs.yml").write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
        tool = [str(Path(sys.executable).with_name("zensical")), "build", "--strict"]
        done = subprocess.run(
            tool, cwd=root, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False
        )
        if done.returncode:
            return [done.stdout + done.stderr]
        missing = {str(p.relative_to(root / "pages")) for p in (root / "pages").rglob("*.md")}
        unlisted = sorted(missing - {*named(settings["nav"])})
        if out.exists():
            shutil.rmtree(out)
        shutil.copytree(root / "site", out)
    return [f"mkdocs.yml: nav lacks {name}" for name in unlisted] + faults(out)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    wrong = build(target)
    print("\n".join(wrong) or f"the site is in {target}; open {target / 'index.html'}")
    sys.exit(1 if wrong else 0)
