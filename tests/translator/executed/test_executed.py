"""What leaves runs as a kubelet would run it: each shape is executed as there, and by each way out.

Compared are the arguments, the variables that the manifest sets, the working directory, the user, the files,
the output and the exit code. One shape in ten runs here; `make fuzz` runs them all:
python -m tests.translator.executed.test_executed
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.translator.executed.shapes import CONTAINER, TRANSLATED, Shape, shapes
from tests.translator.executed.ways import Place, Seen, expected, in_container, translated

#: One in so many shapes is executed in every run of the tests.
SAMPLE = 10


def differences(shape: Shape, root: Path) -> list[str]:
    """How the ways of a shape differ from what a kubelet would run; none if they do not."""
    place = Place(root / "case")
    place.prepare()
    manifest = shape.at(place.dir)
    process = expected(manifest, place)
    wanted = place.start(process)
    contents = _files(process.files, place)
    found = []

    _emptied(place)
    by_shell = translated(manifest, place)
    if (by_shell is None) != (TRANSLATED in shape.not_by):
        found.append(f"{TRANSLATED}: {'stays' if by_shell is None else 'leaves'}")
    elif by_shell is not None:
        cwd = "workingDir" in str(manifest)
        found += _compare(TRANSLATED, by_shell, wanted, process.set_by_pod, cwd=cwd)
        if _files(process.files, place) != contents:
            found.append(f"{TRANSLATED}: other files")

    _emptied(place)
    made = in_container(manifest, place)
    if (made is None) != (CONTAINER in shape.not_by):
        found.append(f"{CONTAINER}: {'stays' if made is None else 'leaves'}")
    elif made is not None:
        ids = (made.user, made.group, made.groups)
        if ids != (process.user, process.group, process.groups):
            found.append(f"{CONTAINER}: runs as {ids}")
        found += _compare(CONTAINER, place.start(made), wanted, frozenset(process.env), cwd=True)
        if _files(process.files, place) != contents:
            found.append(f"{CONTAINER}: other files")
        if not all(Path(path).is_dir() for path in process.empty):
            found.append(f"{CONTAINER}: a directory is not there")
    return [f"{shape.name} {line}" for line in found]


def _compare(way: str, seen: Seen, wanted: Seen, names: frozenset[str], *, cwd: bool) -> list[str]:
    pairs = {
        "output": (seen.stdout, wanted.stdout),
        "exit code": (seen.exit_code, wanted.exit_code),
        "arguments": (seen.argv, wanted.argv),
        "variables": (seen.variables(names), wanted.variables(names)),
        "directory": (seen.cwd, wanted.cwd) if cwd else (None, None),
    }
    return [
        f"{way}: {what} {mine!r}, not {theirs!r}" for what, (mine, theirs) in pairs.items() if mine != theirs
    ]


def _files(paths: dict[str, str], place: Place) -> dict[str, str]:
    return {path: Path(path).read_text() for path in paths if Path(path).exists()}


def _emptied(place: Place) -> None:
    shutil.rmtree(place.dir)
    place.prepare()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for above in (tmp_path, *tmp_path.parents[:3]):  # the users of a case must reach it
        if above.stat().st_mode & 0o001 == 0:
            above.chmod(above.stat().st_mode | 0o001)
    return tmp_path


@pytest.mark.parametrize("shape", shapes()[::SAMPLE], ids=lambda shape: shape.name)
def test_what_leaves_runs_as_a_kubelet_would_run_it(shape: Shape, root: Path) -> None:
    assert differences(shape, root) == []


def test_there_are_over_a_hundred_shapes_each_of_its_own_name() -> None:
    found = [shape.name for shape in shapes()]
    assert len(found) == len(set(found)) > 100


def main() -> int:
    """Execute every shape; 1 if one differs."""
    failed = 0
    for shape in shapes():
        with tempfile.TemporaryDirectory() as scratch:
            Path(scratch).chmod(0o755)
            for line in differences(shape, Path(scratch)):
                failed += 1
                print(line[:1000], file=sys.stderr)
    print(f"{len(shapes())} shapes executed as a kubelet would and by each way out, {failed} differences")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
