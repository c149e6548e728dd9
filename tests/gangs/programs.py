"""PyTorch and Ray for jobs of the laboratories: a virtual environment, and an image of it for kubelets.

Rented machines of the laboratory see /var of this machine, so that one environment is at one path everywhere:
jobs find it by their variable PATH.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from tests.kube.lab import Lab, tools

PLACE = Path("/var/cache/starburst-gangs")
PROGRAMS = PLACE / "venv"
#: Of the rented machines; kubelets get a copy.
PYTHON = Path("/usr/bin/python3.11")
#: Ray starts its processes by it.
BASH = Path("/usr/bin/bash")
PATH = f"{PROGRAMS}/bin:/usr/local/bin:/usr/bin:/bin"
IMAGE = "docker.io/local/training:1"
WANTED = ("torch==2.13.0", "numpy", "ray[default,train]==2.60.0")
#: What no job here needs, of a gigabyte.
_LEFT_OUT = re.compile(r"/(include|test|tests|idlelib|ensurepip|tkinter|lib2to3)(/|$)|\.(a|pyi)$")


def install() -> None:
    """Make the environment, once; again when other packages are wanted, and then the image too."""
    done = PROGRAMS / ".done"
    if done.exists() and done.read_text().split() == [*WANTED]:
        return
    shutil.rmtree(PLACE, ignore_errors=True)
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", PROGRAMS], check=True, timeout=120)
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(PROGRAMS / "bin" / "python")]
    subprocess.run([*pip, "install", "--no-compile", *WANTED], check=True, timeout=1800)
    done.write_text("\n".join(WANTED))


def load_image(lab: Lab, nodes: int) -> None:
    """Give every kubelet the image."""
    archive = PLACE / "training.tar"
    if not archive.exists():
        _write(archive)
    for node in range(nodes):
        ctr(lab, node, "images", "import", str(archive))


def ctr(lab: Lab, node: int, *args: str) -> None:
    """A command of containerd on a node."""
    assert lab.state is not None
    at = ["-a", str(lab.state / f"node{node}" / "containerd.sock"), "-n", "k8s.io"]
    subprocess.run([tools() / "bin" / "ctr", *at, *args], check=True, capture_output=True, timeout=600)


def _write(archive: Path) -> None:
    """An archive as docker's with one layer: busybox, this Python with its libraries, the environment."""
    partial, layer = archive.with_suffix(".partial"), archive.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:
        tar.add(tools() / "images" / "rootfs", arcname=".", filter=_plain)
        env = tarfile.TarInfo("usr/bin/env")
        env.type, env.linkname = tarfile.SYMTYPE, "/bin/busybox"
        tar.addfile(env)
        for path in (BASH, PYTHON, PYTHON.with_name("python3"), Path("/usr/lib/python3.11"), PROGRAMS):
            tar.add(path, arcname=str(path), filter=_plain)
        for library in _libraries():
            tar.add(library.resolve(), arcname=str(library), filter=_plain)
    digest = hashlib.sha256()
    with layer.open("rb") as file:
        while chunk := file.read(2**20):
            digest.update(chunk)
    config: dict[str, Any] = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": [f"PATH={PATH}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest.hexdigest()}"]},
    }
    name = hashlib.sha256(json.dumps(config).encode()).hexdigest()
    listed = [{"Config": f"{name}.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    with tarfile.open(partial, "w") as tar:
        tar.add(layer, arcname="layer.tar")
        for file_name, value in ((f"{name}.json", config), ("manifest.json", listed)):
            content = json.dumps(value).encode()
            member = tarfile.TarInfo(file_name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    layer.unlink()
    partial.rename(archive)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    return None if _LEFT_OUT.search(f"/{member.name}") else member


def _libraries() -> list[Path]:
    """The shared libraries of this machine that the programs are linked to, as the linker names them."""
    found: set[str] = set()
    modules = Path("/usr/lib/python3.11/lib-dynload").glob("*.so")
    binaries = [path for path in PROGRAMS.rglob("*") if path.is_file() and _is_linked(path)]
    for path in (BASH, PYTHON, *modules, *binaries):
        done = subprocess.run(["ldd", path], capture_output=True, text=True, timeout=60, check=False)
        found |= set(re.findall(r"(/(?:usr/)?lib(?:64|/x86_64-linux-gnu)/\S+)", done.stdout))
    return sorted({Path(name) for name in found})


def _is_linked(path: Path) -> bool:
    if path.suffix not in ("", ".so") and ".so." not in path.name:
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF" and os.access(path, os.R_OK)
