"""A served dashboard of a morning's past, and windows of a browser on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page

from starburst.app.config.http import HttpConfig
from starburst.web.app import make_app
from tests.web.lively import Lively
from tests.web.serving import serving

DESK, PHONE = {"width": 1440, "height": 1000}, {"width": 390, "height": 844}
#: The lowest contrast of text with what is behind it, and where it is (WCAG 2.1, 1.4.3).
CONTRAST = """() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = rgb(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  let worst = [99, ""];
  for (const node of document.querySelectorAll("main *, header *")) {
    const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || node.closest("svg") || !node.offsetParent) continue;
    const [a, b] = [light(rgb(getComputedStyle(node).color)), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst = [ratio, node.outerHTML.slice(0, 120)];
  }
  return worst;
}"""


@dataclass
class Place:
    """A served dashboard, and a browser to see it with."""

    lively: Lively
    url: str
    chromium: Browser
    errors: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    @contextmanager
    def page(self, path: str = "/", **context: Any) -> Iterator[Page]:
        """A new window; every error and every request in it is noted."""
        opened = self.chromium.new_context(**{"viewport": DESK, **context})
        page = opened.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda said: self.errors.append(said.text) if said.type != "log" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda asked: self.hosts.add(httpx.URL(asked.url).netloc.decode()))
        page.goto(self.url + path)
        yield page
        opened.close()

    def expect_refusal(self, page: Page, act: Callable[[], None]) -> None:
        """Do what is answered with an error, which the browser notes as well."""
        before = len(self.errors)
        with page.expect_response(lambda answer: answer.status >= 400):
            act()
        page.wait_for_load_state()
        del self.errors[before:]


@contextmanager
def place(root: Path, chromium: Browser, jobs: int = 100) -> Iterator[Place]:
    with Lively.begin(root) as lively:
        lively.morning(jobs)
        with lively.app_context.home.lock(), serving(make_app(lively.app_context, HttpConfig())) as url:
            it = Place(lively, url, chromium)
            yield it
    assert it.errors == []
    assert it.hosts == {httpx.URL(url).netloc.decode()}
