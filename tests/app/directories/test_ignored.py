"""Patterns of ignore files, by the cases of gitignore(5)."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePath

import pytest

from starburst.app.directories.ignored import IgnoreFile, is_ignored, read_patterns

CASES = {
    "hello.*": (["hello.txt", "a/hello.c"], ["a/say-hello"]),
    "/hello.*": (["hello.c"], ["a/hello.c"]),
    "doc/frotz": (["doc/frotz"], ["a/doc/frotz"]),
    "**/foo": (["foo", "a/b/foo"], ["foos"]),
    "a/**/b": (["a/b", "a/x/y/b"], ["ab", "x/a/b"]),
    "abc/**": (["abc/x"], ["abcd"]),
    "foo*": (["foobar", "a/foo"], ["afoo"]),
    "*.py[co]": (["a.pyc"], ["a.py", "a.pyx"]),
    "a[!b]c": (["axc"], ["abc"]),
    "?.log": (["a.log"], ["ab.log"]),
    r"\#x": (["#x"], ["x"]),
    "a.b": (["a.b"], ["axb"]),
    "data \n": (["data"], ["data "]),
    "*.log\n!keep.log": (["a.log"], ["keep.log"]),
}


@pytest.mark.parametrize("text", CASES)
def test_a_pattern_leaves_out_what_git_would(text: str) -> None:
    files = [IgnoreFile("", read_patterns(text))]
    out, kept = CASES[text]
    assert all(is_ignored(path, files, is_directory=False) for path in out)
    assert not any(is_ignored(path, files, is_directory=False) for path in kept)


def test_a_slash_at_the_end_is_for_directories() -> None:
    files = [IgnoreFile("", read_patterns("out/\n# comment\n\n"))]
    assert is_ignored("a/out", files, is_directory=True)
    assert not is_ignored("out", files, is_directory=False)


def test_a_file_further_down_comes_last_and_speaks_of_its_own_directory() -> None:
    files = [IgnoreFile("", read_patterns("*.csv")), IgnoreFile("data/", read_patterns("!/small.csv"))]
    assert is_ignored("small.csv", files, is_directory=False)
    assert not is_ignored("data/small.csv", files, is_directory=False)
    assert is_ignored("data/a/small.csv", files, is_directory=False)


def stays_out(path: str, files: list[IgnoreFile]) -> bool:
    """Whether a file, or a directory around it, is left out."""
    parents = [str(parent) for parent in PurePath(path).parents][:-1]
    around = (is_ignored(parent, files, is_directory=True) for parent in parents)
    return any(around) or is_ignored(path, files, is_directory=False)


def test_git_itself_judges_alike(tmp_path: Path) -> None:
    def git(*words: str, stdin: str = "") -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=tmp_path,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return done.stdout

    paths = [path for out, kept in CASES.values() for path in (*out, *kept) if path == path.strip()]
    git("init", "-q")
    for text in CASES:
        (tmp_path / ".gitignore").write_text(text)
        files = [IgnoreFile("", read_patterns(text))]
        ours = {path for path in paths if stays_out(path, files)}
        assert ours == set(
            git("check-ignore", "--no-index", "--stdin", stdin="\n".join(paths)).splitlines()
        ), text
