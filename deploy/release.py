"""Builds everything of a release into dist/: `make release`, from a clean checkout.

Packages, the context of the image, the chart, man pages, a bill of materials of each lock file, a statement
of what they were made of, and checksums of them all. Times in archives are the commit's: one commit gives the
same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
#: Lock files whose packages reach a user, with the name that each has in the bill of materials.
LOCKS = {"runtime": "requirements/runtime.txt", "image": "requirements/image.txt"}
IMAGE_FILES = ("deploy/Dockerfile", "deploy/Dockerfile.dockerignore", "requirements/image.txt")
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "make release"


def main(argv: list[str]) -> int:
    """Build into the directory that the command line names; exit code 2 for a checkout that is not clean."""
    parser = argparse.ArgumentParser(description="Build a release")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--allow-changes", action="store_true", help="for trials: also from changed files")
    chosen = parser.parse_args(argv)
    changed = _git("status", "--porcelain")
    if changed and not chosen.allow_changes:
        print(
            f"the checkout has changes, such as {changed.splitlines()[0][3:]}; commit them", file=sys.stderr
        )
        return 2
    if chosen.out.exists() and any(chosen.out.iterdir()):
        print(f"{chosen.out} is not empty; remove what is in it", file=sys.stderr)
        return 2
    chosen.out.mkdir(parents=True, exist_ok=True)
    build(chosen.out)
    for line in (chosen.out / "SHA256SUMS").read_text().splitlines():
        print(line)
    return 0


def build(out: Path) -> None:
    """Make every file of a release in an empty directory."""
    time_s = int(_git("log", "-1", "--format=%ct"))
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time_s)}
    _run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)], environment)
    (wheel,) = out.glob("*.whl")
    version = wheel.name.split("-")[1]
    image = {name: (ROOT / name).read_bytes() for name in IMAGE_FILES}
    image[f"dist/{wheel.name}"] = wheel.read_bytes()
    _archive(out / f"starburst-image-context-{version}.tar.gz", image, time_s)
    chart = ROOT / "deploy" / "helm" / "starburst"
    files = sorted(path for path in chart.rglob("*") if path.is_file())
    charted = {f"starburst/{path.relative_to(chart)}": path.read_bytes() for path in files}
    _archive(out / f"starburst-{_chart_version(chart)}.tgz", charted, time_s)
    with tempfile.TemporaryDirectory() as pages:
        _run([sys.executable, "-m", "docsite.man", pages], environment)
        manual = {f"man1/{path.name}": path.read_bytes() for path in Path(pages).iterdir()}
    _archive(out / f"starburst-man-{version}.tar.gz", manual, time_s)
    for name, lock in LOCKS.items():
        _bill_of_materials(ROOT / lock, out / f"starburst-{version}-{name}.cdx.json", environment)
    made = sorted(path for path in out.iterdir() if path.is_file())
    (out / "provenance.json").write_text(json.dumps(provenance(made), indent=1, sort_keys=True) + "\n")
    made.append(out / "provenance.json")
    (out / "SHA256SUMS").write_text("".join(f"{_sha256(path)}  {path.name}\n" for path in made))


def provenance(made: Iterable[Path]) -> dict[str, Any]:
    """What the files were made of, as an in-toto statement with SLSA's predicate. It is not signed."""
    locks = sorted((ROOT / "requirements").glob("*.txt"))
    materials = [{"uri": f"git:{_git('rev-parse', 'HEAD')}", "digest": {"sha1": _git("rev-parse", "HEAD")}}]
    materials += [{"uri": f"requirements/{path.name}", "digest": {"sha256": _sha256(path)}} for path in locks]
    materials.append(
        {"uri": f"image:{base_image()}", "digest": {"sha256": base_image().split("@sha256:")[1]}}
    )
    return {
        "_type": STATEMENT,
        "subject": [{"name": path.name, "digest": {"sha256": _sha256(path)}} for path in made],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"changed": bool(_git("status", "--porcelain"))},
                "internalParameters": {"python": platform.python_version()},
                "resolvedDependencies": materials,
            },
            "runDetails": {"builder": {"id": BUILD_TYPE}},
        },
    }


def base_image() -> str:
    """The image that ours is built on, by digest."""
    named = re.search(
        r"^ARG BASE=(\S+@sha256:[0-9a-f]{64})$", (ROOT / "deploy" / "Dockerfile").read_text(), re.M
    )
    if named is None:
        raise SystemExit("deploy/Dockerfile: ARG BASE must name the base image by its sha256 digest")
    return named[1]


def _chart_version(chart: Path) -> str:
    (version,) = re.findall(r"^version: (\S+)$", (chart / "Chart.yaml").read_text(), re.M)
    return str(version)


def _bill_of_materials(lock: Path, target: Path, environment: dict[str, str]) -> None:
    tool = Path(sys.executable).with_name("cyclonedx-py")
    given = [
        "--pyproject",
        str(ROOT / "pyproject.toml"),
        "--output-reproducible",
        "-o",
        str(target),
        str(lock),
    ]
    _run([str(tool), "requirements", *given], environment)
    # Of each package its name, version and hashes: where it is fetched from is each installer's own setting.
    bill = json.loads(target.read_text())
    for component in bill.get("components", ()):
        component.pop("externalReferences", None)
    target.write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n")


def _archive(target: Path, files: dict[str, bytes], time_s: int) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(content), time_s, 0o644
            archive.addfile(entry, io.BytesIO(content))
    target.write_bytes(gzip.compress(packed.getvalue(), mtime=time_s))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def _run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=600, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
