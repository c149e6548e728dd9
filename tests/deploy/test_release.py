"""What `make release` states, and that one commit gives the same bytes."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "release.py"


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "_git", lambda *words: "" if words[0] == "status" else "0" * 40)
    return module


def test_archives_are_the_same_bytes_whenever_they_are_made(release: ModuleType, tmp_path: Path) -> None:
    files = {"b/two": b"2", "a": b"1"}
    for name in ("first", "second"):
        release._archive(tmp_path / name, dict(reversed(files.items())), 1_700_000_000)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    with tarfile.open(tmp_path / "first") as archive:
        assert archive.getnames() == ["a", "b/two"]
        assert {entry.mtime for entry in archive} == {1_700_000_000}


def test_the_statement_names_each_file_and_what_it_was_made_of(release: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "some.whl").write_bytes(b"wheel")
    stated = release.provenance([tmp_path / "some.whl"])
    assert stated["subject"] == [
        {"name": "some.whl", "digest": {"sha256": hashlib.sha256(b"wheel").hexdigest()}}
    ]
    materials = {each["uri"] for each in stated["predicate"]["buildDefinition"]["resolvedDependencies"]}
    assert {"git:" + "0" * 40, "requirements/image.txt", f"image:{release.base_image()}"} <= materials


def test_a_directory_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "old.whl").touch()
    command = [sys.executable, str(SCRIPT), "--allow-changes", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (2, f"{tmp_path} is not empty; remove what is in it\n")
