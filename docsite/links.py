"""Faults of a built site: links whose page or anchor is missing, and assets of other hosts."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Elements whose `src` or `href` a browser fetches by itself.
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """The anchors of a page, what it links to, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors, self.links, self.assets = {""}, list[str](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        wanted = given.get(LOADED.get(tag, ""))
        if wanted and given.get("rel") not in ("canonical", "next", "prev"):
            self.assets.append(wanted)


def faults(site: Path) -> list[str]:
    """A line for each link that leads nowhere and each asset that is not of the site."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links begin at the root of the host
            continue
        name = path.relative_to(site)
        found += [f"{name}: loads {url} from elsewhere" for url in page.assets if urlsplit(url).netloc]
        for url in dict.fromkeys(page.links + page.assets):
            if not urlsplit(url).scheme and not urlsplit(url).netloc:
                found += [f"{name}: {url}: {why}" for why in _fault(path, url, pages)]
    return found


def _fault(path: Path, url: str, pages: dict[Path, Page]) -> list[str]:
    parts = urlsplit(url)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return ["there is no such page"]
    if target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return ["there is no such anchor"]
    return []
