"""Faults of a built site are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from docsite.links import faults


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="other.html">', None),
        ('<a href="other.html#there">', None),
        ('<a href="#here"><p id="here">', None),
        ('<a href="sub/">', None),
        ('<a href="https://example.com/gone">', None),
        ('<a href="gone.html">', "a.html: gone.html: there is no such page"),
        ('<a href="other.html#gone">', "a.html: other.html#gone: there is no such anchor"),
        ('<img src="gone.png">', "a.html: gone.png: there is no such page"),
        ('<script src="https://cdn.example/x.js">', "a.html: loads https://cdn.example/x.js from elsewhere"),
        (
            '<link rel="stylesheet" href="//fonts.example/x">',
            "a.html: loads //fonts.example/x from elsewhere",
        ),
    ],
)
def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, body: str, fault: str | None) -> None:
    (tmp_path / "a.html").write_text(body)
    (tmp_path / "other.html").write_text('<h2 id="there">')
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "index.html").write_text("")
    assert faults(tmp_path) == ([] if fault is None else [fault])
